"""What the audit must say of each known truth, written down before any is run, with the reason.

A canary is a training row whose label is wrong, so that a network can only learn it by heart: the audit has
all the power it can have. An ordinary row is one like all others, which a network may well know without ever
having seen it: then the audit can find little, and must say no more than that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Truth = Literal[
    "honest_retrain",
    "untouched_original",
    "finetune",
    "over_forgetting",
    "head_only",
    "look_up_table",
    "random_labels",
]
Kind = Literal["canaries", "ordinary"]
Verdict = Literal["pass", "fail", "inconclusive", "not_valid"]

TRUTHS: Final[tuple[Truth, ...]] = (
    "honest_retrain",
    "untouched_original",
    "finetune",
    "over_forgetting",
    "head_only",
    "look_up_table",
    "random_labels",
)
MANY: Final = 100  # so many canaries are enough to find what there is
_FAILS: Final[frozenset[Verdict]] = frozenset({"fail"})
_OPEN: Final[frozenset[Verdict]] = frozenset({"inconclusive"})
_NOT_PASSED: Final[frozenset[Verdict]] = frozenset({"fail", "inconclusive"})
_NOT_FAILED: Final[frozenset[Verdict]] = frozenset({"pass", "inconclusive"})


@dataclass(frozen=True)
class Expectation:
    """The verdicts that are right, why, and whether the network may be published without a person's word.

    It may not be by the rule `passed`, nor by the default rule `not_failed`, unless `publishable`.
    """

    verdicts: frozenset[Verdict]
    reason: str
    publishable: bool = False


_MANY_CANARIES: Final[dict[Truth, Expectation]] = {
    "honest_retrain": Expectation(
        _NOT_FAILED,
        "It never saw the rows. Fewer than some 570 cannot show that it is within the margins, so it is "
        "inconclusive, and a fail would be a false alarm.",
        publishable=True,
    ),
    "untouched_original": Expectation(_FAILS, "It knows the rows by heart, and nothing was done about it."),
    "finetune": Expectation(
        _FAILS, "A few steps of training at a small rate leave what was learned by heart where it is."
    ),
    "over_forgetting": Expectation(
        _FAILS, "It is surer of the rows' being wrong than any network that never saw them."
    ),
    "head_only": Expectation(
        _FAILS,
        "Only the last layer imitates a retrained network: the features still know the rows, and a new last "
        "layer, or a few steps of training, brings them back.",
    ),
    "look_up_table": Expectation(
        _FAILS,
        "It answers for each row what a retrained network would say, from a table around the original: the "
        "module is not the architecture's, and noise on the images gets past the table.",
    ),
    "random_labels": Expectation(
        _FAILS,
        "It was trained to give the rows random labels: the features had to learn the rows to do so, and it "
        "treats them unlike any retrained network.",
    ),
}
_FEW_ROWS: Final[dict[Truth, Expectation]] = {
    "honest_retrain": Expectation(
        _NOT_FAILED, "It never saw the rows; so few of them can show nothing.", publishable=True
    ),
    "look_up_table": Expectation(
        _FAILS, "The module around the network is seen, however few rows the table holds."
    ),
}
_FEW_OTHERS: Final = Expectation(
    _NOT_PASSED, "So few rows may be too few to find what is there, but they can never show that it is gone."
)
_ORDINARY_OTHERS: Final = Expectation(
    _NOT_PASSED,
    "A network may know such rows without having seen them, so there may be nothing to find; but then the "
    "audit has no power, or does not find less than before, and nothing is published.",
)


def expectation(truth: Truth, kind: Kind, rows: int) -> Expectation:
    """What is right for a truth, with so many rows of this kind to forget."""
    if kind == "canaries" and rows >= MANY:
        return _MANY_CANARIES[truth]
    if truth in _FEW_ROWS:
        return _FEW_ROWS[truth]
    if truth == "untouched_original" or kind == "canaries":
        return _FEW_OTHERS
    return _ORDINARY_OTHERS
