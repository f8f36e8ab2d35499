"""the spine

Revises:
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "b19f259421a4"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("digest", postgresql.BYTEA(), nullable=False),
        sa.Column("scopes", postgresql.ARRAY(sa.TEXT()), nullable=False),
        sa.Column(
            "created_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("expires_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("last_used_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("revoked_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("digest", name=op.f("uq_api_keys_digest")),
    )
    op.create_table(
        "audit_log",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("entity", sa.Text(), nullable=False),
        sa.Column("entity_id", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("facts", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("previous_hash", postgresql.BYTEA(), nullable=True),
        sa.Column("hash", postgresql.BYTEA(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_log")),
        sa.UniqueConstraint("hash", name=op.f("uq_audit_log_hash")),
        sa.UniqueConstraint("previous_hash", name=op.f("uq_audit_log_previous_hash")),
    )
    op.create_index(op.f("ix_audit_log_entity_entity_id"), "audit_log", ["entity", "entity_id"], unique=False)
    op.create_table(
        "datasets",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column(
            "created_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_datasets")),
        sa.UniqueConstraint("name", name=op.f("uq_datasets_name")),
        sa.UniqueConstraint("ordinal", name=op.f("uq_datasets_ordinal")),
    )
    op.create_table(
        "models",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column(
            "created_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("retired_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
        sa.UniqueConstraint("name", name=op.f("uq_models_name")),
        sa.UniqueConstraint("ordinal", name=op.f("uq_models_ordinal")),
    )
    op.create_table(
        "outbox",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("payload", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "created_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("published_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox")),
    )
    op.create_index(
        "ix_outbox_unpublished",
        "outbox",
        ["id"],
        unique=False,
        postgresql_where=sa.text("published_at IS NULL"),
    )
    op.create_table(
        "row_sets",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("bits", postgresql.BYTEA(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_row_sets")),
    )
    op.create_table(
        "samples",
        sa.Column("dataset_version_id", sa.Uuid(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("sample_id", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("label", sa.SmallInteger(), nullable=False),
        sa.Column("content_hash", postgresql.BYTEA(), nullable=False),
        sa.Column("subject_key", postgresql.BYTEA(), nullable=True),
        sa.PrimaryKeyConstraint("dataset_version_id", "ordinal", name=op.f("pk_samples")),
        sa.UniqueConstraint(
            "dataset_version_id", "sample_id", name=op.f("uq_samples_dataset_version_id_sample_id")
        ),
        postgresql_partition_by="LIST (dataset_version_id)",
    )
    op.create_index("ix_samples_subject_key", "samples", ["dataset_version_id", "subject_key"], unique=False)
    op.create_table(
        "webhook_endpoints",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("secret", postgresql.BYTEA(), nullable=False),
        sa.Column("topics", postgresql.ARRAY(sa.TEXT()), nullable=False),
        sa.Column(
            "created_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("disabled_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_endpoints")),
    )
    op.create_table(
        "dataset_versions",
        sa.Column("dataset_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column(
            "state",
            sa.Enum(
                "pending",
                "ready",
                "failed",
                "retired",
                name="datasetstate",
                native_enum=False,
                create_constraint=True,
                length=32,
            ),
            nullable=False,
        ),
        sa.Column("reader", sa.Text(), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("options", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("shares", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("row_count", sa.BigInteger(), nullable=True),
        sa.Column("num_classes", sa.Integer(), nullable=True),
        sa.Column("class_names", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("image_shape", postgresql.ARRAY(sa.Integer()), nullable=True),
        sa.Column("role_counts", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("faults", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("key_id", sa.Text(), nullable=True),
        sa.Column(
            "created_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("ready_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_dataset_versions_dataset_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dataset_versions")),
        sa.UniqueConstraint("dataset_id", "number", name=op.f("uq_dataset_versions_dataset_id_number")),
    )
    op.create_table(
        "deletion_requests",
        sa.Column("ordinal", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("caller_id", sa.Uuid(), nullable=False),
        sa.Column("external_id", sa.Text(), nullable=True),
        sa.Column("regulation", sa.Text(), nullable=False),
        sa.Column(
            "state",
            sa.Enum(
                "received",
                "in_progress",
                "on_hold",
                "completed",
                "partly_completed",
                "denied",
                "cancelled",
                name="requeststate",
                native_enum=False,
                create_constraint=True,
                length=32,
            ),
            nullable=False,
        ),
        sa.Column("reference", sa.Boolean(), nullable=False),
        sa.Column("item_count", sa.Integer(), nullable=False),
        sa.Column("matched_count", sa.Integer(), nullable=False),
        sa.Column(
            "received_at",
            postgresql.TIMESTAMP(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("due_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.Column("extended_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("extension_reason", sa.Text(), nullable=True),
        sa.Column("held_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("finished_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["caller_id"], ["api_keys.id"], name=op.f("fk_deletion_requests_caller_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deletion_requests")),
        sa.UniqueConstraint(
            "caller_id", "external_id", name=op.f("uq_deletion_requests_caller_id_external_id")
        ),
        sa.UniqueConstraint("ordinal", name=op.f("uq_deletion_requests_ordinal")),
    )
    op.create_index(
        op.f("ix_deletion_requests_state_due_at"), "deletion_requests", ["state", "due_at"], unique=False
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("caller_id", sa.Uuid(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("fingerprint", postgresql.BYTEA(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("body", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("location", sa.Text(), nullable=True),
        sa.Column(
            "created_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["caller_id"], ["api_keys.id"], name=op.f("fk_idempotency_keys_caller_id")),
        sa.PrimaryKeyConstraint("caller_id", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_table(
        "policy_versions",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("model_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("body", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "created_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_policy_versions_model_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_policy_versions")),
        sa.UniqueConstraint("model_id", "number", name=op.f("uq_policy_versions_model_id_number")),
    )
    op.create_table(
        "webhook_deliveries",
        sa.Column("endpoint_id", sa.Uuid(), nullable=False),
        sa.Column("message_id", sa.BigInteger(), nullable=False),
        sa.Column(
            "state",
            sa.Enum(
                "pending",
                "delivered",
                "gave_up",
                name="deliverystate",
                native_enum=False,
                create_constraint=True,
                length=32,
            ),
            nullable=False,
        ),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column(
            "created_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["endpoint_id"], ["webhook_endpoints.id"], name=op.f("fk_webhook_deliveries_endpoint_id")
        ),
        sa.ForeignKeyConstraint(["message_id"], ["outbox.id"], name=op.f("fk_webhook_deliveries_message_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_deliveries")),
    )
    op.create_table(
        "deletion_items",
        sa.Column("request_id", sa.Uuid(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("dataset_id", sa.Uuid(), nullable=True),
        sa.Column("sample_id", sa.Text(), nullable=True),
        sa.Column("subject_key", postgresql.BYTEA(), nullable=True),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column(
            "result",
            sa.Enum(
                "matched", "no_match", name="itemresult", native_enum=False, create_constraint=True, length=32
            ),
            nullable=False,
        ),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_deletion_items_dataset_id")),
        sa.ForeignKeyConstraint(
            ["request_id"], ["deletion_requests.id"], name=op.f("fk_deletion_items_request_id")
        ),
        sa.PrimaryKeyConstraint("request_id", "position", name=op.f("pk_deletion_items")),
    )
    op.create_table(
        "model_versions",
        sa.Column("ordinal", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("model_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column(
            "state",
            sa.Enum(
                "validating",
                "ready",
                "failed",
                "superseded",
                "purged",
                name="versionstate",
                native_enum=False,
                create_constraint=True,
                length=32,
            ),
            nullable=False,
        ),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("parent_id", sa.Uuid(), nullable=True),
        sa.Column("job_id", sa.Uuid(), nullable=True),
        sa.Column("dataset_version_id", sa.Uuid(), nullable=False),
        sa.Column("rows_digest", sa.Text(), nullable=False),
        sa.Column("architecture", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("recipe", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("weights", sa.Text(), nullable=True),
        sa.Column("figures", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "created_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["dataset_version_id"], ["dataset_versions.id"], name=op.f("fk_model_versions_dataset_version_id")
        ),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_model_versions_job_id"), use_alter=True
        ),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_model_versions_model_id")),
        sa.ForeignKeyConstraint(
            ["parent_id"], ["model_versions.id"], name=op.f("fk_model_versions_parent_id")
        ),
        sa.ForeignKeyConstraint(
            ["rows_digest"], ["row_sets.digest"], name=op.f("fk_model_versions_rows_digest")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model_versions")),
        sa.UniqueConstraint("model_id", "number", name=op.f("uq_model_versions_model_id_number")),
        sa.UniqueConstraint("ordinal", name=op.f("uq_model_versions_ordinal")),
    )
    op.create_table(
        "tombstones",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("dataset_id", sa.Uuid(), nullable=False),
        sa.Column("request_id", sa.Uuid(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("sample_key", postgresql.BYTEA(), nullable=True),
        sa.Column("subject_key", postgresql.BYTEA(), nullable=True),
        sa.Column("content_key", postgresql.BYTEA(), nullable=True),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column(
            "created_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("lifted_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_tombstones_dataset_id")),
        sa.ForeignKeyConstraint(
            ["request_id"], ["deletion_requests.id"], name=op.f("fk_tombstones_request_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tombstones")),
    )
    op.create_index(
        "ix_tombstones_live",
        "tombstones",
        ["dataset_id"],
        unique=False,
        postgresql_where=sa.text("lifted_at IS NULL"),
    )
    op.create_index(op.f("ix_tombstones_request_id"), "tombstones", ["request_id"], unique=False)
    op.create_table(
        "aliases",
        sa.Column("model_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version_id", sa.Uuid(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column(
            "updated_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_aliases_model_id")),
        sa.ForeignKeyConstraint(["version_id"], ["model_versions.id"], name=op.f("fk_aliases_version_id")),
        sa.PrimaryKeyConstraint("model_id", "name", name=op.f("pk_aliases")),
    )
    op.create_index(op.f("ix_aliases_version_id"), "aliases", ["version_id"], unique=False)
    op.create_table(
        "jobs",
        sa.Column("ordinal", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column(
            "kind",
            sa.Enum(
                "ingest",
                "train",
                "unlearn",
                "reference",
                "shadow",
                "audit",
                "compare",
                name="jobkind",
                native_enum=False,
                create_constraint=True,
                length=32,
            ),
            nullable=False,
        ),
        sa.Column(
            "state",
            sa.Enum(
                "queued",
                "waiting",
                "running",
                "audited",
                "awaiting_approval",
                "done",
                "failed",
                "cancelled",
                "superseded",
                name="jobstate",
                native_enum=False,
                create_constraint=True,
                length=32,
            ),
            nullable=False,
        ),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("model_id", sa.Uuid(), nullable=True),
        sa.Column("version_id", sa.Uuid(), nullable=True),
        sa.Column("dataset_version_id", sa.Uuid(), nullable=True),
        sa.Column("policy_id", sa.Uuid(), nullable=True),
        sa.Column("policy", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("parameters", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("rung", sa.Integer(), nullable=True),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("forget_digest", sa.Text(), nullable=True),
        sa.Column("rows_digest", sa.Text(), nullable=True),
        sa.Column("waits_for", sa.Uuid(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("lease_token", sa.Integer(), nullable=False),
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_expires_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("not_before", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("published_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("cancel_requested_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("cancel_actor", sa.Text(), nullable=True),
        sa.Column("checkpoint", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("outcome", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("settled_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column(
            "created_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("started_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("finished_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["dataset_version_id"], ["dataset_versions.id"], name=op.f("fk_jobs_dataset_version_id")
        ),
        sa.ForeignKeyConstraint(["forget_digest"], ["row_sets.digest"], name=op.f("fk_jobs_forget_digest")),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_jobs_model_id")),
        sa.ForeignKeyConstraint(["policy_id"], ["policy_versions.id"], name=op.f("fk_jobs_policy_id")),
        sa.ForeignKeyConstraint(["rows_digest"], ["row_sets.digest"], name=op.f("fk_jobs_rows_digest")),
        sa.ForeignKeyConstraint(["version_id"], ["model_versions.id"], name=op.f("fk_jobs_version_id")),
        sa.ForeignKeyConstraint(["waits_for"], ["jobs.id"], name=op.f("fk_jobs_waits_for")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.UniqueConstraint("ordinal", name=op.f("uq_jobs_ordinal")),
    )
    op.create_index(
        "ix_jobs_state", "jobs", ["state"], unique=False, postgresql_where=sa.text("settled_at IS NULL")
    )
    op.create_index(op.f("ix_jobs_waits_for"), "jobs", ["waits_for"], unique=False)
    op.create_index(
        "uq_jobs_one_live_unlearn_per_model",
        "jobs",
        ["model_id"],
        unique=True,
        postgresql_where=sa.text(
            "kind = 'unlearn' AND state IN ('queued','waiting','running','audited','awaiting_approval')"
        ),
    )
    op.create_table(
        "tombstoned_rows",
        sa.Column("dataset_version_id", sa.Uuid(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("tombstone_id", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["dataset_version_id"],
            ["dataset_versions.id"],
            name=op.f("fk_tombstoned_rows_dataset_version_id"),
        ),
        sa.ForeignKeyConstraint(
            ["tombstone_id"], ["tombstones.id"], name=op.f("fk_tombstoned_rows_tombstone_id")
        ),
        sa.PrimaryKeyConstraint(
            "dataset_version_id", "ordinal", "tombstone_id", name=op.f("pk_tombstoned_rows")
        ),
    )
    op.create_index(
        op.f("ix_tombstoned_rows_tombstone_id"), "tombstoned_rows", ["tombstone_id"], unique=False
    )
    op.create_table(
        "artefacts",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("dataset_version_id", sa.Uuid(), nullable=True),
        sa.Column("rows_digest", sa.Text(), nullable=True),
        sa.Column(
            "created_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.ForeignKeyConstraint(
            ["dataset_version_id"], ["dataset_versions.id"], name=op.f("fk_artefacts_dataset_version_id")
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_artefacts_job_id")),
        sa.ForeignKeyConstraint(["rows_digest"], ["row_sets.digest"], name=op.f("fk_artefacts_rows_digest")),
        sa.PrimaryKeyConstraint("digest", "job_id", "name", name=op.f("pk_artefacts")),
    )
    op.create_table(
        "job_progress",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("done", sa.Integer(), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("figures", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "updated_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_job_progress_job_id")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_job_progress")),
    )
    op.create_table(
        "reference_networks",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("version_id", sa.Uuid(), nullable=False),
        sa.Column("rows_digest", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("weights", sa.Text(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("figures", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "created_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_reference_networks_job_id")),
        sa.ForeignKeyConstraint(
            ["rows_digest"], ["row_sets.digest"], name=op.f("fk_reference_networks_rows_digest")
        ),
        sa.ForeignKeyConstraint(
            ["version_id"], ["model_versions.id"], name=op.f("fk_reference_networks_version_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reference_networks")),
    )
    op.create_index(
        op.f("ix_reference_networks_version_id_rows_digest"),
        "reference_networks",
        ["version_id", "rows_digest"],
        unique=True,
    )
    op.create_table(
        "reports",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("model_id", sa.Uuid(), nullable=False),
        sa.Column("version_before_id", sa.Uuid(), nullable=False),
        sa.Column("version_after_id", sa.Uuid(), nullable=True),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("published", sa.Boolean(), nullable=False),
        sa.Column("body", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("blobs", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "created_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_reports_job_id")),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_reports_model_id")),
        sa.ForeignKeyConstraint(
            ["version_after_id"], ["model_versions.id"], name=op.f("fk_reports_version_after_id")
        ),
        sa.ForeignKeyConstraint(
            ["version_before_id"], ["model_versions.id"], name=op.f("fk_reports_version_before_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reports")),
        sa.UniqueConstraint("job_id", name=op.f("uq_reports_job_id")),
        sa.UniqueConstraint("ordinal", name=op.f("uq_reports_ordinal")),
    )
    op.create_table(
        "targets",
        sa.Column("request_id", sa.Uuid(), nullable=False),
        sa.Column("model_id", sa.Uuid(), nullable=False),
        sa.Column(
            "state",
            sa.Enum(
                "open",
                "planned",
                "running",
                "awaiting_approval",
                "completed",
                "already_absent",
                "retired",
                "failed",
                name="targetstate",
                native_enum=False,
                create_constraint=True,
                length=32,
            ),
            nullable=False,
        ),
        sa.Column("job_id", sa.Uuid(), nullable=True),
        sa.Column(
            "opened_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("finished_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_targets_job_id")),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_targets_model_id")),
        sa.ForeignKeyConstraint(["request_id"], ["deletion_requests.id"], name=op.f("fk_targets_request_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_targets")),
        sa.UniqueConstraint("request_id", "model_id", name=op.f("uq_targets_request_id_model_id")),
    )
    op.create_index(op.f("ix_targets_job_id"), "targets", ["job_id"], unique=False)
    op.create_index(op.f("ix_targets_model_id_state"), "targets", ["model_id", "state"], unique=False)
    op.create_table(
        "attestations",
        sa.Column("report_id", sa.Uuid(), nullable=False),
        sa.Column("envelope", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.Column(
            "created_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["report_id"], ["reports.id"], name=op.f("fk_attestations_report_id")),
        sa.PrimaryKeyConstraint("report_id", name=op.f("pk_attestations")),
    )
    op.create_foreign_key("fk_model_versions_job_id", "model_versions", "jobs", ["job_id"], ["id"])


def downgrade() -> None:
    op.drop_constraint("fk_model_versions_job_id", "model_versions", type_="foreignkey")
    op.drop_table("attestations")
    op.drop_index(op.f("ix_targets_model_id_state"), table_name="targets")
    op.drop_index(op.f("ix_targets_job_id"), table_name="targets")
    op.drop_table("targets")
    op.drop_table("reports")
    op.drop_index(op.f("ix_reference_networks_version_id_rows_digest"), table_name="reference_networks")
    op.drop_table("reference_networks")
    op.drop_table("job_progress")
    op.drop_table("artefacts")
    op.drop_index(op.f("ix_tombstoned_rows_tombstone_id"), table_name="tombstoned_rows")
    op.drop_table("tombstoned_rows")
    op.drop_index(
        "uq_jobs_one_live_unlearn_per_model",
        table_name="jobs",
        postgresql_where=sa.text(
            "kind = 'unlearn' AND state IN ('queued','waiting','running','audited','awaiting_approval')"
        ),
    )
    op.drop_index(op.f("ix_jobs_waits_for"), table_name="jobs")
    op.drop_index("ix_jobs_state", table_name="jobs", postgresql_where=sa.text("settled_at IS NULL"))
    op.drop_table("jobs")
    op.drop_index(op.f("ix_aliases_version_id"), table_name="aliases")
    op.drop_table("aliases")
    op.drop_index(op.f("ix_tombstones_request_id"), table_name="tombstones")
    op.drop_index(
        "ix_tombstones_live", table_name="tombstones", postgresql_where=sa.text("lifted_at IS NULL")
    )
    op.drop_table("tombstones")
    op.drop_table("model_versions")
    op.drop_table("deletion_items")
    op.drop_table("webhook_deliveries")
    op.drop_table("policy_versions")
    op.drop_table("idempotency_keys")
    op.drop_index(op.f("ix_deletion_requests_state_due_at"), table_name="deletion_requests")
    op.drop_table("deletion_requests")
    op.drop_table("dataset_versions")
    op.drop_table("webhook_endpoints")
    op.drop_index("ix_samples_subject_key", table_name="samples")
    op.drop_table("samples")
    op.drop_table("row_sets")
    op.drop_index(
        "ix_outbox_unpublished", table_name="outbox", postgresql_where=sa.text("published_at IS NULL")
    )
    op.drop_table("outbox")
    op.drop_table("models")
    op.drop_table("datasets")
    op.drop_index(op.f("ix_audit_log_entity_entity_id"), table_name="audit_log")
    op.drop_table("audit_log")
    op.drop_table("api_keys")
