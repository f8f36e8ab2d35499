"""The deep audit's composition: every reference counts, and None means unmeasured."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from workers.audit.calibration import Referenced, held_out
from workers.audit.deep import deep_figures, over_all
from workers.audit.outputs import Networks, Sets
from workers.audit.statistics import Scores, auc
from workers.audit.tug_of_war import Accuracies, average_gap, tug_of_war

MakeNetwork = Callable[..., Sets]
Vary = Callable[[Sets], Sets]


@pytest.fixture
def networks(make_network: MakeNetwork, vary: Vary) -> Networks:
    references = tuple(vary(make_network(seed, retain=9.0)) for seed in (3, 4, 5))
    original = vary(make_network(1, retain=9.0, forget=4.0))
    return Networks(original, vary(make_network(2, retain=9.0)), references)


def test_all_references_count(networks: Networks) -> None:
    """The centred attack is on phi less the mean of all; the original is found and a retrained one is not."""
    figures = deep_figures(networks, seed=3)
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures
    forget, holdout = (
        Referenced.of(networks.original, networks.references, place) for place in ("forget", "holdout")
    )
    assert forget is not None
    assert holdout is not None
    expected = auc(Scores(forget.centred, holdout.centred))
    assert figures["calibrated"]["original"]["centred"]["auc"] == expected
    assert figures["calibrated"]["original"]["centred"]["low"] > 0.8
    unlearned = figures["calibrated"]["unlearned"]
    assert unlearned["centred"]["low"] < 0.5 < unlearned["centred"]["high"]
    assert figures["rmia"]["original"]["references"] == 3
    assert figures["divergence"]["unlearned"]["forget"]["references"] == 3


def test_noise_is_calibrated_by_noisy_references(networks: Networks) -> None:
    """What the references say of noisy images; where one was not asked, nothing is said."""
    figures = deep_figures(networks, seed=3)
    assert figures["calibrated_noisy"]["original"]["centred"]["low"] > 0.8
    mute: Sets = {name: part for name, part in networks.references[0].items() if name != "forget_noisy"}
    without = replace(networks, references=(mute, *networks.references[1:]))
    assert deep_figures(without, seed=3)["calibrated_noisy"]["unlearned"] is None


def test_the_spread_has_its_own_usual_range(networks: Networks) -> None:
    """Each reference's distance from the others, F against H, as areas."""
    found = deep_figures(networks, seed=3)["calibrated"]["unlearned"]["held_out_spread"]
    rows = [Referenced.of(networks.unlearned, networks.references, place) for place in ("forget", "holdout")]
    assert rows[0] is not None
    assert rows[1] is not None
    assert found == held_out(rows[0], rows[1], of=np.abs)
    models = [part.references for part in (rows[0], rows[1])]
    distance = [np.abs(part[0] - part[1:].mean(axis=0)) for part in models]
    assert found["aucs"][0] == pytest.approx(auc(Scores(distance[0], distance[1])), abs=1e-12)


def test_two_references_have_no_usual_spread(networks: Networks) -> None:
    """Each is as far from the other as the other from it: that range would have no width."""
    two = replace(networks, references=networks.references[:2])
    found = deep_figures(two, seed=3)["calibrated"]["unlearned"]
    assert found["held_out_spread"] is None
    assert found["held_out"] is not None


def test_the_improvement_is_paired(networks: Networks) -> None:
    """The unlearned network's centred area less the original's; nothing of a network left as it was."""
    found = deep_figures(networks, seed=3)
    areas = [found["calibrated"][name]["centred"]["auc"] for name in ("unlearned", "original")]
    assert found["calibrated_difference"]["difference"] == pytest.approx(areas[0] - areas[1], abs=1e-12)
    assert found["calibrated_difference"]["high"] < 0
    untouched = deep_figures(replace(networks, unlearned=networks.original), seed=3)
    assert untouched["calibrated_difference"]["difference"] == 0
    assert untouched["calibrated_difference"]["high"] >= 0


def test_without_references(networks: Networks) -> None:
    """Nothing to compare with, nothing made up."""
    figures = deep_figures(Networks(networks.original, networks.unlearned), seed=3)
    assert figures.pop("calibrated_difference") is None
    flat = [value for part in figures.values() for value in part.values()]
    assert all(value in (None, {"forget": None, "holdout": None}) for value in flat)


def test_scores_over_all_references() -> None:
    """The mean over the references of each score, and their accuracies in order."""
    one, two = (Accuracies(forget=f, retain=1.0, test=0.8, called_non_member=0.5) for f in (0.8, 0.6))
    original = Accuracies(forget=1.0, retain=1.0, test=0.8, called_non_member=0.1)
    found = over_all({"original": original, "unlearned": one, "reference": one}, [two])
    scores = [tug_of_war(original, each) for each in (one, two)]
    assert found["over_references"]["tug_of_war"]["original"]["mean"] == pytest.approx(np.mean(scores))
    gaps = [average_gap(one, each) for each in (one, two)]
    assert found["over_references"]["average_gap"]["unlearned"]["mean"] == pytest.approx(
        np.mean([gap or 0 for gap in gaps])
    )
    assert found["references"]["n"] == 2
    assert [each["forget"] for each in found["references"]["accuracy"]] == [0.8, 0.6]
    unknown = over_all({"original": original, "unlearned": None, "reference": one}, [])
    assert unknown["over_references"]["tug_of_war"] is None
