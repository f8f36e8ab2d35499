"""The README's commands work as pasted, and what the pages say of the code is so."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from pydantic_core import PydanticUndefined

from app.callers.router import router as keys
from app.callers.service import Scope
from app.config import Settings
from app.datasets.router import router as datasets
from app.deletions.router import models as retirement
from app.deletions.router import router as deletions
from app.errors import Problem
from app.jobs import params
from app.jobs.policies import Policy, Thresholds
from app.jobs.router import router as jobs
from app.main import create_app
from app.registry.router import router as models
from app.registry.router import weights
from app.reports.router import router as reports
from app.tables import DatasetVersion, DeletionRequest, Job, ModelVersion, Target, WebhookDelivery
from benchmarks import cifar_report

_ROOT = Path(__file__).parent.parent
_DOCS = _ROOT / "docs"
_PAGES = [_ROOT / "README.md", _ROOT / "CHANGELOG.md", *sorted(_DOCS.glob("*.md"))]
_STARTED = re.compile(r"Expunge runs at (http://[\d.]+:(\d+))")


def _section(page: str, heading: str) -> str:
    """The text under a heading, up to the next heading."""
    text = (_DOCS / page).read_text()
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"{page} has no heading {heading!r}"
    return found[1]


def _table(page: str, heading: str, first: str) -> dict[str, list[str]]:
    """The table under a heading whose first column has this title: its other cells by the first one."""
    lines = _section(page, heading).splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith(f"| {first} |"))
    rows: dict[str, list[str]] = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells[0] not in rows, f"{cells[0]} stands twice in {page}"
        rows[cells[0]] = cells[1:]
    return rows


def _shown(value: object) -> str:
    """A default as the pages write it."""
    if value is None or value == ():
        return "none"
    if isinstance(value, tuple):
        return ", ".join(rung.method for rung in value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Thresholds):
        return "see below"
    return str(getattr(value, "name", value))


def _default(field: Field[Any]) -> str:
    if field.default is MISSING and field.default_factory is MISSING:
        return "required"
    return _shown(field.default if field.default_factory is MISSING else field.default_factory())


def _defaults(kind: type[Any]) -> dict[str, str]:
    assert is_dataclass(kind)
    return {field.name: _default(field) for field in fields(kind)}


def _first_cells(table: dict[str, list[str]]) -> dict[str, str]:
    return {name: cells[0] for name, cells in table.items()}


# --- the README ---------------------------------------------------------------------------------------


def _shell_blocks(heading: str) -> list[str]:
    text = (_ROOT / "README.md").read_text()
    section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)


@pytest.fixture
def service_port(tmp_path: Path) -> Iterator[str]:
    """The port of a service that was started as the README says, with a folder and a port of its own."""
    start = _shell_blocks("Run it")[0].splitlines()[-1]
    assert start.endswith(" .venv/bin/expunge up")
    given = dict(word.split("=", 1) for word in start.split()[:-2])
    own = {"EXPUNGE_VAR": str(tmp_path / "var"), "EXPUNGE_PORT": "0", **given}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EXPUNGE_")}
    command = [sys.executable, "-P", "-m", "app.cli", "up"]
    with subprocess.Popen(command, env=kept | own, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        try:
            found = next(filter(None, map(_STARTED.match, service.stdout)), None)
            assert found is not None, "the service did not start"
            yield found[2]
        finally:
            service.send_signal(signal.SIGTERM)
            service.stdout.read()
    assert service.returncode == 0


def test_the_readme_works_as_pasted(service_port: str, tmp_path: Path) -> None:
    """Its blocks, one after the other, register, train, delete, follow, and read the report."""
    script = "\n".join(_shell_blocks("Run it")[1:])
    assert script.count(":8642") == 1
    pasted = ["bash", "-euo", "pipefail", "-c", script.replace(":8642", f":{service_port}")]
    done = subprocess.run(pasted, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    states = [line for line in done.stdout.splitlines() if re.fullmatch(r"[a-z_]+", line)]
    assert states.count("done") == 2
    assert states[-1] == "completed"
    assert '"verdict": ' in done.stdout
    assert '"origin": "trained"' in done.stdout
    page = (tmp_path / "report.html").read_text()
    assert "<title>Unlearning report: digit-reader</title>" in page


# --- links ---------------------------------------------------------------------------------------------


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Every link to a page of this project finds it, and the heading in it."""
    broken = []
    for link in re.findall(r"\]\(([^)#\s]*(?:#[^)\s]+)?)\)", page.read_text()):
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        if not link.startswith("http") and not (
            target.is_file() and (not anchor or anchor in _anchors(target))
        ):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Path) -> None:
    """Every path into the code that a page mentions is there."""
    named = re.findall(r"`((?:app|workers|models_store|migrations|tests|docs)/[\w./-]+)`", page.read_text())
    assert [path for path in named if not (_ROOT / path).exists()] == []


# --- tables ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", [DatasetVersion, ModelVersion, DeletionRequest, Target, Job, WebhookDelivery])
def test_states_are_as_drawn(row: type[Any]) -> None:
    """The table of a row's states has every line that its class allows, and no other."""
    drawn = {
        state: set(filter(None, cells[0].split(", ")))
        for state, cells in _table("architecture.md", row.__name__, "state").items()
    }
    assert drawn == {str(state): {str(to) for to in after} for state, after in row.MOVES.items()}


