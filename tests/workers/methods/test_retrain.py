from __future__ import annotations

from collections.abc import Callable

import torch

from app.jobs.params import BuiltIn, Retrain
from workers.data.seeds import generator
from workers.methods.retrain import retrain
from workers.methods.run import Run
from workers.monitor import Silent
from workers.nets.factory import build
from workers.training.confidence import Confidence
from workers.training.train import Lesson, fit


def test_it_is_training_from_scratch_on_the_rows_to_keep(start: Callable[..., Run]) -> None:
    """Nothing of the original is left: the result is that of a new network trained on R, bit for bit."""
    run = start()
    trace = retrain(run, Retrain())
    fresh = build(BuiltIn(width=0.5), 10, (8, 8, 1), generator(run.seed, "initialise"))
    expected = fit(fresh, Lesson(run.retain, run.recipe, run.seed), Silent())
    for name, tensor in run.network.state_dict().items():
        assert torch.equal(tensor, fresh.state_dict()[name]), name
    assert trace.passes == expected.passes


def test_it_leaves_confidences_behind(start: Callable[..., Run]) -> None:
    """Those that a training records, as means over the epochs."""
    run = start()
    retrain(run, Retrain())
    fresh = build(BuiltIn(width=0.5), 10, (8, 8, 1), generator(run.seed, "initialise"))
    confidence = Confidence(len(run.retain), run.retain.device)
    fit(fresh, Lesson(run.retain, run.recipe, run.seed, confidence=confidence), Silent())
    assert torch.equal(run.kept["confidence"]["confidence"], confidence.sums / run.recipe.epochs)
