"""How hard to forget: measured gradients and a few short runs, for whoever has to choose alpha and a mask."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from app.jobs.params import NegGrad, Precision, SharpMinMax
from workers.data.batches import Rows, RowSource
from workers.methods.masks import extreme
from workers.methods.neggrad import neggrad
from workers.methods.run import Run
from workers.methods.sharp_minmax import sharp_minmax
from workers.monitor import Monitor, Silent
from workers.training import multi_tensor
from workers.training.gradients import Differentiable, Forward
from workers.training.loop import Diverged, Trace

ALPHAS: Final = (0.5, 0.7, 0.8, 0.9, 0.95)
MASK_FRACTIONS: Final = (0.05, 0.1, 0.3, 0.5)
_ROWS = 512  # of R and of F that gradients are taken over
_BATCH_ROWS = 256
_READINGS = 2


@dataclass(frozen=True)
class Balance:
    """The mean gradients of CE(R) and CE(F) at the original weights, one tensor a weight."""

    retain: list[Tensor]
    forget: list[Tensor]

    def ratio(self, alpha: float) -> float:
        """|alpha grad R| / |(1 - alpha) grad F|: how much harder the first step keeps than it forgets."""
        lengths = [float(multi_tensor.norm(part)) for part in (self.retain, self.forget)]
        return alpha * lengths[0] / max((1 - alpha) * lengths[1], 1e-12)

    @property
    def cosine(self) -> float:
        """Of the angle between them: near 1, what forgets F forgets R."""
        product = sum((a * b).sum() for a, b in zip(self.retain, self.forget, strict=True))
        lengths = multi_tensor.norm(self.retain) * multi_tensor.norm(self.forget)
        return float(product / lengths.clamp(min=1e-12))

    @property
    def even_alpha(self) -> float:
        """The alpha at which both pull alike."""
        retain, forget = (float(multi_tensor.norm(part)) for part in (self.retain, self.forget))
        return forget / max(retain + forget, 1e-12)

    def captured(self, fraction: float) -> tuple[float, float]:
        """The shares of |grad F|^2 and of |grad R|^2 that the top mask of this size holds."""
        mask = extreme([part.abs() for part in self.forget], fraction=fraction, largest=True)
        forget, retain = (
            float(multi_tensor.norm(multi_tensor.multiply(part, mask)) / multi_tensor.norm(part)) ** 2
            for part in (self.forget, self.retain)
        )
        return forget, retain


def probe(run: Run, *, steps: int, precision: Precision = "auto") -> dict[str, Any]:
    """Measure the balance of the gradients, then run NegGrad+ and Sharp MinMax for a few steps each.

    The network is as it was afterwards. Alphas are tried by NegGrad+, mask fractions by Sharp MinMax at the
    alpha that scored best. A trial's score is the judge's, of its better reading; without validation rows
    there is none, nothing is tried, and the even alpha is recommended.

    Returns:
        {"gradients": {"retain", "forget", "cosine", "even_alpha"},
         "alphas": [{"alpha", "ratio", "score", "forget", "retain", "validation"}],
         "mask_fractions": [{"mask_fraction", "forget_share", "retain_share", "score", ...}],
         "recommended": {"alpha", "mask_fraction"}, "target", "reasons": [text], "passes", "seconds"}
    """
    started = time.perf_counter()
    run.network.eval()
    model = Differentiable(run.network)
    balance = Balance(_mean_gradient(model, run.retain), _mean_gradient(model, run.forget))
    trials = _Trials(run, steps)
    alphas = [
        {"alpha": alpha, "ratio": balance.ratio(alpha)}
        | trials.of(NegGrad(steps=steps, alpha=alpha, precision=precision, readings=_READINGS))
        for alpha in ALPHAS
    ]
    alpha = _best(alphas, "alpha", balance.even_alpha)
    masks = []
    for fraction in MASK_FRACTIONS:
        shares = dict(zip(("forget_share", "retain_share"), balance.captured(fraction), strict=True))
        parameters = SharpMinMax(
            steps=steps,
            alpha=min(max(alpha, 0.01), 1.0),
            mask_fraction=fraction,
            precision=precision,
            readings=_READINGS,
        )
        masks.append({"mask_fraction": fraction, **shares, **trials.of(parameters)})
    found = {
        "gradients": {
            "retain": float(multi_tensor.norm(balance.retain)),
            "forget": float(multi_tensor.norm(balance.forget)),
            "cosine": balance.cosine,
            "even_alpha": balance.even_alpha,
        },
        "alphas": alphas,
        "mask_fractions": masks,
        "recommended": {
            "alpha": alpha,
            "mask_fraction": _best(masks, "mask_fraction", SharpMinMax().mask_fraction),
        },
        "target": trials.target,
    }
    return found | {
        "reasons": reasons(found, steps),
        "passes": model.passes + trials.passes,
        "seconds": time.perf_counter() - started,
    }


class _Trials:
    """Short runs of methods, each from the original weights."""

    def __init__(self, run: Run, steps: int) -> None:
        self.passes = 0
        self.target: float | None = None
        self._run = run
        self._steps = steps
        self._origin = {name: tensor.clone() for name, tensor in run.network.state_dict().items()}

    def of(self, parameters: NegGrad | SharpMinMax) -> dict[str, Any]:
        """The best reading of a trial; Nones if nothing can be judged, a score of 0 if it diverged."""
        names = ("score", "forget", "retain", "validation")
        if self._run.validation is None or not len(self._run.validation):
            return dict.fromkeys(names)
        monitor = _Passing(self._run.monitor)
        trial = replace(self._run, monitor=monitor, kept={}, judged={}, started=time.perf_counter())
        method: Callable[[Run, Any], Trace] = neggrad if isinstance(parameters, NegGrad) else sharp_minmax
        try:
            self.passes += method(trial, parameters).passes
        except Diverged:
            return dict.fromkeys(names) | {"score": 0.0}
        finally:
            self._put_back()
        judged: Mapping[str, Any] = trial.judged
        if not judged:
            return dict.fromkeys(names)
        self.target = judged["target"]
        best = max(judged["readings"][1:], key=lambda reading: reading["score"])
        return {name: best[name] for name in names}

    @torch.no_grad()
    def _put_back(self) -> None:
        for name, tensor in self._run.network.state_dict().items():
            tensor.copy_(self._origin[name])


class _Passing(Silent):
    """A trial can be cancelled, but it is too short to be resumed."""

    def __init__(self, monitor: Monitor) -> None:
        super().__init__()
        self._monitor = monitor

    def progress(self, phase: str, done: int, total: int, **figures: float) -> None:
        self._monitor.progress(f"probe: {phase}", done, total, **figures)

    def check_cancelled(self) -> None:
        self._monitor.check_cancelled()

    def save_checkpoint(self, content: bytes) -> None:
        """Keep none."""


def _best(trials: list[dict[str, Any]], name: str, otherwise: float) -> float:
    scored = [trial for trial in trials if trial["score"] is not None]
    return float(max(scored, key=lambda trial: trial["score"])[name]) if scored else otherwise


def _mean_gradient(model: Differentiable, rows: RowSource) -> list[Tensor]:
    """Of CE over the first rows, in evaluation mode."""
    places = torch.arange(min(len(rows), _ROWS), device=rows.index_device)
    total = [torch.zeros_like(weight) for weight in model.weights]
    for batch in rows.in_order(_BATCH_ROWS, places):

        def loss(forward: Forward, batch: Rows = batch) -> Tensor:
            return functional.cross_entropy(forward(batch.images), batch.labels, reduction="sum")

        multi_tensor.add_(total, model.gradient(loss), 1 / len(places))
    return total


def reasons(found: Mapping[str, Any], steps: int) -> list[str]:
    """What was measured and what follows from it, in words."""
    gradients, recommended = found["gradients"], found["recommended"]
    lengths = f"{gradients['retain']:.3g} long and that of F {gradients['forget']:.3g}"
    said = [
        f"At the original weights the mean gradient of R is {lengths}.",
        f"At alpha {gradients['even_alpha']:.2f} they would pull alike.",
        f"The cosine between them is {gradients['cosine']:.2f}: the nearer to 1, the more of R goes with F.",
    ]
    scored = [trial for trial in found["alphas"] if trial["score"] is not None]
    if not scored:
        return [*said, "There are too few validation rows to score trials by: the even alpha is recommended."]
    chosen = next(trial for trial in scored if trial["alpha"] == recommended["alpha"])
    mask = next(t for t in found["mask_fractions"] if t["mask_fraction"] == recommended["mask_fraction"])
    tried = f"Of {len(scored)} alphas tried for {steps} steps, {chosen['alpha']} scored best"
    sizes = f"Of {len(found['mask_fractions'])} mask sizes, {mask['mask_fraction']:.0%} scored best"
    held = f"{mask['forget_share']:.0%} of F's squared gradient and {mask['retain_share']:.0%} of R's"
    return [
        *said,
        f"{tried} ({chosen['score']:.3f}): first, R pulls {chosen['ratio']:.3g} times as hard as F.",
        f"{sizes} ({mask['score']:.3f}): the mask holds {held}.",
        "A few steps show the direction, not the end: a method judges its own course when it runs.",
    ]
