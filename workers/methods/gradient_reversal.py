"""Give back what the deleted rows' own gradients took from the weights while the network was trained."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from app.jobs.params import GradientReversal, TrainingRecipe
from workers.data.batches import Order
from workers.data.seeds import derived_seed, generator
from workers.methods.curvature import NoStep
from workers.methods.past import Past, State
from workers.methods.run import Run
from workers.nets.network import Network
from workers.training import multi_tensor
from workers.training.gradients import Differentiable, Forward
from workers.training.loop import Trace
from workers.training.schedule import LearningRate
from workers.training.train import Lesson, fit


def gradient_reversal(run: Run, parameters: GradientReversal) -> Trace:
    """w' = w + scale * sum over steps t and rows i of F in t: c_t / B_t * grad L_i, taken at an anchor.

    The single-gradient unlearning of Thudi et al. 2022, section 4, whose anchor is the first weights. Which
    batch a row was in, of size B_t, is known from the training's seed; c_t is what the optimiser made of a
    gradient at that step. With the trajectory as anchor (ours) each epoch's gradients are taken at the
    weights that it began with. What later gradients made of a changed step is left out: that is its error,
    which `verify` measures.

    Raises:
        NoStep: the training is not known, was not by SGD, was on another kind of device, or kept no
            trajectory.
    """
    past = run.past
    if past is None:
        raise NoStep("how this network was trained is not on record here: choose another method")
    _refuse_unknown(past, run.recipe, parameters, run.retain.device)
    model = run.model(parameters.precision)
    before = _clones(model)
    taken = _taken(run, model, past, parameters)
    with torch.no_grad():
        multi_tensor.add_(model.weights, taken, parameters.scale)
    length, seconds = float(multi_tensor.norm(taken)), time.perf_counter() - run.started
    if parameters.verify:
        run.judged["verification"] = _verified(run, past, before)
    moved = parameters.scale * length / float(multi_tensor.norm(before))
    return Trace(steps=1, passes=model.passes, seconds=seconds, curve=[{"moved": moved}])


def _taken(run: Run, model: Differentiable, past: Past, parameters: GradientReversal) -> list[Tensor]:
    """What F's gradients took from the weights, one tensor a weight; the network is as it was afterwards."""
    total = [torch.zeros_like(weight) for weight in model.weights]
    anchors = list(_anchors(run, past, parameters))
    with _set_aside(run.network):
        for number, (open_state, weights) in enumerate(anchors):
            run.network.load(*open_state())
            run.network.train()
            for part in torch.split(torch.arange(len(run.forget)), run.recipe.batch_size):
                run.monitor.check_cancelled()
                multi_tensor.add_(total, _gradient(model, run, part, weights[part]))
            run.monitor.progress("unlearn", number + 1, len(anchors))
    return total


