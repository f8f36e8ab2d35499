"""Places of data sets: folders of this machine and object stores show the same files, and nothing else."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import fsspec
import pytest

from workers.data.place import LARGEST_IMAGE, LocalPlace, Place, place
from workers.data.reader import BadFormat, DataMissing

PNG = frozenset({".png"})
Put = Callable[..., Place]


@pytest.fixture(params=["folder", "memory", "s3"])
def put(request: pytest.FixtureRequest, tmp_path: Path) -> Put:
    """Put files into an empty place of each kind, and open it."""
    urls = {"folder": lambda: str(tmp_path), "memory": lambda: f"memory://tests/{uuid.uuid4().hex}"}
    url = urls[request.param]() if request.param in urls else request.getfixturevalue("s3_url")

    def put(files: Mapping[str, bytes], at: str = "") -> Place:
        for path, content in files.items():
            with fsspec.open(f"{url}/{path}", "wb", auto_mkdir=True) as file:
                file.write(content)
        return place(f"{url}/{at}" if at else url)

    return put


def test_files_come_in_the_order_of_their_paths(put: Put) -> None:
    """By bytes, whatever folders they are in: `-` comes before `/`, and capitals before small letters."""
    paths = ["b/a.png", "a/z.png", "a-b/c.png", "a/Z.PNG", "a/é.png", "a.png", "a/b/c/d.png"]
    at = put(dict.fromkeys([*paths, "a/b.txt", "README"], b"x"))
    assert list(at.files(PNG)) == sorted(paths, key=str.encode)


def test_hidden_files_and_folders_are_left_out(put: Put) -> None:
    """What other programs hide beside the images is none of them."""
    at = put(dict.fromkeys(["a/.b.png", ".c/d.png", "a/.e/f.png", "a/g.png", "a/h.i.png"], b"x"))
    assert list(at.files(PNG)) == ["a/g.png", "a/h.i.png"]


def test_images_come_in_the_order_they_are_asked_for(put: Put) -> None:
    """Missing files, folders and what lies outside give nothing, in their place."""
    at = put({f"a/{number}.png": str(number).encode() for number in range(40)})
    asked = ["a/7.png", "a/x.png", "a", "a/../a/1.png/", "../a/1.png", "/etc/hostname", *at.files(PNG)]
    found = list(at.images(asked))
    assert found[:6] == [b"7", b"", b"", b"", b"", b""]
    assert [b"a/" + content + b".png" for content in found[6:]] == [path.encode() for path in asked[6:]]


def test_an_image_of_many_megabytes_is_nothing(put: Put) -> None:
    """A file is not brought into memory because of its name."""
    at = put({"large.png": bytes(LARGEST_IMAGE + 1)})
    assert list(at.images(["large.png"])) == [b""]


def test_a_file_can_be_read_and_sought(put: Put) -> None:
    """Parquet and .npz files are read from their end."""
    with put({"a/table.parquet": b"0123456789"}).open("a/table.parquet") as file:
        file.seek(-3, os.SEEK_END)
        assert file.read() == b"789"


def test_what_is_there_is_known(put: Put) -> None:
    """Files and folders are told apart, and names listed."""
    at = put({"b.parquet": b"", "a.parquet": b"", "c/d.parquet": b"", "e.txt": b""})
    assert at.is_folder()
    assert not at.has()
    assert [at.has(path) for path in ("a.parquet", "c/d.parquet", "c", "x")] == [True, True, False, False]
    assert at.names(".parquet") == ["a.parquet", "b.parquet"]
    with pytest.raises(DataMissing):
        at.open("x.parquet")


def test_a_location_may_be_a_file(put: Put) -> None:
    """The empty path is the location itself."""
    at = put({"data.npz": b"rows"}, at="data.npz")
    assert at.has()
    assert not at.is_folder()
    with at.open() as file:
        assert file.read() == b"rows"


def test_a_store_that_cannot_be_reached_is_no_missing_image(
    s3_url: str, set_aws: Callable[..., None]
) -> None:
    """No answer is not the answer that there is nothing."""
    set_aws(endpoint_url="http://127.0.0.1:1", max_attempts="1")
    with pytest.raises(DataMissing, match="cannot be reached"):
        list(place(s3_url).images(["a.png"]))
    with pytest.raises(DataMissing, match="cannot be reached"):
        place(s3_url).is_folder()


# --- links ------------------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A location with two images, beside a secret."""
    root = tmp_path / "root"
    for name in ("cats/a.png", "dogs/b.png"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())
    (tmp_path / "secret.png").write_bytes(b"secret")
    return root


