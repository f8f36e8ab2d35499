"""Methods by name: one line each; their parameters, costs and sources are in `app.jobs.params.METHODS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from workers.methods.finetune import finetune
from workers.methods.neggrad import neggrad
from workers.methods.retrain import retrain
from workers.methods.run import Run
from workers.methods.sharp_minmax import sharp_minmax
from workers.training.loop import Trace

METHODS: Mapping[str, Callable[[Run, Any], Trace]] = {
    "retrain": retrain,
    "finetune": finetune,
    "neggrad": neggrad,
    "sharp_minmax": sharp_minmax,
}
