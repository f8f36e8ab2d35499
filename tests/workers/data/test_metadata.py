"""Tables that say what image files are, in three formats."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workers.data.metadata import Metadata, read_metadata
from workers.data.place import LocalPlace
from workers.data.reader import BadFormat, DataMissing

ROWS: list[dict[str, Any]] = [
    {"file": "a/1.png", "sample_id": "x, y", "subject": "ann", "split": "train", "label": 3, "note": 1},
    {"file": "b/é.png", "sample_id": 'say "z"', "subject": "", "split": "test", "label": 0, "note": 2},
    {"file": "../out.png", "sample_id": "w", "subject": "bob", "split": "", "label": 12, "note": 3},
]


def _csv(rows: list[dict[str, Any]]) -> bytes:
    def cell(value: object) -> str:
        return '"' + str(value).replace('"', '""') + '"'

    lines = [",".join(rows[0]), *(",".join(map(cell, row.values())) for row in rows)]
    return "\r\n".join(lines).encode()


def _json_lines(rows: list[dict[str, Any]]) -> bytes:
    return b"\n\n".join(json.dumps(row).encode() for row in rows)


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), buffer)
    return buffer.getvalue()


WRITERS = {"csv": _csv, "jsonl": _json_lines, "parquet": _parquet}


def _read(folder: Path, name: str, content: bytes) -> Metadata:
    (folder / name).write_bytes(content)
    return read_metadata(LocalPlace(str(folder)), name)


@pytest.mark.parametrize("kind", WRITERS)
def test_every_format_says_the_same(tmp_path: Path, kind: str) -> None:
    """Columns by their names, in any order; integers are written out, other columns passed over."""
    table = _read(tmp_path, f"rows.{kind}", WRITERS[kind](ROWS))
    for name in ("file", "sample_id", "subject", "split", "label"):
        assert list(getattr(table, name)) == [str(row[name]) for row in ROWS]


@pytest.mark.parametrize("kind", WRITERS)
def test_columns_may_be_missing(tmp_path: Path, kind: str) -> None:
    """All but `file`: their values are empty."""
    table = _read(tmp_path, f"rows.{kind.upper()}", WRITERS[kind]([{"file": "a"}, {"file": "b"}]))
    assert list(table.file) == ["a", "b"]
    assert list(table.label) == ["", ""]
    assert not table.label


@pytest.mark.parametrize("kind", WRITERS)
def test_a_table_without_files_is_refused(tmp_path: Path, kind: str) -> None:
    """Nothing could be read by it."""
    with pytest.raises(BadFormat, match="file"):
        _read(tmp_path, f"rows.{kind}", WRITERS[kind]([{"label": 1}]))


@pytest.mark.parametrize("value", [None, 1.5, True, [1], {"a": 1}])
def test_what_is_neither_text_nor_integer_is_empty(tmp_path: Path, value: object) -> None:
    """A label of 1.5 is no label."""
    table = _read(tmp_path, "rows.jsonl", json.dumps({"file": "a", "label": value}).encode())
    assert list(table.label) == [""]


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    """Spreadsheets write one."""
    assert list(_read(tmp_path, "rows.csv", b"\xef\xbb\xbffile,label\na,1\n").file) == ["a"]


def test_short_lines_have_empty_cells(tmp_path: Path) -> None:
    """And empty lines are none."""
    table = _read(tmp_path, "rows.csv", b"file,label\na\n\nb,2\n")
    assert (list(table.file), list(table.label)) == (["a", "b"], ["", "2"])


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("rows.csv", b"file,label\na,1,2\n", "line 2 has more cells than the first"),
        ("rows.csv", b'file\n"a"b\n', "line 2 is not CSV"),
        ("rows.csv", b"file\na\n" + b"x" * 200_000, "line 3 is not CSV"),
        ("rows.csv", b"file\na\n" + b"x" * 2_000_000, "line 3 is too long"),
        ("rows.csv", b"file,file\na,b\n", "not exactly one column file"),
        ("rows.csv", b"", "not exactly one column file"),
        ("rows.csv", b"file\na\n\xff\n", "not UTF-8"),
        ("rows.jsonl", b'{"file": "a"}\n{"file": ', "line 2 is not JSON"),
        ("rows.jsonl", b'{"file": "a"}\n["b"]', "line 2 is not an object"),
        ("rows.jsonl", b"[" * 100_000, "line 1 is not JSON"),
        ("rows.parquet", b"PAR1 and no more", "not a parquet file"),
        ("rows.txt", b"file\na\n", "must end with one of"),
        ("rows", b"file\na\n", "must end with one of"),
    ],
)
def test_a_damaged_table_is_refused(tmp_path: Path, name: str, content: bytes, fault: str) -> None:
    """The line is said, and nothing that stands in it."""
    with pytest.raises(BadFormat, match=fault):
        _read(tmp_path, name, content)


def test_a_table_outside_the_location_is_missing(tmp_path: Path) -> None:
    """As if it were not there."""
    (tmp_path / "secret.csv").write_bytes(b"file\na\n")
    (tmp_path / "root").mkdir()
    (tmp_path / "root/link.csv").symlink_to("../secret.csv")
    for path in ("../secret.csv", "link.csv", "other.csv"):
        with pytest.raises(DataMissing):
            read_metadata(LocalPlace(str(tmp_path / "root")), path)
