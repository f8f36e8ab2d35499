"""The whole gate, from outputs to verdict, on made-up networks of which it is known what they remember."""

from __future__ import annotations

import numpy as np
import pytest

from app.jobs.policies import Thresholds
from app.reports.verdict import Judgement, Verdict, judge
from workers.audit.figures import audit_figures
from workers.audit.outputs import Networks, Outputs, SetName, Sets

SIZES: dict[SetName, int] = {"retain": 1200, "forget": 600, "holdout": 800, "test": 1000}


class World:
    """Rows that some networks find harder than others, and networks that differ by their seeds."""

    def __init__(self, seed: int, *, scale: int = 1, noise: float = 0.4) -> None:
        self.noise = noise
        self.rng = np.random.default_rng(seed)
        self.labels = {name: self.rng.integers(0, 4, scale * size) for name, size in SIZES.items()}
        self.ease = {name: self.rng.normal(2.0, 2.0, scale * size) for name, size in SIZES.items()}

    def network(self, **gain: float) -> Sets:
        """Logits that favour the label by the row's ease, and by `gain` on the sets it was trained on."""
        sets: dict[SetName, Outputs] = {}
        for name, labels in self.labels.items():
            logits = self.noise * self.rng.normal(size=(len(labels), 4))
            logits[np.arange(len(labels)), labels] += self.ease[name] + gain.get(name, 0.0)
            sets[name] = Outputs(logits, labels)
        return sets


def verdict_on(
    world: World, unlearned: Sets, *, with_reference: bool = True, forget: float = 8.0
) -> Judgement:
    references = (world.network(retain=8.0),) if with_reference else ()
    networks = Networks(world.network(retain=8.0, forget=forget), unlearned, references)
    figures = audit_figures(networks, holdout_match="subject", seed=1)
    return judge(figures, Thresholds())


@pytest.mark.parametrize(
    ("gain", "says"),
    [
        ({"retain": 8.0, "forget": 8.0}, "still be recognised"),
        ({"retain": 8.0, "forget": 1.5}, "still be recognised"),
        ({"retain": 8.0, "forget": -3.0}, "stand out"),
        ({"retain": 8.0, "test": -1.0, "holdout": -1.0, "forget": -1.0}, "new rows"),
        ({"retain": 0.0}, "remaining rows"),
    ],
    ids=["nothing done", "half forgotten", "over-forgotten", "spoilt", "retained rows forgotten"],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_fakes_fail(gain: dict[str, float], says: str, seed: int) -> None:
    """Each way of not forgetting, or of breaking the network, is found and named."""
    world = World(seed)
    judgement = verdict_on(world, world.network(**gain))
    assert judgement.verdict is Verdict.FAIL
    assert says in judgement.sentence


def test_exact_retrains_are_not_failed() -> None:
    """Of 20 networks that never saw F, none fails at this size."""
    verdicts = []
    for seed in range(20):
        world = World(seed)
        verdicts.append(verdict_on(world, world.network(retain=8.0)).verdict)
    assert Verdict.FAIL not in verdicts


def test_an_exact_retrain_passes_once_there_are_rows_enough() -> None:
    """The number of rows that an inconclusive audit asks for is about the number that passes."""
    small = World(3, noise=1.2)
    judgement = verdict_on(small, small.network(retain=8.0))
    large = World(3, scale=3, noise=1.2)
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.decides_at is not None
    assert SIZES["forget"] < judgement.decides_at < 3 * SIZES["forget"]
    assert verdict_on(large, large.network(retain=8.0)).verdict is Verdict.PASS


def test_without_memory_there_is_nothing_to_find() -> None:
    """If the original never learned F by heart, the audit has no power and says so."""
    world = World(4)
    judgement = verdict_on(world, world.network(retain=8.0), forget=0.0)
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert any("does not detect even the original" in reason for reason in judgement.reasons)


def test_without_a_reference_the_attack_alone_can_fail() -> None:
    """A network that still knows F fails without any retraining; one that never saw it stays open."""
    world = World(5)
    remembers = verdict_on(world, world.network(retain=8.0, forget=8.0), with_reference=False)
    forgot = verdict_on(world, world.network(retain=8.0), with_reference=False)
    assert (remembers.verdict, forgot.verdict) == (Verdict.FAIL, Verdict.INCONCLUSIVE)
