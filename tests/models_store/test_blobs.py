"""One suite for every kind of place: a local folder, and a real S3 server over HTTP."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models_store.blobs import BlobDamaged, BlobMissing, BlobStore, StoreUnavailable

ABSENT = "0" * 64
_LONG_AGO = 1_000_000_000  # seconds since the epoch

# What is stored under a digest says nothing of what is stored under another: examples may share a store.
one_store = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)


@pytest.fixture(params=["folder", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty store is."""
    return str(tmp_path / "store") if request.param == "folder" else request.getfixturevalue("s3_url")


@pytest.fixture
def store(url: str) -> BlobStore:
    return BlobStore(url)


def _overwrite(store: BlobStore, digest: str, content: bytes) -> None:
    """Change what is stored, past the store."""
    with fsspec.open(f"{store.url}/{digest[:2]}/{digest}", "wb") as file:
        file.write(content)


# --- in and out -------------------------------------------------------------------------------------


@given(pieces=st.lists(st.binary(max_size=2000), max_size=5), chunk_size=st.integers(1, 3000))
@one_store
def test_content_comes_back_whole(store: BlobStore, pieces: list[bytes], chunk_size: int) -> None:
    """However it was written and however it is read, content comes back under its SHA-256."""
    content = b"".join(pieces)
    with store.draft() as draft:
        for piece in pieces:
            draft.write(piece)
        digest = draft.keep()
    assert digest == hashlib.sha256(content).hexdigest() == store.put(content)
    assert store.get(digest) == content
    chunks = list(store.chunks(digest, chunk_size))
    assert b"".join(chunks) == content
    assert all(0 < len(chunk) <= chunk_size for chunk in chunks)
    assert store.size(digest) == len(content)


def test_files_go_in_and_out(store: BlobStore, tmp_path: Path) -> None:
    """A local file larger than a chunk is stored and fetched unchanged, over whatever was there."""
    content = os.urandom(3_000_001)
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.write_bytes(content)
    copy.write_bytes(b"an older copy")
    store.fetch(store.put_file(source), copy)
    assert copy.read_bytes() == content


def test_a_draft_can_be_inspected_before_it_is_kept(store: BlobStore) -> None:
    """The draft's file holds every byte written so far; only keeping it stores anything."""
    with store.draft() as draft:
        draft.write(b"one")
        assert (draft.path.read_bytes(), draft.size) == (b"one", 3)
        draft.write(b"two")
        assert draft.path.read_bytes() == b"onetwo"
        assert draft.digest == hashlib.sha256(b"onetwo").hexdigest()
        assert not store.has(draft.digest)
        draft.keep()
        assert store.get(draft.digest) == b"onetwo"
    assert not draft.path.exists()


@pytest.mark.parametrize("error", [None, KeyError])
def test_a_draft_that_is_not_kept_leaves_nothing(store: BlobStore, error: type[Exception] | None) -> None:
    """Whether its writer changed his mind or failed."""
    with suppress(KeyError), store.draft() as draft:
        draft.write(b"x")
        if error is not None:
            raise error
    assert not draft.path.exists()
    assert list(store.blobs()) == []


def test_a_kept_draft_is_closed(store: BlobStore) -> None:
    """Nothing can be added to a blob through the draft that it was."""
    with store.draft() as draft:
        draft.write(b"weights")
        digest = draft.keep()
        with pytest.raises(ValueError, match="closed"):
            draft.write(b"more")
    assert store.get(digest) == b"weights"


def test_any_fsspec_url_is_a_store() -> None:
    """The same calls work on another file system than these two."""
    store = BlobStore("memory://blobs-test")
    digest = store.put(b"x")
    assert store.get(digest) == b"x"
    assert [blob.digest for blob in store.blobs()] == [digest]
    assert store.delete(digest)
    assert not store.has(digest)


# --- what is not right ------------------------------------------------------------------------------


def _get(store: BlobStore, digest: str, _to: Path) -> None:
    store.get(digest)


def _chunks(store: BlobStore, digest: str, _to: Path) -> None:
    list(store.chunks(digest, 4))


def _fetch(store: BlobStore, digest: str, to: Path) -> None:
    store.fetch(digest, to)


_READS = [_get, _chunks, _fetch]


@pytest.mark.parametrize("read", _READS)
@pytest.mark.parametrize("changed", [b"weightz", b"weight", b"weights.", b""])
def test_damage_is_noticed(
    store: BlobStore, tmp_path: Path, read: Callable[..., None], changed: bytes
) -> None:
    """A blob that was altered, cut short, lengthened or emptied is refused, and no copy of it is left."""
    digest = store.put(b"weights")
    _overwrite(store, digest, changed)
    with pytest.raises(BlobDamaged):
        read(store, digest, tmp_path / "copy")
    assert not list(tmp_path.glob("*copy*"))
    assert not list(tmp_path.glob("*.part"))


