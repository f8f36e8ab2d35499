"""Does the confidence recorded while training rank rows as memorisation does, and what does it cost?

    .venv/bin/python -m benchmarks.digits_memorisation --seeds 2

The demo's digits, of which some are mislabelled, and its network. Memorisation is estimated from networks
trained on random 70% of the rows (Feldman & Zhang 2020); how well one half of these networks agrees with the
other says how much agreement could be hoped for. Minutes a seed; what was measured before is not again.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from statistics import median
from typing import Any

import numpy as np
import torch
from scipy.stats import mannwhitneyu, spearmanr

from app.jobs.params import BuiltIn, SklearnDigits
from benchmarks.digits_sharp_minmax import MISLABELLED, RECIPE, setting
from benchmarks.records import Results
from models_store.rows import RowSet
from workers.audit.memorisation import memorisation, subset
from workers.audit.outputs import BoolArray, FloatArray
from workers.data.batches import Rows
from workers.data.digits import DigitsReader
from workers.data.loading import load
from workers.data.seeds import derived_seed, generator
from workers.monitor import Silent
from workers.nets.factory import build
from workers.nets.network import Network
from workers.training.confidence import Confidence, scores
from workers.training.evaluate import hits
from workers.training.train import Lesson, fit

_RATIO = 0.7
_REPEATS = 7  # of the timing


def measured(seed: int, networks: int, facts: dict[str, Any]) -> dict[str, Any]:
    """The row of one deal of the digits."""
    chosen, rows = setting(seed), _rows(seed)
    wrong = np.array([ordinal in chosen.forget for ordinal in chosen.train])
    included, correct = _subsampled(rows, seed, networks)
    estimate = memorisation(included, correct).scores
    halves = [memorisation(included[half::2], correct[half::2]).scores for half in (0, 1)]
    proxy = _proxy(rows, chosen.train, seed)
    return {
        "setting": facts,
        "rows": len(rows),
        "mislabelled": int(wrong.sum()),
        "spearman": {
            "proxy": _spearman(proxy, estimate),
            "proxy_of_rows_labelled_rightly": _spearman(proxy[~wrong], estimate[~wrong]),
            "one_half_and_the_other": _spearman(*halves),
        },
        "auc_of_mislabelled": {"proxy": _auc(proxy, wrong), "memorisation": _auc(estimate, wrong)},
        "highest_shared": _shared(proxy, estimate, int(wrong.sum())),
    }


def timed(facts: dict[str, Any]) -> dict[str, Any]:
    """The row of the cost: of trainings that record nothing and of ones that do, taken in turn."""
    rows = _rows(seed=0)
    seconds: dict[str, list[float]] = {"plain": [], "recorded": []}
    for _ in range(_REPEATS):
        for name, times in seconds.items():
            confidence = Confidence(len(rows), rows.device) if name == "recorded" else None
            started = time.process_time()
            fit(_network(0, 0), Lesson(rows, RECIPE, 0, confidence=confidence), Silent())
            times.append(time.process_time() - started)
    overheads = [recorded / plain - 1 for plain, recorded in zip(*seconds.values(), strict=True)]
    return {"setting": facts, "processor_seconds": seconds, "median_overhead": median(overheads)}


def _rows(seed: int) -> Rows:
    reader = DigitsReader("", SklearnDigits(mislabelled_subjects=MISLABELLED, seed=seed))
    return Rows.of(*load(reader, setting(seed).train, (8, 8, 1)))


def _subsampled(rows: Rows, seed: int, networks: int) -> tuple[BoolArray, BoolArray]:
    included = np.zeros((networks, len(rows)), dtype=bool)
    correct = np.zeros_like(included)
    for number in range(networks):
        places = subset(len(rows), _RATIO, derived_seed(seed, "subset", number))
        included[number, places] = True
        network = _network(seed, number)
        fit(
            network, Lesson(rows.take(torch.from_numpy(places)), RECIPE, derived_seed(seed, number)), Silent()
        )
        correct[number] = hits(network, rows).numpy()
    return included, correct


def _proxy(rows: Rows, ordinals: RowSet, seed: int) -> FloatArray:
    confidence = Confidence(len(rows), rows.device)
    fit(_network(seed, 0), Lesson(rows, RECIPE, seed, confidence=confidence), Silent())
    return scores(confidence.packed(ordinals, RECIPE.epochs), ordinals)


def _network(seed: int, number: int) -> Network:
    return build(BuiltIn(name="small_cnn"), 10, (8, 8, 1), generator(seed, "initialise", number))


def _spearman(one: FloatArray, other: FloatArray) -> float:
    return float(spearmanr(one, other).statistic)


def _auc(found: FloatArray, wrong: BoolArray) -> float:
    return float(mannwhitneyu(found[wrong], found[~wrong]).statistic / (wrong.sum() * (~wrong).sum()))


def _shared(proxy: FloatArray, estimate: FloatArray, size: int) -> float:
    """Which share of so many rows of the highest scores are those of the other, too."""
    one, other = (np.argsort(-found, kind="stable")[:size] for found in (proxy, estimate))
    return len(np.intersect1d(one, other)) / size


def main() -> None:
    """Measure what is not measured yet and print all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--networks", type=int, default=100)
    given = parser.parse_args()
    torch.set_num_threads(1)
    results, recipe = Results("digits_memorisation"), asdict(RECIPE)
    for seed in range(given.seeds):
        facts = {"seed": seed, "networks": given.networks, "ratio": _RATIO, "recipe": recipe}
        if results.of(facts) is None:
            results.add(measured(seed, given.networks, facts))
    if results.of({"recipe": recipe}) is None:
        results.add(timed({"recipe": recipe}))
    for row in results:
        print({name: value for name, value in row.items() if name != "setting"})


if __name__ == "__main__":
    main()
