"""Limits on what a caller may send, enforced before anything is parsed."""

from __future__ import annotations

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import render


class BodyTooLarge(HTTPException):
    """More bytes arrived than are allowed. (FastAPI lets this kind of exception through its body parser.)"""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(413, f"The body is larger than {most_bytes} bytes.")


class BodyLimit:
    """Refuses a body above the limit, by its declared length or as soon as too many bytes came."""

    def __init__(self, app: ASGIApp, most_bytes: int) -> None:
        self._app = app
        self._most = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif _declared_length(scope) > self._most:
            refusal = BodyTooLarge(self._most)
            await render(413, "body-too-large", refusal.detail)(scope, receive, send)
        else:
            await self._app(scope, self._counted(receive), send)

    def _counted(self, receive: Receive) -> Receive:
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._most:
                raise BodyTooLarge(self._most)
            return message

        return counted


def _declared_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0
