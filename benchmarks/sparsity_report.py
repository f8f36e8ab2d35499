"""Tables of unlearning after plain and after gradient-sparsity training, from the committed rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from app.jobs.params import plain_data
from benchmarks.cifar import ForgetSet
from benchmarks.records import Results
from benchmarks.sparsity import ARMS, NETWORKS, RHOS, TUNING, Arm, chosen_rho, objective, tried, validation
from benchmarks.sparsity_methods import GRIDS
from benchmarks.sparsity_runs import Choice, Runs, collected, matched, rates, selected
from benchmarks.tables import mean, percent, share, table, told
from benchmarks.trials import AGAIN

_OTHERS: tuple[Arm, ...] = ("finite_difference", "exact")  # that are compared with the plain arm
_KINDS: Mapping[ForgetSet, str] = {"random": "A random tenth", "class": "A whole class"}
_NETWORKS = {"original": "nothing done", "reference": "retrained", "unlearned": "retrained again"}
_TOLD = {"gradient_norm": 0, "check": 2}  # of an epoch, with so many digits
_RHO_TITLES = "rho | | validation accuracy | against plain | training accuracy | norm, last epoch | check"
_COST_TITLES = "arm | networks | seconds | of plain | passes | peak MB | RA | TA | norm, last epoch"
_RUN_TITLES = "runs | RA | FA | TA | MIA | gap, own retraining | gap, plain retraining"
_PAIR_TITLES = (
    "method | arm | setting, plain | setting | TA, plain | TA | TA, difference"
    " | gap, difference | the same, plain retraining"
)


def choice_of_rho() -> str:
    """What each rho did to the tuning seed's network."""
    figures, chosen = tried(), chosen_rho()
    lines = []
    for rho in (rho for rho in (None, *RHOS) if rho in figures):
        of = figures[rho]
        cells = [
            "plain" if rho is None else f"{rho:g}",
            "chosen" if rho is not None and rho == chosen else "",
        ]
        lines.append([*cells, "diverged"] if of is None else [*cells, *_rho_cells(of, figures.get(None))])
    return table(_RHO_TITLES, lines)


def _rho_cells(of: Mapping[str, Any], plain: Mapping[str, Any] | None) -> list[str]:
    last, train = of["curve"][-1], of["accuracy"]["train"]
    against = [] if plain is None or of is plain else [validation(of) - validation(plain)]
    return [
        percent([validation(of)]),
        percent(against, signed=True),
        percent([share(train)]),
        *(f"{last[key]:.{digits}f}" if key in last else "" for key, digits in _TOLD.items()),
    ]


def costs() -> str:
    """What the arms' trainings took, and what came of them."""
    rho = chosen_rho()
    if rho is None:
        return table(_COST_TITLES, [])
    found = {arm: _originals(arm, rho) for arm in ARMS}
    plain = [figures["seconds"] for figures in found["plain"]]
    return table(_COST_TITLES, (_cost(arm, figures, plain) for arm, figures in found.items() if figures))


def _originals(arm: Arm, rho: float) -> list[Mapping[str, Any]]:
    """Figures of the networks that learned all rows, the tuning seed's left out."""
    wanted = plain_data(objective(arm, rho))
    rows = [row for row in Results(NETWORKS) if row["setting"]["recipe"]["objective"] == wanted]
    chosen = [
        row for row in rows if row["setting"]["name"] == "original" and row["setting"]["seed"] != TUNING
    ]
    return [row["figures"] for row in chosen if row["figures"] is not None]


def _cost(arm: Arm, figures: Sequence[Mapping[str, Any]], plain: Sequence[float]) -> list[str]:
    seconds = [of["seconds"] for of in figures]
    norms = [of["curve"][-1].get("gradient_norm") for of in figures]
    shares = [[share(of["accuracy"][part]) for of in figures] for part in ("train", "test")]
    return [
        arm,
        str(len(figures)),
        mean(seconds, 0),
        f"{fmean(seconds) / fmean(plain):.2f}" if plain else "",
        mean([of["passes"] for of in figures], 0),
        mean([of["peak_memory_bytes"] / 2**20 for of in figures], 0),
        *(percent(share) for share in shares),
        mean(norms, 0),
    ]


