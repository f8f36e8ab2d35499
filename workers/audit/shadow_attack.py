"""Attacks that know how the method treats each row: likelihood ratios from shadow networks.

Deep audit, issue 6: "U-LiRA with pooled variance and N shadows". Each of N shadow networks is trained on rows
of its own, then forgets some of them by the very method and settings under audit. So a row was `unlearned` in
some shadows and `out`, never trained on, in others, and its phi has a distribution in either case. A row's
score in the audited network is how much likelier its phi is as unlearned than as out (U-LiRA: Kurmanji et al.
2023, Hayes et al. 2024); positives are F, negatives rows that the audited network never saw. It finds, row by
row, what an attack on the whole set averages away. 8 to 16 shadows are usable if the variance is pooled.

    {"shadow_attack": None |                                              None: not finite, or too few shadows
        {"ulira": None | ATTACK,                                          None: no shadow had rows unlearned
         "offline": ATTACK,                                               `workers.audit.attack`
         "shadows": N, "rows": {"forget", "holdout"},                     rows with a ratio; without any ratio
         "left_out": rows}}                                               those that some never saw

**offline** is the one-sided attack of LiRA (Carlini et al. 2022): how far phi is above what shadows that
never saw the row give it. It needs no unlearned shadows. Published code takes the density instead of the
tail, so that rows forgotten too much score like members; here they score low ("strangers").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm

from workers.audit.attack import attack_figures
from workers.audit.outputs import BoolArray, FloatArray
from workers.audit.statistics import Scores


@dataclass(frozen=True)
class Shadows:
    """phi of the rows of F and H under N shadow networks, and how each row was treated by each.

    Attributes:
        phi: float64 [N, n].
        unlearned: bool [N, n]: trained on and then forgotten.
        out: bool [N, n]: never trained on. A row that is neither was trained on and kept.
    """

    phi: FloatArray
    unlearned: BoolArray
    out: BoolArray

    def __post_init__(self) -> None:
        """Raises ValueError where shapes differ, or a row is unlearned and out in the same shadow."""
        if self.phi.ndim != 2 or not self.phi.shape == self.unlearned.shape == self.out.shape:
            shapes = self.phi.shape, self.unlearned.shape, self.out.shape
            raise ValueError(f"phi, unlearned and out must all be [N, n], not {shapes}")
        if (self.unlearned & self.out).any():
            raise ValueError("a row cannot be forgotten where it was never trained on")


@dataclass(frozen=True)
class Normals:
    """For each row the normal distribution that one more phi of the same kind has.

    Attributes:
        means: float64 [n]; NaN for a row without a shadow of the kind.
        deviations: float64 [n], above 0.
    """

    means: FloatArray
    deviations: FloatArray


def pooled_normals(phi: FloatArray, chosen: BoolArray) -> Normals | None:
    """Means row by row, and one variance from all rows' deviations from their means.

    With k shadows of the kind a row's mean is itself uncertain, so that a new phi differs from it with
    variance s^2 (1 + 1 / k). Published code pools the values instead of the deviations, and so adds how much
    rows differ from each other to how much networks do.

    Args:
        phi: float64 [N, n].
        chosen: bool [N, n]: which shadows count for which row.

    Returns:
        None where the variance cannot be estimated (no row has two shadows of the kind) or is 0.
    """
    counts = chosen.sum(axis=0)
    seen = counts > 0
    means = np.full(phi.shape[1], np.nan)
    means[seen] = np.where(chosen, phi, 0.0).sum(axis=0)[seen] / counts[seen]
    freedom = int((counts[seen] - 1).sum())
    squares = float((np.where(chosen & seen, phi - means, 0.0) ** 2).sum())
    if freedom == 0 or squares == 0:
        return None
    return Normals(means, np.sqrt(squares / freedom * (1 + 1 / np.maximum(counts, 1))))


def log_likelihood_ratios(phi: FloatArray, unlearned: Normals, out: Normals) -> FloatArray:
    """log N(phi; unlearned) - log N(phi; out) of each row: float64 [n]; NaN where a mean is unknown."""
    ratios: FloatArray = norm.logpdf(phi, unlearned.means, unlearned.deviations) - norm.logpdf(
        phi, out.means, out.deviations
    )
    return ratios


def excesses(phi: FloatArray, out: Normals) -> FloatArray:
    """Standard deviations above the mean of networks that never saw the row: float64 [n].

    A monotone form of Pr[out <= phi], which rounds to 1 where the score matters most.
    """
    return (phi - out.means) / out.deviations


def shadow_figures(
    phi: FloatArray, *, is_forget: BoolArray, shadows: Shadows, rng: np.random.Generator
) -> dict[str, Any] | None:
    """Both attacks on F against H, in the layout above.

    Args:
        phi: of the audited network on the rows of F and H, float64 [n].
        is_forget: bool [n]: which rows are F; the others are H.
        shadows: of the same rows. Rows that no shadow had unlearned, or none had out, are left out.
    """
    if not (np.isfinite(phi).all() and np.isfinite(shadows.phi).all()):
        return None
    out = pooled_normals(shadows.phi, shadows.out)
    if out is None:
        return None
    unlearned = pooled_normals(shadows.phi, shadows.unlearned)
    above = excesses(phi, out)
    ratios = None if unlearned is None else log_likelihood_ratios(phi, unlearned, out)
    sides = _sides(above if ratios is None else ratios, is_forget)
    if ratios is not None and sides is None:
        ratios, sides = None, _sides(above, is_forget)
    if sides is None:
        return None
    forget, holdout = sides
    return {
        "ulira": None if ratios is None else attack_figures(Scores(ratios[forget], ratios[holdout]), rng=rng),
        "offline": attack_figures(Scores(above[forget], above[holdout]), rng=rng),
        "shadows": len(shadows.phi),
        "rows": {"forget": int(forget.sum()), "holdout": int(holdout.sum())},
        "left_out": len(phi) - int(forget.sum()) - int(holdout.sum()),
    }


def _sides(scores: FloatArray, is_forget: BoolArray) -> tuple[BoolArray, BoolArray] | None:
    """Which rows of F and which of H have a score; None where one of the two has none."""
    known = np.isfinite(scores)
    forget, holdout = known & is_forget, known & ~is_forget
    return (forget, holdout) if forget.any() and holdout.any() else None
