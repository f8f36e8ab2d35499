"""What a step of each compared method costs, in steps of a training, both timed in turn.

    .venv/bin/python -m benchmarks.cifar_pace

The shares of retraining's time in docs/results.md follow from these ratios and from the steps that were
taken: from one quiet run, whatever else the machine did while the methods were compared. Run it alone.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from app.jobs.params import Finetune, MethodParameters, method_parameters, plain_data
from benchmarks.cifar import ENVIRONMENT, RECIPE, Case, arguments
from benchmarks.cifar_methods import ENTRIES, SEARCH_BUDGET, SEARCH_CASE, Entry, best, budgeted, spec_of
from benchmarks.records import Results
from workers import pipeline
from workers.monitor import Silent

FEW, MANY, READINGS = 10, 40, 4
_TRAINING = Entry("finetune", lambda _: {}, {}, lambda _: 1)
_PLAIN = Finetune(
    learning_rate=1e-3, retain_batch_size=RECIPE.batch_size, precision=RECIPE.precision, readings=0
)


def pace(case: Case, name: str) -> dict[str, Any]:
    """The row of a method: its step, its start (mask, ceilings), and a reading, in training steps."""
    entry = ENTRIES[name]
    parameters = budgeted(entry, best(name), SEARCH_BUDGET, len(case.forget))
    facts = {"entry": name, "parameters": plain_data(parameters), "threads": ENVIRONMENT.threads}
    results = Results("cifar_pace")
    if (row := results.of(facts)) is None:
        unread = _with(entry, parameters, readings=0)
        before = _step(case, _TRAINING, _PLAIN)
        step = _step(case, entry, unread)
        after = _step(case, _TRAINING, _PLAIN)
        plain = median((before, after))
        few = _seconds(case, entry, _with(entry, unread, steps=FEW))
        read = _seconds(case, entry, _with(entry, unread, steps=FEW, readings=READINGS))
        row = {
            "setting": facts,
            "training_steps_timed": [before, after],
            "step": step / plain,
            "start": max(0.0, few - FEW * step) / plain,
            "reading": max(0.0, read - few) / READINGS / plain,
        }
        results.add(row)
    return row


def _with(entry: Entry, parameters: MethodParameters, **changes: Any) -> MethodParameters:
    return method_parameters(entry.method, plain_data(parameters) | changes)


def _step(case: Case, entry: Entry, parameters: MethodParameters) -> float:
    """Seconds of a step, without what comes before the first one."""
    few, many = (_seconds(case, entry, _with(entry, parameters, steps=steps)) for steps in (FEW, MANY))
    return (many - few) / (MANY - FEW)


def _seconds(case: Case, entry: Entry, parameters: MethodParameters) -> float:
    return pipeline.unlearn(spec_of(case, entry, parameters, None), case.store, Silent()).seconds


def main() -> None:
    """Time the methods that were not timed yet, and print their ratios."""
    given = arguments(__doc__).parse_args()
    case = Case(given.data, SEARCH_CASE, given.var)
    for name in ENTRIES:
        row = pace(case, name)
        print(f"{name:26} step {row['step']:5.2f} start {row['start']:6.1f} reading {row['reading']:5.2f}")


if __name__ == "__main__":
    main()
