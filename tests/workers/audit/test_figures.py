"""The figures as a whole: counts by hand, every part from its own function, and nothing that is not JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from workers.audit.figures import SVC_DIRECTION, Networks, audit_figures
from workers.audit.matching import match_holdout
from workers.audit.membership import margin_scores
from workers.audit.outputs import Outputs, SetName, Sets
from workers.audit.statistics import auc, auc_interval, auc_p_value, paired_accuracy, paired_delong, wilson

MakeNetwork = Callable[..., Sets]


@pytest.fixture
def networks(make_network: MakeNetwork) -> dict[str, Sets]:
    """An original that knows its rows by heart, one that forgot some of it, and one that never saw them."""
    return {
        "original": make_network(1, retain=9.0, forget=9.0, holdout=1.0, test=2.0),
        "unlearned": make_network(2, retain=8.0, forget=1.5, holdout=1.0, test=2.0),
        "reference": make_network(3, retain=9.0, forget=1.0, holdout=1.0, test=2.0),
    }


@pytest.fixture
def figures(networks: dict[str, Sets]) -> dict[str, Any]:
    return measure(networks)


def measure(networks: dict[str, Sets], *further: Sets, **changed: Any) -> dict[str, Any]:
    references = [networks["reference"], *further] if "reference" in networks else []
    measured = Networks(networks["original"], networks["unlearned"], tuple(references))
    return audit_figures(measured, **{"holdout_match": "class", "seed": 5, **changed})


def with_set(sets: Sets, name: SetName, outputs: Outputs) -> Sets:
    return {**sets, name: outputs}


def test_layout(figures: dict[str, Any]) -> None:
    """Every key of the documented layout is there, for every network, and it survives JSON."""
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures
    names = {"original", "unlearned", "reference"}
    for part in ("accuracy", "membership", "not_finite"):
        assert set(figures[part]) == names
    assert set(figures["svc_confidence"]) == {*names, "direction", "members", "non_members"}
    assert set(figures["differences"]) == {"original", "reference"}
    for differences in figures["differences"].values():
        assert set(differences) == {"forget", "retain", "test", "membership"}
        for difference in differences.values():
            assert set(difference) == {"difference", "low", "high", "low90", "high90", "p"}
    assert set(figures["membership"]["original"]) == {
        *("auc", "low", "high", "low90", "high90", "p", "reversed_auc"),
        *("permutation_p", "ks", "tpr_at_fpr"),
    }
    assert set(figures["tug_of_war"]) == {"absolute", "normalised", "signed", "doing_nothing"}
    assert set(figures["reference_utility"]) == {"retain", "test"}


def test_sets_and_holdout(networks: dict[str, Sets], figures: dict[str, Any]) -> None:
    """The numbers of rows are those measured; the holdout's is that after matching, with its distance."""
    match = match_holdout(networks["original"], seed=5)
    assert figures["sets"] == {"retain": 600, "forget": 80, "holdout": len(match.rows), "test": 200}
    assert 50 < len(match.rows) < 160
    assert figures["holdout"] == {
        "match": "class",
        "n": len(match.rows),
        "class_distance": match.distance,
        "exchangeable": False,
    }
    assert measure(networks, holdout_match="subject")["holdout"]["exchangeable"] is True


def test_accuracies_are_counted(networks: dict[str, Sets], figures: dict[str, Any]) -> None:
    """Each accuracy is the count of rows whose largest logit is the label's, with Wilson's interval."""
    for name, sets in networks.items():
        for set_name in ("retain", "forget", "test"):
            outputs = sets[set_name]
            best = [max(range(5), key=row.__getitem__) for row in outputs.logits.tolist()]
            correct = sum(a == b for a, b in zip(best, outputs.labels.tolist(), strict=True))
            found = figures["accuracy"][name][set_name]
            assert (found["correct"], found["n"]) == (correct, len(outputs))
            assert found["rate"] == correct / len(outputs)
            assert (found["low"], found["high"]) == wilson(correct, len(outputs))


