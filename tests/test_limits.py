"""No body is larger than the limit, however it arrives."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from fastapi import FastAPI, Request

from app import errors
from app.limits import BodyLimit
from tests.fixtures.api import Api

MOST = 1000


@pytest.fixture
def api() -> Api:
    """An application that tells how many bytes it read, with a limit of a thousand."""
    app = FastAPI()
    errors.install(app)
    app.add_middleware(BodyLimit, most_bytes=MOST)

    @app.post("/raw")
    async def raw(request: Request) -> int:
        return len(await request.body())

    @app.post("/json")
    def parsed(body: dict[str, Any]) -> int:
        return len(body)

    return Api(app, None)


async def _chunks(size: int) -> AsyncIterator[bytes]:
    for _ in range(size // 100):
        yield b" " * 100


def _whole(size: int) -> bytes:
    return b" " * size


@pytest.mark.parametrize("path", ["/raw", "/json"])
@pytest.mark.parametrize("body", [_whole, _chunks], ids=["declared", "streamed"])
def test_a_larger_body_is_413(api: Api, path: str, body: Callable[[int], Any]) -> None:
    """By its declared length, or as soon as too many bytes have come."""
    answer = api.send("POST", path, content=body(MOST + 100))
    assert (answer.status_code, answer.headers["content-type"]) == (413, "application/problem+json")
    assert answer.json()["type"].endswith("/body-too-large")


@pytest.mark.parametrize("body", [_whole, _chunks], ids=["declared", "streamed"])
def test_a_body_of_exactly_the_limit_is_read(api: Api, body: Callable[[int], Any]) -> None:
    """The limit is what is allowed."""
    assert api.send("POST", "/raw", content=body(MOST)).json() == MOST


def test_a_wrong_declared_length_does_not_help(api: Api) -> None:
    """What comes is counted, whatever was announced."""
    answer = api.send("POST", "/raw", content=_whole(MOST + 1), headers={"Content-Length": "10"})
    assert answer.status_code == 413
