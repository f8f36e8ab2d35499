"""The calls the demo makes, and the waiting between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from app.demo.console import Json

_POLL_SECONDS = 0.3
_ENDS = ("done", "failed", "cancelled", "superseded")


class DemoFailed(Exception):
    """The demo did not come to its end; the message says where it stopped."""


class Client:
    """A caller of the service. `pause` sleeps, and raises when the user wants to stop."""

    def __init__(self, address: str, key: str, pause: Callable[[float], None]) -> None:
        headers = {"Authorization": f"Bearer {key}"}
        self._http = httpx.Client(base_url=address, headers=headers, timeout=30)
        self._pause = pause

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def get(self, path: str) -> Any:  # noqa: ANN401  (JSON of any shape)
        """Read something as JSON."""
        return self._answer(self._http.get(path)).json()

    def page(self, path: str) -> str:
        """Read something as text."""
        return self._answer(self._http.get(path)).text

    def post(self, path: str, body: Mapping[str, Any]) -> Json:
        """Ask for something."""
        answer: Json = self._answer(self._http.post(path, json=body)).json()
        return answer

    def _answer(self, response: httpx.Response) -> httpx.Response:
        if response.is_error:
            raise DemoFailed(f"The service answered {response.status_code}: {response.text}")
        return response

    def watch_job(self, job_id: str, tell: Callable[[Json], None]) -> Json:
        """Follow a job to its end, telling of it whenever it was looked at. Raises DemoFailed if it fails."""

        def look() -> Json | None:
            job: Json = self.get(f"/v1/jobs/{job_id}")
            tell(job)
            return job if job["state"] in _ENDS else None

        job = self.until(look, "a job", seconds=300)
        if job["state"] in ("failed", "cancelled"):
            raise DemoFailed(f"The {job['kind']} job ended as {job['state']}: {job['reason']}")
        return job

    def until(self, look: Callable[[], Json | None], what: str, *, seconds: float) -> Json:
        """Look again and again until there is something to see. Raises DemoFailed after `seconds`."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = look()
            if found is not None:
                return found
            self._pause(_POLL_SECONDS)
        raise DemoFailed(f"Waited {seconds:.0f} s for {what}.")
