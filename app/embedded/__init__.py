"""The PostgreSQL and Valkey of a machine that has none configured, and the supervisor of `expunge up`."""

from app.embedded.errors import AlreadyRunning, EmbeddedError, NotInstalled, PartFailed
from app.embedded.postgres import Postgres
from app.embedded.supervisor import Part, Supervisor
from app.embedded.valkey import Valkey, redis_url

__all__ = [
    "AlreadyRunning",
    "EmbeddedError",
    "NotInstalled",
    "Part",
    "PartFailed",
    "Postgres",
    "Supervisor",
    "Valkey",
    "redis_url",
]
