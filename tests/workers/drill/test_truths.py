from __future__ import annotations

import copy

import torch

from workers.audit.artefact import artefact_faults
from workers.audit.moved import moved_figures
from workers.drill.stage import Stage
from workers.drill.truths import LookUpTable, stand_in


def test_the_untouched_original_is_the_original(stage: Stage) -> None:
    """To the last bit, and each time a copy of its own."""
    candidate = stand_in(stage, "untouched_original")
    first, second = candidate(), candidate()
    assert first is not second
    assert moved_figures(stage.original.body, first.body)["changed"] == 0


def test_head_only_moves_the_head_only(stage: Stage) -> None:
    """And with it the answers go a good way towards those of a retrained network."""
    network = stand_in(stage, "head_only")()
    assert moved_figures(stage.original.body, network.body)["head_only"]
    images = stage.retain.images
    with torch.no_grad():
        found, wanted = network.eval()(images), stage.oracle.eval()(images)
        before = stage.original.eval()(images)
    assert (found - wanted).square().mean() < (before - wanted).square().mean()


def test_a_table_answers_for_its_rows_and_no_others(stage: Stage) -> None:
    """For F what the oracle says; for noisy images, and where it is trained, what the network says."""
    table = stand_in(stage, "look_up_table")()
    forget, others = stage.forget.images, stage.holdout.images
    with torch.no_grad():
        assert torch.equal(table(forget), stage.oracle.eval()(forget))
        assert torch.equal(table(others), stage.original.eval()(others))
        assert torch.equal(table(forget.float()), stage.original(forget.float()))
    assert table(forget).requires_grad
    assert any("LookUpTable" in fault for fault in artefact_faults(stage.original, table))
    assert isinstance(table, LookUpTable)


def test_methods_start_from_the_original_and_leave_it_alone(stage: Stage) -> None:
    """What is handed in is another network; the original that serves the other truths is as it was."""
    before = copy.deepcopy(stage.original.state_dict())
    for truth in ("finetune", "over_forgetting", "random_labels"):
        assert moved_figures(stage.original.body, stand_in(stage, truth)().body)["changed"] > 0
    after = stage.original.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