def test_membership_uses_the_same_matched_rows(networks: dict[str, Sets], figures: dict[str, Any]) -> None:
    """AUC, intervals and p are those of the margins of F and of the matched H, in both directions."""
    match = match_holdout(networks["original"], seed=5)
    for name, sets in networks.items():
        scores = margin_scores(match.applied_to(sets))
        assert scores is not None
        found = figures["membership"][name]
        assert found["auc"] == auc(scores)
        assert found["reversed_auc"] == pytest.approx(1 - found["auc"], abs=1e-15)
        assert (found["low"], found["high"]) == auc_interval(scores)
        assert (found["low90"], found["high90"]) == auc_interval(scores, 0.1)
        assert found["p"] == auc_p_value(scores)


def test_differences_are_unlearned_minus_the_other(
    networks: dict[str, Sets], figures: dict[str, Any]
) -> None:
    """Paired on the same rows, and the reference is compared with the original for its own usefulness."""
    match = match_holdout(networks["original"], seed=5)
    unlearned = networks["unlearned"]
    for name in ("original", "reference"):
        other = networks[name]
        expected = paired_accuracy(unlearned["forget"].correct, other["forget"].correct)
        found = figures["differences"][name]["forget"]
        assert (found["difference"], found["low90"], found["p"]) == (
            *(expected.difference, expected.low90, expected.p),
        )
        pair = [margin_scores(match.applied_to(sets)) for sets in (unlearned, other)]
        assert pair[0] is not None
        assert pair[1] is not None
        assert figures["differences"][name]["membership"]["high"] == paired_delong(pair[0], pair[1]).high
    utility = paired_accuracy(networks["reference"]["test"].correct, networks["original"]["test"].correct)
    assert figures["reference_utility"]["test"]["difference"] == utility.difference


def test_attacks_tell_the_networks_apart(figures: dict[str, Any]) -> None:
    """The original is detected, the reference is not, and the confidence attack says its direction."""
    assert figures["membership"]["original"]["low"] > 0.9
    assert figures["membership"]["reference"]["low"] < 0.5 < figures["membership"]["reference"]["high"]
    svc = figures["svc_confidence"]
    assert svc["direction"] == SVC_DIRECTION
    assert (svc["members"], svc["non_members"]) == (200, 200)
    assert svc["original"]["rate"] < 0.4 < svc["reference"]["rate"]
    assert svc["original"]["called_non_member"] == round(svc["original"]["rate"] * 80)


def test_summaries_follow_from_the_accuracies(figures: dict[str, Any]) -> None:
    """ToW and Avg. Gap recomputed from the rates in the figures themselves."""
    rates = {n: {s: part["rate"] for s, part in sets.items()} for n, sets in figures["accuracy"].items()}

    def score(name: str) -> float:
        gaps = [abs(rates[name][s] - rates["reference"][s]) for s in ("forget", "retain", "test")]
        return float(np.prod([1 - gap for gap in gaps]))

    scores = figures["tug_of_war"]
    assert scores["absolute"] == pytest.approx(score("unlearned"), abs=1e-12)
    assert scores["doing_nothing"] == pytest.approx(score("original"), abs=1e-12)
    assert scores["normalised"] == pytest.approx(score("unlearned") / score("original"), abs=1e-12)
    gaps = [abs(rates["unlearned"][s] - rates["reference"][s]) for s in ("forget", "retain", "test")]
    svc = figures["svc_confidence"]
    gaps.append(abs(svc["unlearned"]["rate"] - svc["reference"]["rate"]))
    assert figures["average_gap"] == pytest.approx(np.mean(gaps), abs=1e-12)


def test_same_inputs_same_figures(networks: dict[str, Sets], figures: dict[str, Any]) -> None:
    """Figures repeat bit for bit, and another seed draws other rows."""
    assert measure(networks) == figures
    assert measure(networks, seed=6)["membership"] != figures["membership"]


