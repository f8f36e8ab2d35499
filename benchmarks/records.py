"""What the benchmarks measured: rows of JSON-lines files that are committed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


class Results:
    """Rows of one benchmark by the setting they belong to."""

    def __init__(self, name: str) -> None:
        self._path = RESULTS / f"{name}.jsonl"

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if self._path.exists():
            yield from (json.loads(line) for line in self._path.read_text().splitlines())

    def of(self, facts: Mapping[str, Any]) -> dict[str, Any] | None:
        """The row of this setting, if it was measured before."""
        return next((row for row in self if row["setting"] == facts), None)

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a row, by one write: what other processes append stays whole."""
        self._path.parent.mkdir(exist_ok=True)
        with self._path.open("ab", buffering=0) as file:
            file.write((json.dumps(row, sort_keys=True) + "\n").encode())
