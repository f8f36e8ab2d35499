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

import pytest
import yaml
from typer.core import TyperGroup
from typer.main import get_command

from app.cli import app
from app.config import Settings

_ROOT = Path(__file__).parent.parent
_ROOMS = ("app", "workers", "models_store", "migrations")
_VAR = "/var/lib/expunge"
_COMPOSE: dict[str, Any] = yaml.safe_load((_ROOT / "docker-compose.yml").read_text())
_SERVICES: dict[str, dict[str, Any]] = _COMPOSE["services"]
_OURS = {name: service for name, service in _SERVICES.items() if "build" in service}
_DOCKERFILE = (_ROOT / "Dockerfile").read_text().replace("\\\n", " ")
_PROJECT: dict[str, Any] = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]


def _stages() -> dict[str, str]:
    """The instructions of each stage of the Dockerfile, those of the stage it is built from first."""
    stages: dict[str, str] = {}
    for part in re.split(r"(?m)^(?=FROM )", _DOCKERFILE)[1:]:
        found = re.match(r"FROM (\S+) AS (\S+)\n", part)
        assert found is not None, "every stage has a name"
        stages[found[2]] = stages.get(found[1], "") + part
    return stages


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
    assert set(commands) == {"migrate", "api", "scheduler", "worker"}
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    assert set(commands.values()) <= set(group.commands)


def test_services_set_settings_that_exist() -> None:
    """Each EXPUNGE_ variable of the compose file and of the images is a setting."""
    names = {name for service in _OURS.values() for name in service["environment"]}
    names |= set(re.findall(r"\bEXPUNGE_\w+(?==)", _DOCKERFILE))
    assert "EXPUNGE_DATABASE_URL" in names
    assert {name.removeprefix("EXPUNGE_").lower() for name in names} <= set(Settings.model_fields)


def test_secrets_come_from_the_environment() -> None:
    """No secret has a value in the compose file, and starting without one is refused."""
    text = (_ROOT / "docker-compose.yml").read_text()
    for name in ("POSTGRES_PASSWORD", "EXPUNGE_SECRET_KEY", "EXPUNGE_ADMIN_KEY"):
        assert set(re.findall(rf"{name}: (.*)", text)) == {f"${{{name}:?}}"}


def test_no_worker_can_sign() -> None:
    """The attestation key's folder is with the scheduler and the API, which file reports, and nobody else."""
    assert "EXPUNGE_VAR=/var/lib/expunge" in _stages()["base"]
    holders = {name for name, service in _OURS.items() if f"{_VAR}/keys" in _folders(service)}
    assert holders == {"api", "scheduler"}
    assert not {name for name, service in _OURS.items() if _VAR in _folders(service)}


def test_the_parts_share_what_they_must() -> None:
    """API, scheduler and workers have one secret key; API and workers one store and the same data."""
    parts = [_SERVICES[name] for name in ("api", "scheduler", "worker")]
    for setting in ("EXPUNGE_DATABASE_URL", "EXPUNGE_SECRET_KEY", "EXPUNGE_STORE_URL"):
        assert len({part["environment"][setting] for part in parts}) == 1
    for name in ("api", "worker"):
        folders, environment = _folders(_SERVICES[name]), _SERVICES[name]["environment"]
        assert folders[environment["EXPUNGE_STORE_URL"]] == ""
        assert folders[environment["EXPUNGE_DATA_ROOTS"]] == "ro"


def test_only_the_migration_sees_the_admin_key() -> None:
    """The other parts know keys by their digests."""
    assert [name for name in _OURS if "EXPUNGE_ADMIN_KEY" in _OURS[name]["environment"]] == ["migrate"]


def test_every_service_stops_in_order_and_says_whether_it_works() -> None:
    """What has work to finish gets time for it, and all but the scheduler can be asked for their health."""
    keeping = {name for name, service in _SERVICES.items() if "stop_grace_period" in service}
    assert keeping == {"postgres", "api", "scheduler", "worker"}
    silent = {
        name
        for name, service in _SERVICES.items()
        if service.get("healthcheck", {}).get("disable")
        or ("healthcheck" not in service and "HEALTHCHECK" not in _stages()[service["build"]["target"]])
    }
    assert silent == {"scheduler", "migrate"}


def test_the_images_are_built_of_stages_that_exist() -> None:
    """Compose builds stages of the Dockerfile, and what stages take from others is there."""
    stages = _stages()
    assert {service["build"]["target"] for service in _OURS.values()} == {"api", "worker"} <= set(stages)
    assert set(re.findall(r"COPY --from=(\S+)", _DOCKERFILE)) <= set(stages)


@pytest.mark.parametrize("target", ["api", "worker"])
def test_images_run_without_root(target: str) -> None:
    """The last user of each image is an ordinary one."""
    assert re.findall(r"(?m)^USER (.+)$", _stages()[target]) == ["expunge"]


def test_the_api_image_has_no_torch() -> None:
    """What the API installs is the base alone; only the worker's stage adds the worker's extra."""
    stages = _stages()
    assert "COPY --from=installed /opt" in stages["api"]
    assert "[" not in "".join(re.findall(r"pip install (.+)", stages["installed"]))
    assert not [name for name in _PROJECT["dependencies"] if name.startswith("torch")]
    wanted = re.findall(r'"(torch\S*)"', stages["installed-worker"])
    assert set(wanted) == {
        name for name in _PROJECT["optional-dependencies"]["worker"] if name.startswith("torch")
    }


def test_the_images_get_every_file_they_need(tmp_path: Path) -> None:
    """A wheel built of what the Dockerfile copies holds every file of the rooms, and the command."""
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in _copied():
        source = _ROOT / name
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
        str(path.relative_to(_ROOT))
        for room in _ROOMS
        for path in (_ROOT / room).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {"app/reports/templates/report.html", "migrations/script.py.mako"} <= wanted
    assert wanted - inside == set()
    assert "expunge = app.cli:app" in entries


def test_the_build_context_holds_what_is_copied() -> None:
    """.dockerignore lets through what the Dockerfile copies, and nothing else."""
    kept = {
        line.removeprefix("!") for line in (_ROOT / ".dockerignore").read_text().split() if line[0] == "!"
    }
    assert kept == set(_copied())
