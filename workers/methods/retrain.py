"""Train again from scratch on the remaining rows."""

from __future__ import annotations

from app.jobs.params import Retrain
from workers.data.seeds import generator
from workers.methods.run import Run
from workers.training.confidence import Confidence
from workers.training.loop import Trace
from workers.training.train import Lesson, fit


def retrain(run: Run, parameters: Retrain) -> Trace:  # noqa: ARG001 - a method without parameters
    """Forget everything and learn R by the recipe: exact unlearning, by definition.

    Leaves behind each row's mean confidence, as every training does.
    """
    run.network.start_afresh(generator(run.seed, "initialise"))
    confidence = Confidence(len(run.retain), run.retain.device)
    lesson = Lesson(run.retain, run.recipe, run.seed, validation=run.validation, confidence=confidence)
    trace = fit(run.network, lesson, run.monitor)
    run.kept["confidence"] = {"confidence": confidence.sums / len(trace.curve)}
    return trace