def comparison(arms: Mapping[Arm, Runs]) -> str:
    """Each method at each arm's selected setting, after what was there before and the retrained networks."""
    lines = [_line(runs, AGAIN, 0, network) for network in _NETWORKS for runs in arms.values()]
    for method in GRIDS:
        lines += [_line(runs, method, selected(arms, arm)(method)) for arm, runs in arms.items()]
    return table(f"method | arm | setting | {_RUN_TITLES}", lines)


def _line(runs: Runs, method: str, number: int, network: str = "unlearned") -> list[str]:
    found = [rates(figures, network) for figures in runs.figures(method, number).values()]
    parts = ("retain", "forget", "test", "called_non_member")
    return [
        _NETWORKS[network] if method == AGAIN else method,
        runs.arm,
        "" if method == AGAIN else told(GRIDS[method].settings[number]),
        runs.counted(method, number),
        *(percent([getattr(of, part) for of in found]) for part in parts),
        percent(list(runs.gaps(method, number, network).values())),
        percent(list(runs.plain_gaps(method, number, network).values())),
    ]


def pairs(arms: Mapping[Arm, Runs], choice: Callable[[Mapping[Arm, Runs], Arm], Choice]) -> str:
    """Each method after plain training and after another, seed by seed."""
    lines: list[list[str]] = []
    if "plain" in arms:
        for method, arm in ((method, arm) for method in GRIDS for arm in _OTHERS if arm in arms):
            numbers = selected(arms, "plain")(method), choice(arms, arm)(method)
            lines.append(_pair(arms, method, arm, numbers))
    return table(_PAIR_TITLES, lines)


def _pair(arms: Mapping[Arm, Runs], method: str, arm: Arm, numbers: tuple[int, int]) -> list[str]:
    settings = GRIDS[method].settings
    plain, other = arms["plain"], arms[arm]
    first, second = (
        {seed: rates(figures, "unlearned").test for seed, figures in runs.figures(method, number).items()}
        for runs, number in zip((plain, other), numbers, strict=True)
    )
    shared = sorted(set(first) & set(second))
    gaps = plain.gaps(method, numbers[0])
    return [
        method,
        arm,
        *(told(settings[number]) for number in numbers),
        *(percent([of[seed] for seed in shared]) for of in (first, second)),
        percent(_less(second, first), signed=True),
        percent(_less(other.gaps(method, numbers[1]), gaps), signed=True),
        percent(_less(other.plain_gaps(method, numbers[1]), gaps), signed=True),
    ]


def _less(of: Mapping[int, float | None], than: Mapping[int, float | None]) -> list[float]:
    """Differences of what both have, seed by seed."""
    both = [(of[seed], than[seed]) for seed in sorted(set(of) & set(than))]
    return [own - other for own, other in both if own is not None and other is not None]


def settings(arms: Mapping[Arm, Runs]) -> str:
    """Every setting of every method, and which one the tuning seed speaks for."""
    return table(f"method | setting | arm | gap, tuning seed | selected | {_RUN_TITLES}", _settings(arms))


def _settings(arms: Mapping[Arm, Runs]) -> Iterator[list[str]]:
    for method, grid in GRIDS.items():
        for number in range(len(grid.settings)):
            for arm, runs in arms.items():
                line = _line(runs, method, number)
                gap = runs.tuned(method, number)
                tuned = "" if gap == float("inf") else percent([gap])
                mark = "yes" if selected(arms, arm)(method) == number else ""
                yield [method, line[2], arm, tuned, mark, *line[3:]]


def parts() -> dict[str, str]:
    """All tables by the names of their places in the page."""
    found = collected()
    of_kinds = {
        "methods": comparison,
        "selected": lambda arms: pairs(arms, selected),
        "matched": lambda arms: pairs(arms, matched),
        "settings": settings,
    }
    tables = {f"sparsity {name}": _of_kinds(found, make) for name, make in of_kinds.items()}
    return {"sparsity rho": choice_of_rho(), "sparsity costs": costs(), **tables}


def _of_kinds(
    found: Mapping[ForgetSet, Mapping[Arm, Runs]], make: Callable[[Mapping[Arm, Runs]], str]
) -> str:
    return "\n".join(f"**{_KINDS[kind]}**\n\n{make(arms)}" for kind, arms in found.items() if arms)
