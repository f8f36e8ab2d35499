"""A 5% deletion request on 10,000 CIFAR-10 training rows, through the whole service, with a reference.

    EXPUNGE_DATA_ROOTS=/path/to/shared/data .venv/bin/expunge up
    .venv/bin/python benchmarks/cifar_request.py http://127.0.0.1:8642 KEY

Prints each report of the request and appends its figures, one JSON object a line, to
benchmarks/results/cifar_request.jsonl.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow.parquet as pq

from app.reports.render import render_text

RESULTS = Path(__file__).parent / "results" / "cifar_request.jsonl"
ROWS, SHARE = 12_500, 0.05  # a fifth of the rows is held out, so 10,000 train
ARCHITECTURE = {"name": "resnet8", "width": 2}
RECIPE = {"epochs": 14, "batch_size": 64, "learning_rate": 0.05, "augmentation": "none"}
SHARP_MINMAX = {"steps": 280, "alpha": 0.8, "learning_rate": 0.01, "rho": 0.5, "mask_fraction": 0.1}
POLICY = {
    "ladder": [{"method": "sharp_minmax", "parameters": SHARP_MINMAX}, {"method": "retrain"}],
    "audit_budget": 1,
    "prefer_exact": False,
}
FILES = [
    {"path": "train.parquet", "limit": ROWS},
    {"path": "test.parquet", "split": "test"},
]
SHARES = {"holdout": 0.2, "validation": 0.0, "test": 0.0}


class Caller:
    """The few calls that the benchmark makes."""

    def __init__(self, address: str, key: str) -> None:
        self._http = httpx.Client(base_url=address, headers={"Authorization": f"Bearer {key}"}, timeout=60)

    def get(self, path: str) -> Any:
        """Read JSON."""
        return self._http.get(path).raise_for_status().json()

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Ask for something; an error shows the service's answer."""
        response = self._http.post(path, json=body)
        if response.is_error:
            raise SystemExit(response.text)
        return response.json()

    def ended(self, path: str) -> Any:
        """Wait for a job or a request to end."""
        live = ("queued", "waiting", "running", "audited", "received", "in_progress")
        while (found := self.get(path))["state"] in live:
            time.sleep(1)
        return found


def train(caller: Caller, name: str, seed: int) -> None:
    """Register the data and the model, and train it."""
    new = {
        "name": name,
        "reader": "parquet",
        "location": "cifar10",
        "options": {"files": FILES},
        "shares": SHARES,
    }
    caller.ended(f"/v1/jobs/{caller.post('/v1/datasets', new)['job_id']}")
    caller.post("/v1/models", {"name": name, "policy": POLICY})
    training = {"dataset": name, "architecture": ARCHITECTURE, "recipe": RECIPE, "seed": seed}
    job = caller.ended(f"/v1/jobs/{caller.post(f'/v1/models/{name}/train', training)['job_id']}")
    if job["state"] != "done":
        raise SystemExit(job["reason"])
    figures = caller.get(f"/v1/models/{name}/versions")[0]["figures"]
    print(f"trained in {figures['seconds']:.0f} s:", figures["accuracy"])


def forget(caller: Caller, name: str, sample_ids: list[str]) -> Iterator[dict[str, Any]]:
    """Post the request, wait for its end, and yield its reports, the first rung's first."""
    items = [{"sample_id": sample_id} for sample_id in sample_ids]
    request = caller.post("/v1/deletion-requests", {"dataset": name, "items": items})
    ended = caller.ended(f"/v1/deletion-requests/{request['id']}")
    print("request:", ended["state"], ended["reason"] or "")
    model_id = ended["targets"][0]["model_id"]
    for summary in caller.get("/v1/reports?limit=1000"):
        if summary["model_id"] == model_id:
            yield caller.get(f"/v1/reports/{summary['id']}")


def main() -> None:
    """Run the benchmark against a running service."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("key")
    parser.add_argument("--data", type=Path, default=Path("../shared/data/cifar10"))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    caller = Caller(options.address, options.key)
    name = f"cifar-{int(time.time())}"
    train(caller, name, options.seed)
    for report in forget(caller, name, drawn(options.data, options.seed)):
        print(render_text(report["body"]))
        RESULTS.parent.mkdir(exist_ok=True)
        with RESULTS.open("a") as file:
            row = {key: report["body"][key] for key in ("job", "data", "figures", "judgement", "environment")}
            file.write(json.dumps(row, sort_keys=True) + "\n")


def drawn(folder: Path, seed: int) -> list[str]:
    """Sample IDs to forget: 5% of the rows of the training file that the data set takes."""
    ids = pq.read_table(folder / "train.parquet", columns=["sample_id"])["sample_id"]
    chosen = np.random.default_rng(seed).choice(ROWS, round(ROWS * SHARE), replace=False)
    return [ids[int(row)].as_py() for row in sorted(chosen)]


if __name__ == "__main__":
    main()
