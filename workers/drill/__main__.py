"""`expunge drill`: run it, print what was found, and end with 1 if anything was not as it should be."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from app.config import settings
from app.db import transaction
from models_store.blobs import BlobStore
from workers.drill import recipes
from workers.drill.course import Finding, Plan, plain, run
from workers.drill.expected import TRUTHS, expectation
from workers.drill.stage import Recipe
from workers.drill.summary import rates, table

_SIZES = (1, 10, 50, 1_000)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="expunge drill", description=__doc__)
    parser.add_argument("--model", help="a registered model; without it the digits")
    parser.add_argument("--seeds", type=int, default=3, help="how many coin-flipped draws of canaries")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument(
        "--rows",
        type=int,
        nargs="+",
        default=_SIZES,
        help="how many rows are forgotten; at most all there are",
    )
    parser.add_argument("--kind", choices=("canaries", "ordinary"), default="canaries")
    parser.add_argument("--truths", nargs="+", choices=TRUTHS, default=TRUTHS)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, help="a file for the findings, as JSON lines")
    return parser


def _recipe(model: str | None) -> Recipe:
    if model is None:
        return recipes.digits()
    config = settings()
    with transaction() as session:
        return recipes.registered(session, model, config, BlobStore(config.store))


def _reasons(findings: Sequence[Finding]) -> list[str]:
    return [
        f"{each.truth}, {each.rows} rows, seed {each.seed}: {fault}. Expected: "
        f"{expectation(each.truth, each.kind, each.rows).reason}"
        for each in findings
        for fault in each.faults
    ]


def main(arguments: Sequence[str]) -> int:
    """The entry of the program; 0 if the audit said of every network what it had to say."""
    given = _arguments().parse_args(arguments)
    started = time.monotonic()
    try:
        recipe = _recipe(given.model)
    except recipes.NoRecipe as reason:
        sys.stderr.write(f"Error: {reason}\n")
        return 2
    plan = Plan(tuple(given.truths), given.kind, tuple(sorted(given.rows)))
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    findings = []
    for finding in run(recipe, plan, seeds, processes=min(given.processes, given.seeds)):
        findings.append(finding)
        if given.out is not None:
            with given.out.open("a") as lines:
                lines.write(json.dumps(plain(finding), sort_keys=True) + "\n")
    wrong = _reasons(findings)
    spent = f"{len(findings)} networks in {time.monotonic() - started:.0f} s."
    end = ["", "NOT AS EXPECTED:", *wrong] if wrong else ["Every verdict is as expected."]
    sys.stdout.write("\n".join([table(findings), rates(findings), spent, *end, ""]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
