"""One original, its retrained reference and an unlearned network, measured; nothing is computed twice.

Results are rows of a JSON-lines file that is committed; weights and checkpoints lie in a folder that is not.
A run that is broken off goes on from its newest checkpoint, and a row that exists is not computed again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app.jobs.params import Architecture, MethodParameters, TrainingRecipe, plain_data
from benchmarks.records import Results
from models_store.blobs import BlobStore
from models_store.rows import RowSet
from workers import auditing, pipeline
from workers.monitor import Silent
from workers.spec import DataSpec, Environment, Learned, TrainSpec, UnlearnSpec, Version


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Everything that an experiment's figures follow from."""

    data: DataSpec
    train: RowSet
    forget: RowSet
    holdout: RowSet
    test: RowSet
    validation: RowSet  # what the method judges itself by
    kin: RowSet  # those of them that are of the forget rows' people
    same_people: bool  # whether the holdout rows are of the forget rows' people
    architecture: Architecture
    recipe: TrainingRecipe
    method: str
    parameters: MethodParameters
    seed: int
    environment: Environment

    def facts(self) -> dict[str, Any]:
        """The setting as JSON-ready data, row sets by their digests."""
        names = ("train", "forget", "holdout", "test", "validation", "kin")
        sets = {name: getattr(self, name).digest for name in names}
        return {
            "data": {"reader": self.data.reader, "options": dict(self.data.options)},
            "sets": sets,
            "architecture": plain_data(self.architecture),
            "recipe": plain_data(self.recipe),
            "method": self.method,
            "parameters": plain_data(self.parameters),
            "seed": self.seed,
            "threads": self.environment.threads,
        }


class Desk(Silent):
    """A monitor that keeps the newest checkpoint in a file, and shows where the work stands."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.read_bytes() if path.exists() else None)
        self._path = path

    def forget(self) -> None:
        """Begin anew: the checkpoint is another computation's."""
        self._path.unlink(missing_ok=True)
        self.checkpoint = None

    def progress(self, phase: str, done: int, total: int, **figures: float) -> None:
        """One line, written over."""
        if done % max(1, total // 50) == 0:
            shown = " ".join(f"{name} {value:.3f}" for name, value in figures.items())
            print(f"\r{phase} {done}/{total} {shown}\033[K", end="" if done < total else "\n", flush=True)

    def save_checkpoint(self, content: bytes) -> None:
        draft = self._path.with_suffix(".draft")
        draft.write_bytes(content)
        draft.replace(self._path)


def measure(setting: Setting, results: Results, folder: Path) -> dict[str, Any]:
    """The row of a setting: from the results if it is there, else computed and added to them."""
    facts = setting.facts()
    if (row := results.of(facts)) is None:
        row = {"setting": facts, "figures": _figures(setting, folder)}
        results.add(row)
    return row


def _figures(setting: Setting, folder: Path) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    store = BlobStore(str(folder / "store"))
    key = hashlib.sha256(json.dumps(setting.facts(), sort_keys=True).encode()).hexdigest()[:16]

    def desk(part: str) -> Desk:
        return Desk(folder / f"{key}-{part}.checkpoint")

    training = TrainSpec(
        data=setting.data,
        architecture=setting.architecture,
        recipe=setting.recipe,
        train=setting.train,
        validation=RowSet.of(()),
        test=setting.test,
        seed=setting.seed,
        environment=setting.environment,
    )
    retain = setting.train - setting.forget
    original = pipeline.train(training, store, desk("original"))
    retraining = replace(training, train=retain, seed=setting.seed + 1000)
    reference = pipeline.train(retraining, store, desk("reference"))
    spec = UnlearnSpec(
        data=setting.data,
        original=Version(architecture=setting.architecture, weights=original.weights),
        recipe=setting.recipe,
        method=setting.method,
        parameters=setting.parameters,
        forget=setting.forget,
        retain=retain,
        holdout=setting.holdout,
        holdout_match="subject" if setting.same_people else "class",
        test=setting.test,
        validation=setting.validation,
        kin=setting.kin,
        learned=Learned(blob=original.figures["memorisation"]["proxy"], rows=setting.train),
        seed=setting.seed,
        references=(reference.weights,),
        reference_seconds=reference.figures["seconds"],
        environment=setting.environment,
    )
    done = pipeline.unlearn(spec, store, desk("unlearned"))
    figures = dict(auditing.audit(replace(spec, done=done), store, desk("audit")).figures)
    figures["original_seconds"] = original.figures["seconds"]
    figures["environment"] = original.figures["environment"]
    return figures


def table(rows: list[dict[str, Any]]) -> str:
    """Accuracy on R, F and T, AUC, tug of war and seconds of each network of each row."""
    lines = [f"{'seed':>4} {'network':10} {'RA':>6} {'FA':>6} {'TA':>6} {'AUC':>5} {'ToW':>5} {'seconds':>7}"]
    for row in rows:
        figures = row["figures"]
        seconds = figures["cost"]["seconds"]
        tow = figures["tug_of_war"]
        cost = {
            "original": (tow["doing_nothing"], figures["original_seconds"]),
            "reference": (1.0, seconds["reference"]),
            "unlearned": (tow["absolute"], seconds["unlearning"]),
        }
        for name, (score, spent) in cost.items():
            counts = figures["accuracy"][name]
            shares = " ".join(f"{100 * counts[part]['rate']:6.2f}" for part in ("retain", "forget", "test"))
            attack = figures["membership"][name]["auc"]
            seed = row["setting"]["seed"]
            lines.append(f"{seed:4} {name:10} {shares} {attack:5.3f} {score:5.3f} {spent:7.1f}")
    return "\n".join(lines)