def test_a_receiver_of_damaged_chunks_lacks_the_end(store: BlobStore) -> None:
    """The last piece is never handed out before the digest was compared."""
    digest = store.put(b"abcdefgh")
    _overwrite(store, digest, b"abcdefgX")
    chunks = store.chunks(digest, 4)
    assert next(chunks) == b"abcd"
    with pytest.raises(BlobDamaged):
        next(chunks)


def test_a_failed_copy_leaves_the_older_one(store: BlobStore, tmp_path: Path) -> None:
    """What stood where the copy was to go is untouched by damage."""
    copy = tmp_path / "copy"
    copy.write_bytes(b"older")
    digest = store.put(b"weights")
    _overwrite(store, digest, b"weightz")
    with pytest.raises(BlobDamaged):
        store.fetch(digest, copy)
    assert copy.read_bytes() == b"older"


def test_storing_again_repairs(store: BlobStore) -> None:
    """Content that comes a second time replaces what was damaged."""
    digest = store.put(b"weights")
    _overwrite(store, digest, b"weightz")
    assert store.put(b"weights") == digest
    assert store.get(digest) == b"weights"


@pytest.mark.parametrize("read", _READS)
def test_absent_blobs_are_missing(store: BlobStore, tmp_path: Path, read: Callable[..., None]) -> None:
    """Reading what is not there says so, in an empty store, beside other blobs and after a removal."""
    digest = hashlib.sha256(b"x").hexdigest()
    with pytest.raises(BlobMissing):
        read(store, digest, tmp_path / "copy")
    store.put(b"y")
    store.put(b"x")
    store.delete(digest)
    with pytest.raises(BlobMissing):
        read(store, digest, tmp_path / "copy")
    assert not store.has(digest)


def test_missing_chunks_are_known_at_the_call(store: BlobStore) -> None:
    """Whoever answers with a stream learns that there is none before the answer begins."""
    with pytest.raises(BlobMissing):
        store.chunks(ABSENT)


@pytest.mark.parametrize("name", ["../../etc/passwd", "A" * 64, "ab", ""])
def test_only_digests_name_blobs(store: BlobStore, tmp_path: Path, name: str) -> None:
    """A name that is not 64 lower-case hexadecimal digits never reaches the file system."""
    calls: list[Callable[[], Any]] = [
        lambda: store.get(name),
        lambda: store.chunks(name),
        lambda: store.fetch(name, tmp_path / "copy"),
        lambda: store.size(name),
        lambda: store.has(name),
        lambda: store.delete(name),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="64 lower-case"):
            call()


# --- listing and removal ----------------------------------------------------------------------------


def test_every_blob_is_listed(store: BlobStore) -> None:
    """With its digest, its size and the time it was stored, and nothing else beside it."""
    before = datetime.now(UTC) - timedelta(seconds=2)  # a server's clock may count whole seconds
    stored = {store.put(bytes(size)): size for size in range(20)}
    _overwrite(store, "ab" + "c" * 60, b"not named by a digest")
    found = list(store.blobs())
    assert {blob.digest: blob.size for blob in found} == stored
    assert all(before < blob.modified <= datetime.now(UTC) for blob in found)


def test_removal_is_said_once(store: BlobStore) -> None:
    """Removing a blob tells whether it was there; removing it again changes nothing."""
    digest = store.put(b"x")
    assert store.delete(digest)
    assert not store.delete(digest)
    assert not store.has(digest)


def test_what_was_stored_since_stays(store: BlobStore) -> None:
    """A conditional removal spares what was stored at that time or later."""
    digest = store.put(b"x")
    now = datetime.now(UTC)
    assert not store.delete(digest, unless_modified_since=now - timedelta(hours=1))
    assert store.has(digest)
    assert store.delete(digest, unless_modified_since=now + timedelta(hours=1))
    assert not store.delete(digest, unless_modified_since=now + timedelta(hours=1))
    assert not store.has(digest)


def _abandon_draft(url: str, temporary: Path) -> None:
    """Have a process die while it writes."""
    program = (
        "import os, sys; from models_store.blobs import BlobStore\n"
        "with BlobStore(sys.argv[1]).draft() as draft:\n    draft.write(b'x')\n    os._exit(0)"
    )
    environment = {**os.environ, "TMPDIR": str(temporary)}
    subprocess.run([sys.executable, "-c", program, url], check=True, env=environment)


