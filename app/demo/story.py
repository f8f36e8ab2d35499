"""What the demo does: register, train, delete, audit, and show the report."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.config import Settings
from app.demo.client import Client, DemoFailed
from app.demo.console import Console, Json
from app.embedded import Supervisor
from app.embedded.service import running_service
from app.reports.render import render_text

_MISTAKEN_SUBJECTS = 7
# Chosen on ten deals of the rows, this one among them, by their test rows: see benchmarks/results.
_RECIPE: Json = {"epochs": 40, "weight_decay": 5e-3, "precision": "fp32"}
_SHARP_MINMAX: Json = {"steps": 80, "alpha": 0.8, "precision": "fp32"}
_POLICY: Json = {
    "ladder": [{"method": "sharp_minmax", "parameters": _SHARP_MINMAX}, {"method": "retrain"}],
    "audit_budget": 1,
    "prefer_exact": False,
    "batch_window_seconds": 0,
}
_INTRODUCTION = """\
Expunge deletes training samples from a trained network and measures whether they are gone.

The data: 1,797 real images of handwritten digits. Their contributors are invented. Seven of them handed in
wrong labels, which a network can only learn by heart; that makes remembering and forgetting visible. Of each
one's rows a third trained, a third is kept for the audit, and by a third the method judges itself. All
seven now want to be forgotten.
"""
_ENDING = """
The report for people:    {page}
The report as data:       {data}
Its signed attestation:   {attestation}

This demo's policy retrains a network to compare with, and still publishes the approximate one, to show the
method at work. By default Expunge publishes the retrained network where there is one.

To run the service:  {program} up
and then open        http://{host}:{port}/docs"""


@dataclass(frozen=True)
class Demo:
    """One run of the demo. `pause` sleeps, and raises when the user wants to stop."""

    settings: Settings
    results: Path
    console: Console
    pause: Callable[[float], None]
    program: str

    def run(self) -> None:
        """Play the whole story on a service of its own, which is gone afterwards; the reports stay.

        Raises:
            DemoFailed: a step did not come out as it should.
            EmbeddedError: the service did not start.
        """
        self.console.say(_INTRODUCTION)
        with tempfile.TemporaryDirectory(prefix="expunge-demo-", ignore_cleanup_errors=True) as folder:
            own = self.settings.model_copy(
                update={
                    "var": Path(folder),
                    "port": 0,
                    "database_url": None,
                    "broker_url": None,
                    "store_url": None,
                    "admin_key": None,
                    "secret_key": None,
                    "scheduler_seconds": 0.2,
                    "worker_threads": 1,  # so small a network is slower with two
                }
            )
            supervisor = Supervisor(self.pause)
            with running_service(own, supervisor) as service:
                client = Client(service.address, service.admin_key or "", supervisor.tend)
                try:
                    self._play(client)
                finally:
                    client.close()

    def _play(self, client: Client) -> None:
        self._train(client)
        request = self._delete(client)
        report = self._report_on(client, request)
        self.console.say("\n" + render_text(report["body"]))
        self.console.say(self._keep(client, report))

    def _train(self, client: Client) -> None:
        options = {"mislabelled_subjects": _MISTAKEN_SUBJECTS}
        new = {"name": "digits", "reader": "sklearn_digits", "options": options}
        self._watch(client, "register the data set", client.post("/v1/datasets", new))
        client.post("/v1/models", {"name": "digit-reader", "policy": _POLICY})
        training = {"dataset": "digits", "architecture": {"name": "small_cnn"}, "recipe": _RECIPE}
        self._watch(client, "train a network", client.post("/v1/models/digit-reader/train", training))
        version = client.get("/v1/models/digit-reader/versions")[-1]
        test = version["figures"]["accuracy"]["test"]
        share = test["correct"] / test["n"]
        self.console.say(f"  test accuracy: {share:.1%} of {test['n']} images it was not trained on")

    def _delete(self, client: Client) -> Json:
        subjects = [{"subject": f"contributor-{number:02d}"} for number in range(_MISTAKEN_SUBJECTS)]
        request = client.post("/v1/deletion-requests", {"dataset": "digits", "items": subjects})
        path = f"/v1/deletion-requests/{request['id']}"
        followed: set[str] = set()

        def look() -> Json | None:
            seen: Json = client.get(path)
            job_id = seen["targets"][0]["job_id"]
            if job_id is not None and job_id not in followed:
                followed.add(job_id)
                method = client.get(f"/v1/jobs/{job_id}")["parameters"]["method"]
                client.watch_job(job_id, self.console.teller(f"delete with {method}"))
            return None if seen["state"] in ("received", "in_progress") else seen

        seen = client.until(look, "the request", seconds=600)
        if seen["state"] != "completed":
            raise DemoFailed(f"The request ended as {seen['state']}: {seen['reason']}")
        return seen

    def _watch(self, client: Client, title: str, answer: Json) -> None:
        client.watch_job(answer["job_id"], self.console.teller(title))

    def _report_on(self, client: Client, request: Json) -> Json:
        certificate = client.get(f"/v1/deletion-requests/{request['id']}/certificate")
        report: Json = client.get(f"/v1/reports/{certificate['reports'][-1]['id']}")
        return report

    def _keep(self, client: Client, report: Json) -> str:
        """Write the report, its page and its attestation, and say where they are."""
        path = f"/v1/reports/{report['id']}"
        contents = {
            "page": ("report.html", client.page(f"{path}/html")),
            "data": ("report.json", json.dumps(report, indent=2)),
            "attestation": ("attestation.json", json.dumps(client.get(f"{path}/attestation"), indent=2)),
        }
        for name, content in contents.values():
            (self.results / name).write_text(content, encoding="utf-8")
        places = {part: str(self.results / name) for part, (name, _) in contents.items()}
        return _ENDING.format(
            **places, program=self.program, host=self.settings.host, port=self.settings.port
        )
