"""The HTTP application: routes, errors, limits, health and metrics."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Response
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from sqlalchemy import text

from app import errors
from app.callers.router import router as keys
from app.config import settings
from app.datasets.router import router as datasets
from app.db import transaction
from app.deletions.router import models as retirement
from app.deletions.router import router as deletions
from app.deps import Db
from app.jobs.router import router as jobs
from app.limits import BodyLimit
from app.metrics import Measured, operating_figures
from app.registry.router import router as models
from app.registry.router import weights
from app.reports.router import router as reports

DESCRIPTION = """Unlearning as a service: post which training samples are to be forgotten; Expunge removes
their influence from every model in use, audits the result and publishes signed reports.

Every call needs an API key: `Authorization: Bearer KEY`. Errors are `application/problem+json` (RFC 9457)."""


class Application(FastAPI):
    """FastAPI, but for the media type of errors in its description of itself."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document, made at the first call."""
        made_before = self.openapi_schema is not None
        document = super().openapi()
        if not made_before:
            errors.only_problems(document)
        return document


def create_app() -> FastAPI:
    """The application; needs EXPUNGE_DATABASE_URL."""
    app = Application(
        title="Expunge",
        version="0.1.0",
        description=DESCRIPTION,
        generate_unique_id_function=_operation_id,
    )
    errors.install(app)
    app.add_middleware(Measured)
    config = settings()
    uploads = {
        "/v1/deletion-requests/upload": config.max_upload_bytes,
        "/v1/weights/": config.max_weights_bytes,
    }
    app.add_middleware(BodyLimit, most_bytes=config.max_body_bytes, by_path=uploads)
    for router in (deletions, models, retirement, weights, datasets, jobs, reports, keys):
        app.include_router(router)
    _add_operations(app)
    return app


def _operation_id(route: APIRoute) -> str:
    return route.name


def _add_operations(app: FastAPI) -> None:
    @app.get("/healthz", tags=["operations"], operation_id="healthz")
    def healthz() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @app.get("/readyz", tags=["operations"], operation_id="readyz", responses=errors.documented(503))
    def readyz() -> dict[str, str]:
        """The process answers, and its database does too."""
        with transaction() as session:
            session.execute(text("SELECT 1"))
        return {"status": "ready"}

    @app.get("/metrics", tags=["operations"], operation_id="metrics", response_class=Response)
    def metrics(session: Db) -> Any:  # noqa: ANN401  (a response, kept out of the schema)
        """Figures for Prometheus; none names a person, a sample or a caller."""
        body = generate_latest() + operating_figures(session)
        return Response(body, media_type=CONTENT_TYPE_LATEST)