def test_settings_are_listed() -> None:
    """Every setting is in the table, with its default."""
    listed = _first_cells(_table("operations.md", "Settings", "variable"))
    defaults = {
        f"EXPUNGE_{name.upper()}": "the number of processors"
        if field.default is PydanticUndefined
        else _shown(field.default)
        for name, field in Settings.model_fields.items()
    }
    assert listed == defaults


def test_metrics_are_listed() -> None:
    """Every metric of the code is in the table, and no other."""
    sources = (_ROOT / "app" / "metrics.py").read_text() + (_ROOT / "app" / "main.py").read_text()
    assert set(_table("operations.md", "Metrics", "metric")) == set(re.findall(r'"(expunge_\w+)"', sources))


def test_log_events_are_real() -> None:
    """Every event that operators are told of is logged somewhere."""
    sources = "".join(
        path.read_text() for room in ("app", "workers") for path in (_ROOT / room).rglob("*.py")
    )
    logged = set(re.findall(r'log\.\w+\(\s*"(\w+)"', sources))
    assert set(_table("operations.md", "Logs", "event")) <= logged


def test_methods_are_listed() -> None:
    """Every method is in the table, with its cost, whether it is exact, and its source."""
    assert _table("methods.md", "Methods", "method") == {
        name: [
            "-" if info.passes_per_step is None else str(info.passes_per_step),
            info.passes,
            "yes" if info.exact else "no",
            info.source,
        ]
        for name, info in params.METHODS.items()
    }


@pytest.mark.parametrize("name", [name for name in params.METHODS if name != "retrain"])
def test_parameters_are_listed(name: str) -> None:
    """Every parameter of a method is in its table or, with the same default, in that of all steps."""
    kind = params.METHODS[name].parameters
    shared = _defaults(params.Steps) if issubclass(kind, params.Steps) else {}
    listed = _first_cells(_table("methods.md", name, "parameter"))
    assert {**shared, **listed} == _defaults(kind)
    assert listed.items().isdisjoint(shared.items())


@pytest.mark.parametrize(
    ("page", "heading", "first", "kind"),
    [
        ("methods.md", "Steps", "parameter", params.Steps),
        ("methods.md", "Policies", "field", Policy),
        ("methods.md", "Policies", "threshold", Thresholds),
        ("training.md", "Recipes", "recipe", params.TrainingRecipe),
        ("training.md", "gradient_sparsity", "parameter", params.GradientSparsity),
        ("data.md", "Roles", "share", params.RoleShares),
        ("data.md", "Backdoors, for experiments", "poison", params.BadNets),
        *(("data.md", name, "option", info.options) for name, info in params.READERS.items()),
    ],
)
def test_fields_are_listed(page: str, heading: str, first: str, kind: type[Any]) -> None:
    """Every field that a caller may set is in its table, with its default."""
    assert _first_cells(_table(page, heading, first)) == _defaults(kind)


def _scope(route: APIRoute) -> str:
    found = [getattr(dependency.call, "scope", None) for dependency in route.dependant.dependencies]
    (scope,) = [scope for scope in found if isinstance(scope, Scope)]
    return scope


def test_operations_are_listed() -> None:
    """Every operation of the API is in the table, with its path and the scope it demands."""
    guarded = {
        str(route.operation_id): _scope(route)
        for router in (keys, datasets, deletions, jobs, models, retirement, weights, reports)
        for route in router.routes
        if isinstance(route, APIRoute)
    }
    described = {
        operation["operationId"]: [
            f"{method.upper()} {path}",
            guarded[operation["operationId"]] if path.startswith("/v1/") else "none",
        ]
        for path, operations in create_app().openapi()["paths"].items()
        for method, operation in operations.items()
    }
    assert _table("api.md", "Operations", "operation") == described


def test_scopes_are_listed() -> None:
    """Every scope is in the table."""
    assert set(_table("api.md", "Keys and scopes", "scope")) == {str(scope) for scope in Scope}


def _problems(kind: type[Problem]) -> Iterator[tuple[str, str]]:
    if kind.__module__.startswith("app."):  # tests make kinds of their own
        yield kind.slug, str(kind.status)
    for child in kind.__subclasses__():
        yield from _problems(child)


def test_errors_are_listed() -> None:
    """Every kind of error has its line, with its status."""
    listed = _first_cells(_table("api.md", "Errors", "last part of `type`"))
    raised = dict(found for child in Problem.__subclasses__() for found in _problems(child))
    sources = (_ROOT / "app" / "errors.py").read_text() + (_ROOT / "app" / "limits.py").read_text()
    rendered = dict(reversed(pair) for pair in re.findall(r'render\((\d+), "([\w-]+)"', sources))
    assert listed == {**rendered, **raised, "http": "any"}


def test_results_are_those_of_the_rows() -> None:
    """The tables and the picture of the comparison are what the committed rows of the benchmarks say."""
    assert (_DOCS / "results.md").read_text() == cifar_report.page()
    assert (_DOCS / cifar_report.PICTURE).read_text() == cifar_report.picture()
