"""Brings a database to the newest schema, from any working directory."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

import migrations


def upgrade(url: str) -> None:
    """Apply all migrations that the database at `url` lacks; several processes may do so at once."""
    config = Config()
    folder = str(Path(migrations.__file__).parent)
    config.set_main_option("script_location", folder.replace("%", "%%"))
    with create_engine(url, poolclass=NullPool).connect() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
