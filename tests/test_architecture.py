"""The import map of docs/architecture.md, checked over the source of every module; and the code's size."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from statistics import median, quantiles

import pytest

_ROOT = Path(__file__).parent.parent
_ROOMS = ("app", "workers", "models_store", "migrations")

_COMPUTING = {
    "PIL",
    "matplotlib",
    "numpy",
    "ot",
    "pyarrow",
    "safetensors",
    "scipy",
    "sklearn",
    "torch",
    "torchvision",
}
_SERVING = {
    "alembic",
    "celery",
    "fastapi",
    "kombu",
    "psycopg",
    "redis",
    "sqlalchemy",
    "starlette",
    "typer",
    "uvicorn",
}

# The features of app/, the lowest first: each imports itself and those before it.
_FEATURES = ("events", "artefacts", "callers", "jobs", "datasets", "registry", "deletions", "reports")
# What puts features together. All else in app/ is the ground that features stand on, and knows none of them.
_ENTRIES = {"main", "cli", "scheduler", "embedded", "demo"}
# The files of a feature that speak HTTP, beside its router. Routers of all features use these two.
_HTTP_HELPERS = {"app.callers.auth", "app.callers.idempotency"}

# The parts of workers/ and what each imports of the others.
_COMPUTATION = {
    "monitor": set[str](),
    "spec": set[str](),
    "nets": {"spec"},
    "data": {"monitor", "spec"},
    "training": {"data", "monitor", "nets", "spec"},
    "audit": {"data", "monitor", "nets", "training"},
    "methods": {"data", "monitor", "nets", "training"},
    "opening": {"data", "methods", "monitor", "nets", "spec", "training"},
    "answers": {"audit", "data", "nets", "training"},
    "examination": {"answers", "audit", "data", "methods", "monitor", "nets"},
    "shadowing": {"answers", "audit", "data", "methods", "monitor", "nets", "opening", "spec"},
    "auditing": {
        "answers",
        "audit",
        "data",
        "examination",
        "monitor",
        "opening",
        "shadowing",
        "spec",
        "training",
    },
    "pipeline": {"answers", "audit", "data", "methods", "monitor", "nets", "opening", "spec", "training"},
}
_AROUND_IT = {
    "celery_app": set[str](),
    "tasks": {"celery_app"},
    "reporting": {"monitor"},
    "drill": {
        "answers",
        "assemble",
        "audit",
        "data",
        "examination",
        "methods",
        "monitor",
        "nets",
        "training",
    },
    "shadows": {"assemble", "audit", "data", "pipeline", "reporting"},
    "assemble": {"nets", "spec"},
    "compare": {
        "answers",
        "assemble",
        "audit",
        "auditing",
        "data",
        "methods",
        "pipeline",
        "reporting",
        "spec",
        "training",
    },
    "ingest": {"data", "monitor"},
    "validate": {"assemble", "data", "monitor", "pipeline", "spec"},
    "readiness": {"assemble", "monitor", "pipeline"},
    "run": {
        "answers",
        "assemble",
        "auditing",
        "compare",
        "data",
        "ingest",
        "methods",
        "monitor",
        "opening",
        "pipeline",
        "readiness",
        "reporting",
        "shadows",
        "spec",
        "tasks",
        "training",
        "nets",
        "validate",
    },
}

# What derives a verdict again from a report, offline.
_JUDGEMENT = {
    "app.reports.questions": {"app.jobs.policies"},
    "app.reports.checks": {"app.jobs.policies", "app.reports.questions"},
    "app.reports.wording": {"app.reports.checks", "app.reports.questions"},
    "app.reports.verdict": {
        "app.jobs.policies",
        "app.reports.checks",
        "app.reports.questions",
        "app.reports.wording",
    },
    "app.reports.contents": {
        "app.jobs.policies",
        "app.reports.attestation",
        "app.reports.questions",
        "app.reports.verdict",
    },
    "app.reports.attestation": set[str](),
}
_JUDGE = {"app.reports.questions", "app.reports.verdict"}


@dataclass(frozen=True)
class Module:
    """One source file: what it imports of ours, as module names, and of others, as top-level names."""

    name: str
    lines: int
    tree: ast.Module
    ours: frozenset[str]
    others: frozenset[str]

    @property
    def room(self) -> str:
        return self.name.split(".")[0]

    @property
    def part(self) -> str:
        """What of its room it belongs to: a feature or a file."""
        return [*self.name.split("."), ""][1]

    @property
    def role(self) -> str:
        """Where it stands in its feature: router, service, repository or schemas."""
        if self.name in _HTTP_HELPERS:
            return "router"
        last = self.name.split(".")[-1]
        return last if last in ("router", "repository", "schemas") else "service"


def _read() -> dict[str, Module]:
    files = {_name(path): path for room in _ROOMS for path in (_ROOT / room).rglob("*.py")}
    return {name: _module(name, path, files) for name, path in files.items()}


def _name(path: Path) -> str:
    parts = path.relative_to(_ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _module(name: str, path: Path, files: dict[str, Path]) -> Module:
    source = path.read_text()
    tree = ast.parse(source)
    found = {_target(imported, files) for imported in _imported(tree)}
    ours = frozenset(target for target in found if target.split(".")[0] in _ROOMS)
    others = frozenset(target.split(".")[0] for target in found - ours)
    return Module(name, source.count("\n"), tree, ours, others)


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _target(imported: str, files: dict[str, Path]) -> str:
    """The module that an import reaches: `from app.db import engine` reaches app.db."""
    parent = imported.rpartition(".")[0]
    return imported if imported in files or parent not in files else parent


_MODULES = _read()
_ALL = list(_MODULES.values())
_APP = [module for module in _ALL if module.room == "app"]
_WORKERS = [module for module in _ALL if module.room == "workers" and module.part]


def _in_feature(name: str) -> bool:
    return name.startswith(tuple(f"app.{feature}." for feature in _FEATURES))


_IN_FEATURES = [module for module in _APP if _in_feature(module.name)]
_FUNCTIONS = [
    node
    for module in _ALL
    if module.room != "migrations"
    for node in ast.walk(module.tree)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
]


def _offences(found: Iterable[tuple[Module, Set[str]]]) -> dict[str, list[str]]:
    """The modules that import something they must not."""
    return {module.name: sorted(names) for module, names in found if names}


def _ours(module: Module, *rooms: str) -> set[str]:
    return {name for name in module.ours if name.split(".")[0] in rooms}


def test_the_map_covers_the_code() -> None:
    """Every module was found, and no part of the code is missing from the map."""
    assert len(_MODULES) > 100
    assert {module.part for module in _WORKERS} == set(_COMPUTATION) | set(_AROUND_IT)
    assert {module.part for module in _IN_FEATURES} == set(_FEATURES)


def test_imports_form_no_cycle() -> None:
    """The modules can be put in an order in which each imports only earlier ones."""
    graph = {module.name: module.ours for module in _ALL}
    order = list(TopologicalSorter(graph).static_order())
    assert order.index("app.tables") < order.index("app.jobs.service") < order.index("app.main")


def test_the_application_computes_nothing() -> None:
    """app/ imports neither workers/ nor torch, NumPy or anything else that computes."""
    forbidden = {"models_store.checkpoints"}
    assert not _offences(
        (module, module.others & _COMPUTING | module.ours & forbidden | _ours(module, "workers"))
        for module in _APP
    )


def test_the_store_stands_alone() -> None:
    """models_store/ imports neither app nor workers, and sets of rows not even torch."""
    store = [module for module in _ALL if module.room == "models_store"]
    assert not _offences((module, _ours(module, "app", "workers", "migrations")) for module in store)
    assert _MODULES["models_store.rows"].others <= sys.stdlib_module_names


def test_workers_import_downward() -> None:
    """Each part of workers/ imports itself and the parts that the map lists for it."""
    allowed = _COMPUTATION | _AROUND_IT
    assert not _offences(
        (
            module,
            {_MODULES[name].part for name in _ours(module, "workers")} - allowed[module.part] - {module.part},
        )
        for module in _WORKERS
    )


def test_computation_knows_no_service() -> None:
    """The pipeline and all beneath it import of app/ the typed parameters alone, and no server's library."""
    assert not _offences(
        (module, _ours(module, "app", "migrations") - {"app.jobs.params"} | module.others & _SERVING)
        for module in _WORKERS
        if module.part in _COMPUTATION
    )