def shares(past: Past, recipe: TrainingRecipe) -> Tensor:
    """How much of each row's gradient was taken in each epoch: c_t / B_t, float64 [epochs, len(F)]."""
    order = Order(
        past.count,
        batch_size=recipe.batch_size,
        seed=derived_seed(past.seed, "train"),
        device=torch.device(past.device_type),
        index_device=torch.device("cpu"),
    )
    taken = pulls(recipe, recipe.epochs * order.steps_per_pass)
    found = torch.zeros(recipe.epochs, past.count, dtype=torch.float64)
    for step, pull in enumerate(taken):
        places = order.places(step)
        found[step // order.steps_per_pass, places] = pull / len(places)
    return found[:, past.forgotten.cpu()]


def pulls(recipe: TrainingRecipe, steps: int) -> list[float]:
    """c_t: how much of a gradient at step t is taken from the last weights, by every later step of SGD.

    Momentum hands a gradient on to later steps, at their rates, and weight decay fades what it did. Both are
    linear, so they are followed exactly: backwards, by how the last weights depend on weights and momentum
    before each step.
    """
    rate = LearningRate(
        peak=recipe.learning_rate, steps=steps, schedule=recipe.schedule, warmup_share=recipe.warmup_share
    )
    by_weights, by_momentum = 1.0, 0.0
    found = []
    for step in reversed(range(steps)):
        ahead = recipe.momentum if recipe.nesterov else 1.0
        through = by_momentum - rate.at(step) * ahead * by_weights  # by the momentum after the step
        direct = rate.at(step) * by_weights if recipe.nesterov else 0.0
        by_gradient = through - direct
        found.append(-by_gradient)
        by_weights += recipe.weight_decay * by_gradient
        by_momentum = recipe.momentum * through
    return found[::-1]


def _anchors(
    run: Run, past: Past, parameters: GradientReversal
) -> Iterator[tuple[Callable[[], State], Tensor]]:
    """The states that gradients are taken at, and how much of each row's gradient is given back: [len(F)]."""
    given = shares(past, run.recipe).to(run.forget.device)
    if parameters.anchor == "trajectory":
        yield from zip(past.snapshots, given, strict=False)  # a training that stopped early has fewer epochs
        return
    state = _copied(run.network), run.network.facts()
    if parameters.anchor == "initial":
        with _set_aside(run.network):
            run.network.start_afresh(generator(past.seed, "initialise"))
            state = _copied(run.network), state[1]
    yield lambda: state, given.sum(0)


@contextmanager
def _set_aside(network: Network) -> Iterator[None]:
    """Whatever becomes of the network within, it is as it was afterwards."""
    own, facts = _copied(network), network.facts()
    try:
        yield
    finally:
        network.load(own, facts)


def _gradient(model: Differentiable, run: Run, part: Tensor, weights: Tensor) -> list[Tensor]:
    """The gradient of the weighted losses of some rows of F, normalised by their own batch's statistics."""
    batch = run.forget.take(part.to(run.forget.index_device))
    smoothing = run.recipe.label_smoothing

    def loss(forward: Forward) -> Tensor:
        logits = forward(batch.images, moves_statistics=False)
        losses = functional.cross_entropy(logits, batch.labels, reduction="none", label_smoothing=smoothing)
        return (losses * weights.to(losses)).sum()

    return model.gradient(loss)


def _verified(run: Run, past: Past, before: list[Tensor]) -> dict[str, float]:
    """The training repeated without F, in the same order: how far it ends from what there is now, and was.

    The verification error of Thudi et al. 2022, section 3. It costs a whole training. The running
    statistics are not compared.
    """
    rows = past.rows
    if rows is None:
        raise NoStep("rows of the training have been deleted before: it cannot be repeated to verify")
    here = _clones(run.model("fp32"))
    absent = torch.zeros(past.count, dtype=torch.bool)
    absent[past.forgotten.cpu()] = True
    source = rows()
    recipe = replace(run.recipe, patience=None)
    lesson = Lesson(source, recipe, past.seed, absent=absent.to(source.index_device))
    with _set_aside(run.network):
        run.network.start_afresh(generator(past.seed, "initialise"))
        fit(run.network, lesson, run.monitor)
        again = _clones(run.model("fp32"))
    return {
        "error": float(multi_tensor.norm(multi_tensor.add(here, again, -1))),
        "doing_nothing": float(multi_tensor.norm(multi_tensor.add(before, again, -1))),
        "norm": float(multi_tensor.norm(again)),
    }


def _refuse_unknown(
    past: Past, recipe: TrainingRecipe, parameters: GradientReversal, device: torch.device
) -> None:
    if recipe.optimiser != "sgd":
        raise NoStep("gradients can be given back of a training by SGD alone")
    if past.device_type != device.type:
        raise NoStep(f"the order of the rows was drawn on another kind of device: {past.device_type}")
    if parameters.anchor == "trajectory" and not past.snapshots:
        raise NoStep("the training kept no trajectory: train with `trajectory`, or choose another anchor")


def _copied(network: Network) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in network.tensors().items()}


def _clones(model: Differentiable) -> list[Tensor]:
    return [weight.detach().clone() for weight in model.weights]
