"""What an objective costs in plain steps, and how training compares with a loop as torchvision writes it.

    .venv/bin/python -m benchmarks.training_cost --data ../shared/data/cifar10

Times a step of each objective in turn, five times over, in float32; each one's memory, above what the
process held before, is that of a process of its own. Then an epoch through this project's loop and through
one in the style of torchvision's references (float32, NCHW, a DataLoader with workers, augmentation image
by image, torch.optim) over the same images with the same network. Ratios within one run count: run it
alone. Each run appends a row to benchmarks/results/training_cost.jsonl; `--no-results` leaves that out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from app.jobs.params import (
    Asam,
    BuiltIn,
    GradientSparsity,
    Plain,
    Precision,
    Sam,
    TrainingObjective,
    TrainingRecipe,
    plain_data,
)
from benchmarks.records import Results
from models_store.rows import RowSet
from workers.data.batches import Rows
from workers.data.loading import load
from workers.data.registry import open_reader
from workers.monitor import Silent
from workers.nets.factory import build
from workers.nets.network import Network
from workers.training.memory import begin_peak, peak_bytes
from workers.training.surroundings import described
from workers.training.train import Lesson, fit

NETWORK = BuiltIn(name="resnet20")
BATCH, ROUNDS, STEPS = 128, 5, 6
OBJECTIVES: Mapping[str, TrainingObjective] = {
    "plain": Plain(),
    "sam": Sam(name="sam"),
    "asam": Asam(name="asam"),
    "finite_difference": GradientSparsity(name="gradient_sparsity"),
    "exact": GradientSparsity(name="gradient_sparsity", form="exact"),
}
EPOCH_ROWS = 5_000
_WORKERS = 2
_CPU = torch.device("cpu")


class Clock(Silent):
    """Notes when each step was done."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def progress(self, *_step: object, **_figures: object) -> None:
        """A step, or a part of one that the objective tells of."""
        self.times.append(time.perf_counter())


def network() -> Network:
    return build(NETWORK, 10, (32, 32, 3), torch.Generator().manual_seed(0))


def seconds_a_step(rows: Rows, objective: TrainingObjective) -> float:
    """The median of a few steps, the first left out."""
    recipe = TrainingRecipe(epochs=1, batch_size=BATCH, precision="fp32", objective=objective)
    clock = Clock()
    fit(network(), Lesson(rows.take(slice(0, BATCH * (STEPS + 1))), recipe, 0), clock)
    return median(np.diff(clock.times).tolist())


def step_ratios(rows: Rows) -> dict[str, Any]:
    """Each objective's step in plain steps, timed in turn: the median of the rounds, and all of them."""
    rounds = [
        {name: seconds_a_step(rows, objective) for name, objective in OBJECTIVES.items()}
        for _ in range(ROUNDS)
    ]
    ratios = {name: [each[name] / each["plain"] for each in rounds] for name in OBJECTIVES}
    return {
        name: {"ratio": median(found), "rounds": found, "seconds": median(each[name] for each in rounds)}
        for name, found in ratios.items()
    }


def memory_of(name: str, data: Path) -> None:
    """Print the bytes that training with this objective takes above what there was before it."""
    rows = photographs(data, 3 * BATCH)
    recipe = TrainingRecipe(epochs=1, batch_size=BATCH, precision="fp32", objective=OBJECTIVES[name])
    trained = network()
    begin_peak(_CPU)
    before = peak_bytes(_CPU)
    fit(trained, Lesson(rows, recipe, 0), Silent())
    print(peak_bytes(_CPU) - before)


def memory_ratios(data: Path) -> dict[str, Any]:
    """Each objective's memory, by what the plain one takes.

    What is freed is given back at once: glibc's allocator keeps ever larger blocks for later, unless told a
    threshold, and what it keeps depends more on the order of what was freed than on what is needed.
    """
    found: dict[str, int] = {}
    surroundings = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(128 * 1024)}
    for name in OBJECTIVES:
        command = [sys.executable, "-m", "benchmarks.training_cost", "--data", str(data), "--memory", name]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=surroundings)
        found[name] = int(done.stdout)
    return {name: {"ratio": taken / found["plain"], "bytes": taken} for name, taken in found.items()}


class Pictures(Dataset[tuple[Tensor, int]]):
    """Photographs as torchvision's CIFAR10 has them: an array, each image augmented by itself."""

    def __init__(self, images: NDArray[np.uint8], labels: NDArray[np.int64]) -> None:
        self._images, self._labels = images, labels
        mean, std = images.mean((0, 1, 2)) / 255, images.std((0, 1, 2)) / 255
        self._change = transforms.Compose(
            [
                transforms.RandomCrop(32, padding=4),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(mean.tolist(), std.tolist()),
            ]
        )

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, place: int) -> tuple[Tensor, int]:
        return self._change(Image.fromarray(self._images[place])), int(self._labels[place])


def reference_style(images: NDArray[np.uint8], labels: NDArray[np.int64]) -> float:
    """Images a second of an epoch in the style of torchvision's references, after one to warm up."""
    body = network().body.to(memory_format=torch.contiguous_format).train()
    sgd = torch.optim.SGD(body.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
    loader = DataLoader(Pictures(images, labels), batch_size=BATCH, shuffle=True, num_workers=_WORKERS)
    criterion = nn.CrossEntropyLoss()
    for _ in range(2):
        started = time.perf_counter()
        for pixels, targets in loader:
            loss = criterion(body(pixels), targets)
            sgd.zero_grad()
            loss.backward()
            sgd.step()
    return len(images) / (time.perf_counter() - started)


def our_own(images: NDArray[np.uint8], labels: NDArray[np.int64], *, precision: Precision) -> float:
    """Images a second of the second epoch of this project's training, augmented alike."""
    rows = Rows.of(images, labels)
    recipe = TrainingRecipe(epochs=2, batch_size=BATCH, augmentation="flip_crop", precision=precision)
    clock = Clock()
    fit(network(), Lesson(rows, recipe, 0), clock)
    steps = len(clock.times) // 2
    return len(images) / (clock.times[-1] - clock.times[steps - 1])


def photographs(data: Path, count: int) -> Rows:
    return Rows.of(*arrays(data, count))


def arrays(data: Path, count: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The first CIFAR-10 photographs: uint8 [n, 32, 32, 3], int64 [n]."""
    options = {"files": [{"path": "train.parquet", "limit": count}]}
    reader = open_reader("parquet", str(data.resolve()), options)
    return load(reader, RowSet.below(count), (32, 32, 3))


def main() -> None:
    """Measure once and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/cifar10"))
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--memory", choices=list(OBJECTIVES), help="measure this alone, in bytes")
    parser.add_argument("--no-results", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.memory is not None:
        memory_of(given.memory, given.data)
        return
    images, labels = arrays(given.data, EPOCH_ROWS)
    loops = {
        "reference_style": reference_style(images, labels),
        "ours": our_own(images, labels, precision="auto"),
        "ours_fp32": our_own(images, labels, precision="fp32"),
    }
    figures = {
        "steps": step_ratios(Rows.of(images, labels)),
        "memory": memory_ratios(given.data),
        "images_per_second": loops,
        "speed": loops["ours"] / loops["reference_style"],
        "load_average": os.getloadavg()[0],
    }
    print(json.dumps(figures, indent=1))
    if not given.no_results:
        setting = {"network": plain_data(NETWORK), "batch_size": BATCH, "environment": described(_CPU)}
        Results("training_cost").add({"setting": setting, "figures": figures})


if __name__ == "__main__":
    main()
