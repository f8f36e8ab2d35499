"""How often the audit is wrong about what it must not be wrong about: drills on the digits.

    .venv/bin/python -m benchmarks.drill --kind canaries
    .venv/bin/python -m benchmarks.drill --kind ordinary

For each seed an original and, for each number of rows to forget, five retrained networks: four references and
an honest result. Each verdict on an honest result, and on the untouched original, is a row that is committed
and not computed again.
"""

from __future__ import annotations

import argparse
from typing import Any, Final

from app.jobs.params import plain_data
from benchmarks.records import Results
from workers.drill import recipes
from workers.drill.course import Plan, plain, run
from workers.drill.expected import Kind, Truth
from workers.drill.stage import Recipe

RESULTS: Final = "drill"
SEEDS: Final = 30
TRUTHS: Final[tuple[Truth, ...]] = ("honest_retrain", "untouched_original")
SIZES: Final = (1, 10, 50, 1_000)


def setting(recipe: Recipe, kind: Kind, seed: int) -> dict[str, Any]:
    """What a seed's row is found by."""
    recipes_facts = {"architecture": plain_data(recipe.architecture), "recipe": plain_data(recipe.training)}
    return {"name": recipe.name, "kind": kind, "seed": seed, "rows": list(SIZES), **recipes_facts}


def main() -> None:
    """Compute the seeds that are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kind", choices=("canaries", "ordinary"), default="canaries")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args()
    recipe, rows = recipes.digits(), Results(RESULTS)
    for seed in range(given.seeds):
        facts = setting(recipe, given.kind, seed)
        if rows.of(facts) is None:
            findings = list(run(recipe, Plan(TRUTHS, given.kind, SIZES), [seed], processes=1))
            rows.add({"setting": facts, "findings": [plain(finding) for finding in findings]})
        print(given.kind, seed, flush=True)


if __name__ == "__main__":
    main()