def test_workers_neither_judge_nor_sign() -> None:
    """Reports and the key that signs them are out of the workers' reach; the drill tries the judge."""
    assert not _offences(
        (
            module,
            {name for name in module.ours if name.startswith("app.reports")}
            - (_JUDGE if module.part == "drill" else set()),
        )
        for module in _WORKERS
    )


def test_features_stand_on_lower_ones() -> None:
    """A feature imports itself and lower features; the ground imports none; entries may import all."""
    assert not _offences(
        (module, {name for name in _ours(module, "app") if _rank(_MODULES[name]) > _rank(module)})
        for module in _APP
    )


def _rank(module: Module) -> int:
    if module.part in _ENTRIES:
        return len(_FEATURES)
    return _FEATURES.index(module.part) if module.part in _FEATURES else -1


_MAY_IMPORT = {
    "router": {"router", "service", "schemas"},
    "service": {"service", "repository", "schemas"},
    "repository": {"repository"},
    "schemas": {"schemas"},
}


def test_a_feature_is_layered() -> None:
    """Inside a feature: router, then service, then repository; and schemas import schemas."""
    assert not _offences(
        (
            module,
            {
                name
                for name in module.ours
                if _MODULES[name].part == module.part and _MODULES[name].role not in _MAY_IMPORT[module.role]
            },
        )
        for module in _IN_FEATURES
    )


