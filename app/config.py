"""Every setting, read once from EXPUNGE_* and passed down; nothing else reads the environment."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from app.urls import object_url


class Settings(BaseSettings):
    """Defaults run everything on this machine under `var`; production sets the URLs and the secret key."""

    model_config = SettingsConfigDict(env_prefix="EXPUNGE_", extra="ignore")

    var: Path = Path("var")
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8642  # 0: any free one
    database_url: str | None = None
    broker_url: str | None = None
    store_url: str | None = None
    data_roots: Annotated[tuple[Path, ...], NoDecode] = ()
    data_urls: Annotated[tuple[Annotated[str, AfterValidator(object_url)], ...], NoDecode] = ()
    allow_downloads: bool = False
    network_plugins: Annotated[tuple[str, ...], NoDecode] = ()
    admin_key: SecretStr | None = None
    secret_key: SecretStr | None = None

    max_body_bytes: Annotated[int, Field(ge=1024)] = 64 * 1024 * 1024
    max_upload_bytes: Annotated[int, Field(ge=1024)] = 1024**3  # of a list of samples
    max_weights_bytes: Annotated[int, Field(ge=1024)] = 4 * 1024**3
    compute_queue: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,40}$")] = "jobs"
    worker_concurrency: Annotated[int, Field(ge=1, le=64)] = 1
    worker_threads: Annotated[int, Field(ge=1, le=1024)] = 1
    rows_in_memory_bytes: Annotated[int, Field(ge=0)] = 2 * 1024**3
    device: str | None = None
    lease_seconds: Annotated[float, Field(gt=0)] = 15.0
    heartbeat_seconds: Annotated[float, Field(gt=0)] = 2.0
    scheduler_seconds: Annotated[float, Field(gt=0)] = 0.5
    republish_seconds: Annotated[float, Field(gt=0)] = 20.0
    gc_grace_hours: Annotated[int, Field(ge=1)] = 24

    @field_validator("data_roots", mode="before")
    @classmethod
    def _split_roots(cls, value: object) -> object:
        """Folders are separated as in PATH."""
        return tuple(part for part in value.split(os.pathsep) if part) if isinstance(value, str) else value

    @field_validator("network_plugins", "data_urls", mode="before")
    @classmethod
    def _split_names(cls, value: object) -> object:
        """Names and URLs are separated by commas or spaces."""
        return tuple(value.replace(",", " ").split()) if isinstance(value, str) else value

    @field_validator("database_url", "broker_url", "store_url", "admin_key", "secret_key", mode="before")
    @classmethod
    def _empty_is_unset(cls, value: object) -> object:
        """Compose files pass unset variables as empty strings."""
        return None if value == "" else value

    def environment(self) -> dict[str, str]:
        """The variables that give another process these settings, but for the admin key."""
        chosen = {name: getattr(self, name) for name in self.model_fields_set - {"admin_key"}}
        return {
            f"{self.model_config['env_prefix']}{name.upper()}": _as_variable(value)
            for name, value in chosen.items()
            if value is not None
        }

    @property
    def store(self) -> str:
        """The URL of the artefact store."""
        return self.store_url or str(self.var.resolve() / "store")


def _as_variable(value: object) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    separator = os.pathsep if isinstance(value, tuple) and isinstance(next(iter(value), None), Path) else ","
    return separator.join(map(str, value)) if isinstance(value, tuple) else str(value)


@lru_cache
def settings() -> Settings:
    """The process's settings."""
    return Settings()
