"""The fast audit's further figures: each from its own function, and on the same rows."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from workers.audit.attack import auc_figures
from workers.audit.by_class import accuracy_by_class
from workers.audit.controls import retained_figures
from workers.audit.fast import Looks, fast_figures, rounded_figures
from workers.audit.membership import margin_scores
from workers.audit.outputs import Networks, Outputs, Sets
from workers.audit.statistics import excess_of_gaps

MakeNetwork = Callable[..., Sets]
Vary = Callable[[Sets], Sets]


@pytest.fixture
def networks(make_network: MakeNetwork, vary: Vary) -> Networks:
    original = vary(make_network(1, retain=9.0, forget=9.0))
    references = tuple(vary(make_network(seed, retain=9.0)) for seed in (3, 4))
    return Networks(original, vary(make_network(2, retain=9.0)), references)


def test_each_comes_from_its_own_function(networks: Networks) -> None:
    """Every network by its name; nothing that is not JSON."""
    figures = fast_figures(networks, looks=None, seed=3)
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures
    assert figures["accuracy_by_class"]["reference"]["test"] == accuracy_by_class(
        networks.references[0]["test"]
    )
    assert set(figures["customary"]) == set(networks.named)
    assert figures["blind"] is None
    again = retained_figures(networks.original, networks.unlearned, rng=np.random.default_rng((3, 2)))
    assert figures["retained"] == again


def test_the_attack_on_noisy_images_sees_those_answers(networks: Networks) -> None:
    """A network that knows F only undisturbed is found by the attack and not by this one."""
    table = {**networks.original, "forget_noisy": networks.references[0]["forget"]}
    figures = fast_figures(Networks(table, networks.unlearned), looks=None, seed=3)
    expected = margin_scores({"forget": table["forget_noisy"], "holdout": table["holdout_noisy"]})
    assert expected is not None
    assert figures["noisy"]["original"] == auc_figures(expected)
    assert figures["noisy"]["original"]["high"] < 0.7


def test_rounding_that_brings_memory_back_is_an_excess(networks: Networks) -> None:
    """Accuracies are counted; the excess is that of the gaps over both references."""
    recovered = Networks(
        networks.original,
        {**networks.unlearned, "forget_int4": networks.original["forget"]},
        networks.references,
    )
    found = rounded_figures(recovered, "int4")
    assert found is not None
    right = int(recovered.unlearned["forget_int4"].correct.sum())
    assert (found["unlearned"]["forget"]["correct"], found["unlearned"]["forget"]["n"]) == (right, 80)
    own = recovered.unlearned["forget_int4"].correct, recovered.unlearned["holdout_int4"].correct
    others = [
        np.array([sets[place].correct for sets in networks.references])
        for place in ("forget_int4", "holdout_int4")
    ]
    assert found["excess"] == excess_of_gaps(own, (others[0], others[1])).figures
    assert found["excess"]["low90"] > 0.2
    honest = rounded_figures(networks, "int4")
    assert honest is not None
    assert honest["excess"]["low90"] < 0.1


def test_without_a_reference_or_measurement(networks: Networks) -> None:
    """No excess without a reference; nothing at all where a condition was not measured."""
    alone = rounded_figures(Networks(networks.original, networks.unlearned), "int8")
    assert alone is not None
    assert alone["excess"] is None
    unmeasured: Sets = {name: part for name, part in networks.unlearned.items() if name != "forget_int8"}
    assert rounded_figures(Networks(networks.original, unmeasured), "int8") is None


def test_the_blind_attack_gets_the_rows_of_the_matched_holdout(networks: Networks) -> None:
    """F that looks unlike H is told apart without a network."""
    rng = np.random.default_rng(1)
    looks = Looks(rng.normal(1.5, 1.0, (80, 3)), rng.normal(0.0, 1.0, (160, 3)))
    blind = fast_figures(networks, looks=looks, seed=3)["blind"]
    assert blind["low"] > 0.7
    assert (blind["forget"], blind["holdout"]) == (80, 160)
    np.testing.assert_array_equal(looks.take(np.array([4, 2])).holdout, looks.holdout[[4, 2]])


def test_a_diverged_network_stops_only_its_own_attacks(networks: Networks) -> None:
    """Rows without finite logits leave the others' figures as they were."""
    broken = networks.unlearned["forget_noisy"]
    logits = broken.logits.copy()
    logits[0] = np.nan
    damaged = {**networks.unlearned, "forget_noisy": Outputs(logits, broken.labels)}
    before = fast_figures(networks, looks=None, seed=3)["noisy"]
    after = fast_figures(Networks(networks.original, damaged, networks.references), looks=None, seed=3)[
        "noisy"
    ]
    assert after == {**before, "unlearned": None}
