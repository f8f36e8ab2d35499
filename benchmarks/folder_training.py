"""Memory and speed of training on a folder of a million images: more than memory is to hold.

    .venv/bin/python -m benchmarks.folder_training

Writes 1,000 different images, half of them PNG and half JPEG, and a thousand hard links to each, in ten
folders of classes. A process of its own hashes all rows as a registration does, then trains on them for 300
steps through the pipeline, every row read from its file, compared with its hash and decoded. Takes some
minutes and a million directory entries in the temporary folder. Each run appends a row to
benchmarks/results/folder_training.jsonl; `--no-results` leaves that out.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from app.jobs.params import BuiltIn, ImageFolder, TrainingRecipe
from benchmarks.records import Results
from models_store.blobs import BlobStore
from models_store.rows import RowSet
from workers import pipeline
from workers.data.image_folder import open_image_folder
from workers.data.loading import content_hashes
from workers.monitor import Cancelled, Silent
from workers.spec import DataSpec, Environment, TrainSpec

_SIDE, _CLASSES = 32, 10
_STEPS, _BATCH_SIZE = 300, 256
_NOTED_STEPS = (10, 150, 300)


def write_folder(folder: Path, files: int, links: int) -> None:
    """So many images, and so many links to each."""
    random = np.random.default_rng(0)
    originals = folder / "originals"
    originals.mkdir()
    for number in range(files):
        kind = ("png", "jpeg")[number % 2]
        original = originals / f"{number}.{kind}"
        original.write_bytes(_encoded(random.integers(0, 256, (_SIDE, _SIDE, 3), dtype=np.uint8), kind))
        classes = folder / "photos" / f"class-{number % _CLASSES}"
        classes.mkdir(parents=True, exist_ok=True)
        for link in range(links):
            os.link(original, classes / f"{number:04d}-{link:04d}.{kind}")


def _encoded(pixels: Any, kind: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format=kind)
    return buffer.getvalue()


class Notes(Silent):
    """Notes memory and time at some steps, and ends the training after the last of them."""

    def __init__(self) -> None:
        super().__init__()
        self.memory_mb: dict[int, float] = {}
        self.times: dict[int, float] = {}
        self._step = 0

    def progress(self, phase: str, done: int, *_: int, **_figures: float) -> None:
        """A step is done."""
        if phase == "train":
            self._step = done
            self.times[done] = time.perf_counter()
        if phase == "train" and done in _NOTED_STEPS:
            self.memory_mb[done] = _memory("VmRSS")

    def check_cancelled(self) -> None:
        """Stop after the last step."""
        if self._step == _STEPS:
            raise Cancelled


def _memory(name: str) -> float:
    """Megabytes of this process, now (VmRSS) or at most so far (VmHWM)."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status[name].split()[0]) / 1024


def run(folder: Path) -> None:
    """Open the folder, hash its rows, train; print the figures."""
    imported_mb, started = _memory("VmRSS"), time.perf_counter()
    location = str(folder.resolve() / "photos")
    reader = open_image_folder(location, ImageFolder())
    opened = time.perf_counter()
    store = BlobStore(str(folder / "store"))
    with store.draft() as draft:
        for chunk in reader.chunks():
            draft.write(b"".join(content_hashes(reader, chunk)))
        manifest = draft.keep()
    hashed = time.perf_counter()
    rows, hashed_mb = reader.count, _memory("VmRSS")
    del reader
    spec = TrainSpec(
        data=DataSpec(
            reader="image_folder",
            location=location,
            num_classes=_CLASSES,
            image_shape=(_SIDE, _SIDE, 3),
            manifest=manifest,
        ),
        architecture=BuiltIn(name="resnet8", width=0.25),
        recipe=TrainingRecipe(epochs=1, batch_size=_BATCH_SIZE, augmentation="flip_crop"),
        train=RowSet.below(rows),
        validation=RowSet.of(()),
        test=RowSet.of(()),
        seed=0,
        environment=Environment(threads=1, device="cpu"),
    )
    notes = Notes()
    with suppress(Cancelled):
        pipeline.train(spec, store, notes)
    steps = _STEPS - _NOTED_STEPS[0]
    seconds = notes.times[_STEPS] - notes.times[_NOTED_STEPS[0]]
    figures = {
        "rows": rows,
        "seconds": {"opening": opened - started, "hashing": hashed - opened, "training": seconds},
        "hashed_rows_per_second": rows / (hashed - opened),
        "trained_rows_per_second": steps * _BATCH_SIZE / seconds,
        "memory_mb": {
            "imported": imported_mb,
            "hashed": hashed_mb,
            **{f"step {step}": mb for step, mb in notes.memory_mb.items()},
        },
        "peak_mb": _memory("VmHWM"),
    }
    print(json.dumps(figures))


def main() -> None:
    """Measure once and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--links", type=int, default=1000, help="to each file")
    parser.add_argument("--no-results", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="expunge-benchmark-") as name:
        write_folder(Path(name), given.files, given.links)
        command = [sys.executable, "-m", "benchmarks.folder_training", "run", name]
        root = Path(__file__).parent.parent
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=root)
        figures = json.loads(done.stdout.splitlines()[-1]) | {"load_average": os.getloadavg()[0]}
    print(json.dumps(figures, indent=1))
    if not given.no_results:
        machine = {
            "cores": os.cpu_count(),
            "machine": platform.machine(),
            "python": platform.python_version(),
        }
        setting = {"files": given.files, "links": given.links, "batch_size": _BATCH_SIZE, **machine}
        Results("folder_training").add({"setting": setting, "figures": figures})


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(Path(sys.argv[2]))
    else:
        main()
