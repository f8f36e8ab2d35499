"""Methods by name: one line each; their parameters, costs and sources are in `app.jobs.params.METHODS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from workers.methods.finetune import finetune
from workers.methods.fisher_forgetting import fisher_forgetting
from workers.methods.gradient_ascent import gradient_ascent
from workers.methods.gradient_reversal import gradient_reversal
from workers.methods.influence import influence
from workers.methods.l1_sparse import l1_sparse
from workers.methods.neggrad import neggrad
from workers.methods.random_label import random_label, salun
from workers.methods.retrain import retrain
from workers.methods.run import Run
from workers.methods.scrub import scrub
from workers.methods.sharp_minmax import sharp_minmax
from workers.training.loop import Trace

METHODS: Mapping[str, Callable[[Run, Any], Trace]] = {
    "retrain": retrain,
    "finetune": finetune,
    "gradient_ascent": gradient_ascent,
    "neggrad": neggrad,
    "random_label": random_label,
    "salun": salun,
    "l1_sparse": l1_sparse,
    "scrub": scrub,
    "influence": influence,
    "fisher_forgetting": fisher_forgetting,
    "gradient_reversal": gradient_reversal,
    "sharp_minmax": sharp_minmax,
}
