"""A blob may be larger than the memory of whoever stores, streams or copies it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_MEGABYTES = 200
# Parts in flight and the copies that the client for S3 makes of them, or a few chunks.
_MOST_GROWTH = {"folder": 16, "s3": 100}

_PROGRAM = r"""
import re, sys
from pathlib import Path
from models_store.blobs import BlobStore

def peak():  # in MiB; getrusage would tell the parent's peak if that was higher
    return int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1]) / 1024

store, source, copy = BlobStore(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
store.get(store.put(b"whatever is loaded at the first use"))
before = peak()
digest = store.put_file(source)
with store.draft() as draft:
    for piece in store.chunks(digest):
        draft.write(piece)
    assert draft.keep() == digest
store.fetch(digest, copy)
assert store.size(digest) == copy.stat().st_size == source.stat().st_size
print(peak() - before)
"""


@pytest.mark.parametrize("place", ["folder", "s3"])
def test_memory_stays_flat(place: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Storing a file, streaming it into another draft and fetching it take a small part of its size."""
    url = str(tmp_path / "store") if place == "folder" else request.getfixturevalue("s3_url")
    source = tmp_path / "source"
    with source.open("wb") as file:
        for number in range(_MEGABYTES):
            file.write(number.to_bytes(4, "little") * (256 * 1024))
    command = [sys.executable, "-c", _PROGRAM, url, source, tmp_path / "copy"]
    measured = subprocess.run(command, check=True, capture_output=True, text=True)
    assert float(measured.stdout) < _MOST_GROWTH[place]
