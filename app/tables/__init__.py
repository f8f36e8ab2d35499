"""Every table. Importing this package registers them all on `Base.metadata`."""

from app.tables.base import AuditEntry, Base
from app.tables.callers import ApiKey, IdempotencyKey
from app.tables.datasets import (
    Dataset,
    DatasetState,
    DatasetVersion,
    RowBits,
    Sample,
    TombstonedRows,
    Tombstones,
)
from app.tables.deletions import (
    DeletionItem,
    DeletionRequest,
    ItemResult,
    RequestState,
    Target,
    TargetState,
)
from app.tables.events import OutboxMessage, WebhookDelivery, WebhookEndpoint
from app.tables.jobs import Artefact, Job, JobKind, JobProgress, JobState, JobWait
from app.tables.registry import (
    Alias,
    Model,
    ModelVersion,
    PolicyVersion,
    ReferenceNetwork,
    ShadowNetwork,
    VersionState,
)
from app.tables.reports import Attestation, Report

__all__ = [
    "Alias",
    "ApiKey",
    "Artefact",
    "Attestation",
    "AuditEntry",
    "Base",
    "Dataset",
    "DatasetState",
    "DatasetVersion",
    "DeletionItem",
    "DeletionRequest",
    "IdempotencyKey",
    "ItemResult",
    "Job",
    "JobKind",
    "JobProgress",
    "JobState",
    "JobWait",
    "Model",
    "ModelVersion",
    "OutboxMessage",
    "PolicyVersion",
    "ReferenceNetwork",
    "Report",
    "RequestState",
    "RowBits",
    "Sample",
    "ShadowNetwork",
    "Target",
    "TargetState",
    "TombstonedRows",
    "Tombstones",
    "VersionState",
    "WebhookDelivery",
    "WebhookEndpoint",
]