def test_abandoned_drafts_are_removed(
    store: BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a dead writer left goes, unless it may still be at work; blobs and other files stay."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    digest = store.put(b"x")
    (tmp_path / "notes.txt").touch()
    _abandon_draft(store.url, tmp_path)
    assert store.remove_abandoned_drafts(timedelta(hours=1)) == 0
    assert store.remove_abandoned_drafts(timedelta(hours=-1)) == 1
    assert store.remove_abandoned_drafts(timedelta(hours=-1)) == 0
    assert store.has(digest)
    assert (tmp_path / "notes.txt").exists()


# --- several at once --------------------------------------------------------------------------------


def test_writers_of_the_same_content_do_not_disturb_each_other(store: BlobStore) -> None:
    """All of them get the digest, whoever was first, and the store holds one whole blob."""
    content = os.urandom(100_000)
    with ThreadPoolExecutor(4) as pool:
        digests = set(pool.map(lambda _: store.put(content), range(12)))
    assert digests == {hashlib.sha256(content).hexdigest()}
    assert [blob.size for blob in store.blobs()] == [len(content)]
    assert store.get(digests.pop()) == content


def _make_old(root: Path, digest: str) -> None:
    with suppress(FileNotFoundError):
        os.utime(root / digest[:2] / digest, (_LONG_AGO, _LONG_AGO))


def test_storing_again_renews_the_time(tmp_path: Path) -> None:
    """A collector of old garbage sees that somebody has use for the blob, however long it took to write."""
    store = BlobStore(str(tmp_path))
    digest = store.put(b"x")
    _make_old(tmp_path, digest)
    with store.draft() as draft:
        draft.write(b"x")
        os.utime(draft.path, (_LONG_AGO, _LONG_AGO))
        draft.keep()
    assert not store.delete(digest, unless_modified_since=datetime.now(UTC) - timedelta(hours=1))


class _Interrupted(datetime):
    """A time limit at whose comparison something else happens first."""

    before: Callable[[], None]

    def __gt__(self, other: date) -> bool:
        self.before()
        return isinstance(other, datetime) and super().__gt__(other)


def _awaited(file: Path) -> bool:
    """Whether anybody waits for a lock on the file."""
    inode = f":{file.stat().st_ino} "
    return any("->" in line and inode in line for line in Path("/proc/locks").read_text().splitlines())


def test_nothing_is_stored_between_the_look_and_the_removal(tmp_path: Path) -> None:
    """Whoever stores an old blob again just when it is collected waits, and then it is there."""
    store = BlobStore(str(tmp_path))
    digest = store.put(b"x")
    _make_old(tmp_path, digest)
    limit = _Interrupted.now(UTC) - timedelta(hours=1)
    with ThreadPoolExecutor(1) as pool:
        storing: list[Future[str]] = []

        def store_again() -> None:
            storing.append(pool.submit(store.put, b"x"))
            while not storing[0].done() and not _awaited(tmp_path / "lock"):
                time.sleep(0.01)

        limit.before = store_again
        assert store.delete(digest, unless_modified_since=limit)
        assert storing[0].result() == digest
    assert store.has(digest)


# --- stores that cannot be used ---------------------------------------------------------------------


def _refusals(store: BlobStore) -> list[str]:
    """What each call says of a store that cannot be used."""
    said = []
    for call in (
        lambda: store.put(b"x"),
        lambda: store.get(ABSENT),
        lambda: store.chunks(ABSENT),
        lambda: store.has(ABSENT),
        lambda: store.delete(ABSENT),
        lambda: list(store.blobs()),
    ):
        with pytest.raises(StoreUnavailable) as caught:
            call()
        said.append(str(caught.value))
    return said


def test_an_unreachable_store_says_so(s3_url: str, set_aws: Callable[..., None]) -> None:
    """Every call on a server that does not answer raises the store's own error."""
    set_aws(endpoint_url="http://127.0.0.1:9", max_attempts="1")
    assert all("Could not connect" in said for said in _refusals(BlobStore(s3_url)))


def test_a_refusing_store_says_so(s3_url: str, set_aws: Callable[..., None]) -> None:
    """Wrong credentials are no missing blob, and the message holds neither of them."""
    set_aws(secret_access_key="a wrong secret")
    said = _refusals(BlobStore(s3_url))
    assert all("PermissionError" in each for each in said)
    assert "secret" not in " ".join(said)


def test_a_missing_bucket_is_no_missing_blob(s3_url: str) -> None:
    """A URL that names no bucket is told from a bucket that lacks the blob."""
    assert all("bucket" in said for said in _refusals(BlobStore("s3://no-such-bucket/store")))


def test_a_folder_that_is_none_says_so(tmp_path: Path) -> None:
    """What the operating system refuses becomes the store's own error."""
    (tmp_path / "store").touch()
    store = BlobStore(str(tmp_path / "store"))
    with pytest.raises(StoreUnavailable, match="NotADirectoryError"):
        store.get(ABSENT)
    with pytest.raises(StoreUnavailable):
        store.put(b"x")


def test_unknown_urls_are_refused() -> None:
    """A URL of no known kind is refused when the store is made."""
    with pytest.raises(StoreUnavailable, match="Protocol not known"):
        BlobStore("nothing-knows-this://bucket")