def test_features_meet_at_their_services() -> None:
    """Of another feature a module imports services and schemas; routers also the guards of the callers."""
    assert not _offences(
        (
            module,
            {
                name
                for name in module.ours - (_HTTP_HELPERS if module.role == "router" else set())
                if _in_feature(name)
                and _MODULES[name].part != module.part
                and _MODULES[name].role in ("router", "repository")
            },
        )
        for module in _IN_FEATURES
    )


def test_services_know_no_http() -> None:
    """In a feature only what speaks HTTP imports FastAPI."""
    assert not _offences(
        (module, module.others & {"fastapi", "starlette"})
        for module in _IN_FEATURES
        if module.role != "router"
    )


def test_the_broker_has_one_door() -> None:
    """In app/ one module imports Celery."""
    assert [module.name for module in _APP if module.others & {"celery", "kombu"}] == ["app.queue"]


@pytest.mark.parametrize("name", _JUDGEMENT)
def test_a_verdict_needs_little(name: str) -> None:
    """Deriving a verdict takes the standard library, the policy, and for digests the attestation."""
    module = _MODULES[name]
    libraries = {"cryptography"} if name == "app.reports.attestation" else set[str]()
    assert module.ours <= _JUDGEMENT[name]
    assert module.others <= sys.stdlib_module_names | libraries


def test_imports_are_at_the_top() -> None:
    """No function imports anything, and nothing is imported by a name made at run time."""
    assert {name for function in _FUNCTIONS for name in _imported(function)} == set()
    assert not _offences((module, _words(module.tree) & {"__import__", "import_module"}) for module in _ALL)


def _words(tree: ast.Module) -> set[str]:
    """Every name and attribute that is used."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return names | {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def _loaded_by(module: str) -> set[str]:
    program = f"import sys, json, {module}; print(json.dumps(sorted(sys.modules)))"
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, capture_output=True, check=True, cwd=_ROOT, text=True)
    return set(json.loads(found.stdout))


@pytest.mark.parametrize(
    ("module", "without"),
    [
        ("app.main", _COMPUTING | {"workers", "celery", "alembic", "typer"}),
        ("app.cli", _COMPUTING | {"workers"}),
        ("app.scheduler", _COMPUTING | {"workers", "celery.worker"}),
        ("app.reports.contents", _COMPUTING | _SERVING | {"workers"}),
        ("workers.tasks", _COMPUTING | {"workers.pipeline"}),
        ("workers.pipeline", _SERVING | {"workers.run", "app.tables", "app.db"}),
    ],
)
def test_a_fresh_process_loads_no_more_than_it_needs(module: str, without: set[str]) -> None:
    """Whatever is imported on the way: the application has no torch, the pipeline no database."""
    assert not _loaded_by(module) & without


def test_the_application_starts_light() -> None:
    """Importing the HTTP application loads a bounded number of modules."""
    assert len(_loaded_by("app.main")) < 1000


def test_files_stay_small() -> None:
    """No file is longer than 400 lines; migrations are as long as the schema is."""
    long = {
        module.name: module.lines for module in _ALL if module.room != "migrations" and module.lines > 400
    }
    assert long == {}


def test_functions_stay_small() -> None:
    """Half of the functions have at most about ten lines, nine tenths fewer than 45."""
    lengths = [(node.end_lineno or node.lineno) - node.lineno + 1 for node in _FUNCTIONS]
    assert median(lengths) <= 12
    assert quantiles(lengths, n=10)[8] < 45