def _found(root: Path) -> dict[str, bytes]:
    at = LocalPlace(str(root))
    paths = list(at.files(PNG))
    return dict(zip(paths, at.images(paths), strict=True))


def test_links_inside_the_location_are_what_they_lead_to(root: Path) -> None:
    """Links to files and to folders, hidden ones among them."""
    (root / ".store").mkdir()
    (root / ".store/c.png").write_bytes(b"stored")
    (root / "cats/link.png").symlink_to(root / "dogs/b.png")
    (root / "owls").symlink_to(".store")
    assert _found(root) == {
        "cats/a.png": b"cats/a.png",
        "cats/link.png": b"dogs/b.png",
        "dogs/b.png": b"dogs/b.png",
        "owls/c.png": b"stored",
    }


@pytest.mark.parametrize("target", ["../../secret.png", "nowhere.png", "link.png"])
def test_a_link_that_leads_out_or_nowhere_is_an_image_that_cannot_be_read(root: Path, target: str) -> None:
    """It is counted, so that nobody misses it, and gives nothing."""
    (root / "cats/link.png").symlink_to(target)
    assert _found(root)["cats/link.png"] == b""


@pytest.mark.parametrize("target", ["/etc", "..", "nowhere", "cats"])
def test_a_folder_outside_is_not_entered(root: Path, target: str) -> None:
    """A link to a folder is followed inside the location only, and otherwise said."""
    (root / "link").symlink_to(target)
    if target == "cats":
        assert set(_found(root)) == {"cats/a.png", "dogs/b.png", "link/a.png"}
    else:
        with pytest.raises(BadFormat, match="leads out of it, or nowhere"):
            _found(root)


def test_knots_of_links_have_an_end(root: Path) -> None:
    """Links to their own folder, to one above, and of folders to each other do not go on for ever."""
    (root / "cats/self").symlink_to(".")
    (root / "cats/up").symlink_to("..")
    (root / "cats/dogs").symlink_to("../dogs")
    (root / "dogs/cats").symlink_to("../cats")
    for number in range(12):
        (root / f"{number}").mkdir()
        for other in range(12):
            (root / f"{number}/{other}").symlink_to(f"../{other}")
    found = _found(root)
    assert {"cats/a.png", "dogs/b.png"} <= set(found)
    assert len(found) < 10


def test_a_link_put_in_the_way_later_leads_nowhere(root: Path) -> None:
    """Files are judged when they are opened, not when they were listed."""
    at = LocalPlace(str(root))
    paths = list(at.files(PNG))
    (root / "cats/a.png").unlink()
    (root / "cats/a.png").symlink_to(root.parent / "secret.png")
    (root / "dogs").rename(root.parent / "outside")
    (root / "dogs").symlink_to(root.parent / "outside")
    assert list(at.images(paths)) == [b"", b""]


def test_a_link_in_place_of_the_location_leads_nowhere(root: Path) -> None:
    """The location was a real path when it was registered."""
    at = LocalPlace(str(root / "cats"))
    (root / "cats").rename(root.parent / "outside")
    (root / "cats").symlink_to(root.parent / "outside")
    assert not at.is_folder()
    assert list(at.images(["a.png"])) == [b""]


@pytest.mark.parametrize(
    "path", ["../secret.png", "cats/../../secret.png", "/etc/hostname", "cats", "", "a\0b", "x" * 5000]
)
def test_no_path_leads_out(root: Path, path: str) -> None:
    """Neither `..` nor absolute paths; and folders are no files."""
    with pytest.raises(DataMissing):
        LocalPlace(str(root)).open(path)


def test_pipes_are_not_waited_for(root: Path) -> None:
    """Nobody writes into them."""
    os.mkfifo(root / "cats/pipe.png")
    assert _found(root)["cats/pipe.png"] == b""


def test_deep_folders_are_refused(tmp_path: Path) -> None:
    """Before they are too deep for the program."""
    deep = tmp_path.joinpath(*["d"] * 100)
    deep.mkdir(parents=True)
    with pytest.raises(BadFormat, match="nested"):
        list(LocalPlace(str(tmp_path)).files(PNG))


def test_names_that_are_no_text_are_found(tmp_path: Path) -> None:
    """File names are bytes."""
    (tmp_path / os.fsdecode(b"\xff.png")).write_bytes(b"odd")
    assert _found(tmp_path) == {"\udcff.png": b"odd"}
