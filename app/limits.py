"""Limits on what a caller may send, enforced before anything is parsed."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import render


class BodyTooLarge(HTTPException):
    """More bytes arrived than are allowed. (FastAPI lets this kind of exception through its body parser.)"""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(413, f"The body is larger than {most_bytes} bytes.")


class BodyLimit:
    """Refuses a body above the limit, by its declared length or as soon as too many bytes came."""

    def __init__(self, app: ASGIApp, most_bytes: int, by_path: Mapping[str, int] | None = None) -> None:
        """`by_path`: other limits for paths that begin so: uploads, which are streamed."""
        self._app = app
        self._most = most_bytes
        self._by_path = by_path or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        most = self._limit_of(scope["path"])
        if _declared_length(scope) > most:
            await render(413, "body-too-large", BodyTooLarge(most).detail)(scope, receive, send)
        else:
            await self._app(scope, _counted(receive, most), send)

    def _limit_of(self, path: str) -> int:
        return next((most for start, most in self._by_path.items() if path.startswith(start)), self._most)


def _counted(receive: Receive, most: int) -> Receive:
    received = 0

    async def counted() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > most:
            raise BodyTooLarge(most)
        return message

    return counted


def _declared_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0
