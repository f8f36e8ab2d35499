"""What is deployed: the images' recipe, the compose file and the wheel fit the code."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import compose_spec
import pytest
import yaml
from typer.core import TyperGroup
from typer.main import get_command

from app.cli import app
from app.config import Settings
from tests.fixtures.compose import ROOT, interpolated, stages

_ROOMS = ("app", "workers", "models_store", "migrations")
_VAR = "/var/lib/expunge"
_NEEDED = dict.fromkeys(re.findall(r"\$\{(\w+):\?\}", (ROOT / "docker-compose.yml").read_text()), "x")
_SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(interpolated(_NEEDED))["services"]
_OURS = {name: service for name, service in _SERVICES.items() if "build" in service}
_DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
_PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _copied() -> list[str]:
    """What the Dockerfile copies from this folder."""
    copies = re.findall(r"(?m)^COPY (?!--from)(.+)$", _DOCKERFILE)
    return [source for arguments in copies for source in arguments.split()[:-1]]


def _folders(service: dict[str, Any]) -> dict[str, str]:
    """What is mounted where, read-only or not."""
    volumes = [re.sub(r"\$\{.*?\}", "", volume).split(":") for volume in service.get("volumes", [])]
    return {parts[1]: ":".join(parts[2:]) for parts in volumes}


def test_services_run_commands_that_exist() -> None:
    """Each of our services runs a command of `expunge`, and every part is there."""
    commands = {name: service["command"][0] for name, service in _OURS.items()}
    assert set(commands) == {"migrate", "api", "scheduler", "worker", "worker-gpu0", "worker-gpu1"}
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    assert set(commands.values()) <= set(group.commands)


def test_services_have_every_setting_that_fits_a_container() -> None:
    """Each EXPUNGE_ variable of the file and of the images is a setting, and only these are left out."""
    names = {name for service in _OURS.values() for name in service["environment"]}
    names |= set(re.findall(r"\bEXPUNGE_\w+(?==)", _DOCKERFILE))
    given = {name.removeprefix("EXPUNGE_").lower() for name in names if not name.startswith("AWS_")}
    # The data are mounted read-only, the API's port is published as any other, and the rhythm fits all.
    rhythm = {"lease_seconds", "heartbeat_seconds", "scheduler_seconds", "republish_seconds"}
    assert given == set(Settings.model_fields) - {"allow_downloads", "port"} - rhythm


def test_gpu_workers_read_the_queue_of_what_computes_much() -> None:
    """Whatever it is called: none of them waits at a queue that nobody fills."""
    for name in ("worker-gpu0", "worker-gpu1"):
        queue = _SERVICES[name]["environment"]["EXPUNGE_COMPUTE_QUEUE"]
        assert _SERVICES[name]["command"] == ["worker", "--queues", queue]


def test_secrets_come_from_the_environment() -> None:
    """No secret has a value in the compose file, and starting without one is refused."""
    text = (ROOT / "docker-compose.yml").read_text()
    for name in ("POSTGRES_PASSWORD", "EXPUNGE_SECRET_KEY", "EXPUNGE_ADMIN_KEY"):
        assert set(re.findall(rf"{name}: (.*)", text)) == {f"${{{name}:?}}"}


def test_no_worker_can_sign() -> None:
    """The attestation key's folder is with the scheduler and the API, which file reports, and nobody else."""
    assert "EXPUNGE_VAR=/var/lib/expunge" in stages()["base"]
    holders = {name for name, service in _OURS.items() if f"{_VAR}/keys" in _folders(service)}
    assert holders == {"api", "scheduler"}
    assert not {name for name, service in _OURS.items() if _VAR in _folders(service)}


def test_the_parts_share_what_they_must() -> None:
    """API, scheduler and workers have one secret key and one store, API and workers the same data."""
    parts = [service for name, service in _OURS.items() if name != "migrate"]
    for name in ("DATABASE_URL", "SECRET_KEY", "STORE_URL", "COMPUTE_QUEUE"):
        assert len({part["environment"][f"EXPUNGE_{name}"] for part in parts}) == 1
    for part in parts:
        assert _folders(part)[part["environment"]["EXPUNGE_STORE_URL"]] == ""
    for name in ("api", "worker", "worker-gpu0", "worker-gpu1"):
        assert _folders(_SERVICES[name])[_SERVICES[name]["environment"]["EXPUNGE_DATA_ROOTS"]] == "ro"