def test_without_a_reference(networks: dict[str, Sets]) -> None:
    """What needs a retrained network is None or absent, never a made-up number."""
    figures = measure({name: sets for name, sets in networks.items() if name != "reference"})
    assert set(figures["accuracy"]) == {"original", "unlearned"}
    assert set(figures["differences"]) == {"original"}
    assert figures["tug_of_war"] is figures["average_gap"] is figures["reference_utility"] is None


def test_normalised_is_none_where_doing_nothing_scores_zero(make_network: MakeNetwork) -> None:
    """An original right on all of F, a reference wrong on all of it: nothing to divide by."""
    networks = {
        "original": make_network(1, sure=30.0),
        "unlearned": make_network(2, sure=30.0, forget=0.0),
        "reference": make_network(3, sure=30.0, forget=-30.0),
    }
    scores = measure(networks)["tug_of_war"]
    assert (scores["doing_nothing"], scores["normalised"]) == (0.0, None)


def test_a_diverged_network_is_measured_as_far_as_possible(networks: dict[str, Sets]) -> None:
    """Rows without finite logits count as wrong, stop the attacks on that network alone, and are counted."""
    logits = networks["unlearned"]["forget"].logits.copy()
    logits[:3] = np.nan
    damaged = Outputs(logits, networks["unlearned"]["forget"].labels)
    before = measure(networks)
    figures = measure({**networks, "unlearned": with_set(networks["unlearned"], "forget", damaged)})
    assert figures["not_finite"] == {"original": 0, "unlearned": 3, "reference": 0}
    assert figures["accuracy"]["unlearned"]["forget"]["n"] == 80
    assert figures["membership"]["unlearned"] is figures["svc_confidence"]["unlearned"] is None
    assert figures["differences"]["reference"]["membership"] is figures["average_gap"] is None
    assert figures["membership"]["original"] == before["membership"]["original"]
    json.dumps(figures, allow_nan=False)


@pytest.mark.parametrize("empty", ["retain", "forget", "holdout", "test"])
def test_an_empty_set_has_no_figures(networks: dict[str, Sets], empty: SetName) -> None:
    """Whatever set is empty, the figures exist and hold None where it was needed."""
    nothing = np.empty(0, dtype=np.int64)
    figures = measure({n: with_set(s, empty, s[empty].take(nothing)) for n, s in networks.items()})
    json.dumps(figures, allow_nan=False)
    assert figures["sets"][empty] == 0
    if empty == "holdout":
        assert figures["membership"]["original"] is figures["holdout"]["class_distance"] is None
    else:
        assert figures["accuracy"]["original"][empty] == {
            "correct": 0,
            "n": 0,
            "rate": None,
            "low": None,
            "high": None,
        }
        assert figures["differences"]["original"][empty] is None
        assert figures["tug_of_war"] is None
        assert figures["svc_confidence"]["original"] is None


def test_a_removed_class_is_compared_with_that_class(make_network: MakeNetwork) -> None:
    """If F is one class, H is cut down to it, so that an exact retrain is not taken for over-forgetting."""

    def only_class_two(sets: Sets) -> Sets:
        chosen = np.flatnonzero(sets["forget"].labels == 2)
        return with_set(sets, "forget", sets["forget"].take(chosen))

    def never_predict_two(sets: Sets) -> Sets:
        for outputs in sets.values():
            outputs.logits[:, 2] -= 20
        return sets

    original = only_class_two(make_network(1, sure=3.0))
    retrained = only_class_two(never_predict_two(make_network(2, sure=3.0)))
    figures = measure({"original": original, "unlearned": retrained})
    assert figures["accuracy"]["unlearned"]["forget"]["correct"] == 0
    assert figures["holdout"]["class_distance"] <= 0.1
    assert figures["membership"]["unlearned"]["low"] < 0.5 < figures["membership"]["unlearned"]["high"]


def test_networks_must_be_measured_on_the_same_rows(networks: dict[str, Sets]) -> None:
    """Other rows under one of the networks are an error that names the network and the set."""
    turned = networks["reference"]["test"].take(np.arange(199, -1, -1))
    with pytest.raises(ValueError, match=r"reference .* test rows"):
        measure({**networks, "reference": with_set(networks["reference"], "test", turned)})