def test_only_the_migration_sees_the_admin_key() -> None:
    """The other parts know keys by their digests."""
    assert [name for name in _OURS if "EXPUNGE_ADMIN_KEY" in _OURS[name]["environment"]] == ["migrate"]


def test_every_service_stops_in_order_and_says_whether_it_works() -> None:
    """What has work to finish gets time for it, and all that go on running can be asked for their health."""
    keeping = {name for name, service in _SERVICES.items() if "stop_grace_period" in service}
    assert keeping == {"postgres", "api", "scheduler", "worker", "worker-gpu0", "worker-gpu1"}
    silent = {
        name
        for name, service in _SERVICES.items()
        if service.get("healthcheck", {}).get("disable")
        or ("healthcheck" not in service and "HEALTHCHECK" not in stages()[service["build"]["target"]])
    }
    assert silent == {"migrate"}


def test_the_images_are_built_of_stages_that_exist() -> None:
    """Compose builds stages of the Dockerfile, and what stages take from others is there."""
    found = stages()
    assert {service["build"]["target"] for service in _OURS.values()} == {"api", "worker"} <= set(found)
    assert set(re.findall(r"COPY --from=(\S+)", _DOCKERFILE)) <= set(found)


@pytest.mark.parametrize("target", ["api", "worker"])
def test_images_run_without_root(target: str) -> None:
    """The last user of each image is an ordinary one."""
    assert re.findall(r"(?m)^USER (.+)$", stages()[target]) == ["10001"]


def test_the_api_image_has_no_torch() -> None:
    """What the API installs is the base alone; only the worker's stage adds the worker's extra."""
    found = stages()
    assert "COPY --from=installed /opt" in found["api"]
    assert re.findall(r"pip install (.+)", found["installed"]) == ["'.[s3]'"]
    assert not [name for name in _PROJECT["dependencies"] if name.startswith("torch")]
    wanted = re.findall(r'"(torch\S*)"', found["installed-worker"])
    assert set(wanted) == {
        name for name in _PROJECT["optional-dependencies"]["worker"] if name.startswith("torch")
    }


def test_the_images_get_every_file_they_need(tmp_path: Path) -> None:
    """A wheel built of what the Dockerfile copies holds every file of the rooms, and the command."""
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in _copied():
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=ignored)
        else:
            shutil.copy(source, tmp_path / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(tmp_path / "dist"), str(tmp_path)], check=True)
    (wheel,) = (tmp_path / "dist").glob("expunge-*.whl")
    with zipfile.ZipFile(wheel) as opened:
        inside = set(opened.namelist())
        entries = opened.read(next(name for name in inside if name.endswith("entry_points.txt"))).decode()
    wanted = {
        str(path.relative_to(ROOT))
        for room in _ROOMS
        for path in (ROOT / room).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {"app/reports/templates/report.html", "migrations/script.py.mako"} <= wanted
    assert wanted - inside == set()
    assert "expunge = app.cli:app" in entries


def test_the_build_context_holds_what_is_copied() -> None:
    """.dockerignore lets through what the Dockerfile copies, and nothing else."""
    kept = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().split() if line[0] == "!"}
    assert kept == set(_copied())


def _parse(text: str) -> None:
    """Have a parser of the Compose Specification read the file. Raises ValueError."""
    compose_spec.PyOptions().from_yaml(yaml.safe_dump(yaml.safe_load(text)))  # which merges `<<`


def test_the_compose_file_follows_the_specification() -> None:
    """With and without what may be left out."""
    _parse(interpolated(_NEEDED))
    _parse(interpolated({**_NEEDED, "PORT": "9000", "EXPUNGE_STORE_URL": "s3://bucket"}))


def test_a_mistake_in_the_compose_file_is_noticed() -> None:
    """The parser refuses a key that the specification does not have."""
    with pytest.raises(ValueError, match="stop_grace"):
        _parse(interpolated(_NEEDED).replace("stop_grace_period: 1m", "stop_grace: 1m"))


def test_secrets_that_are_missing_stop_the_deployment() -> None:
    """No default stands in for them."""
    with pytest.raises(KeyError):
        interpolated({})
