"""Lists of items as files: every kind of line, and every fault by its line."""

from __future__ import annotations

import io
import json

import pytest

from app.deletions.lists import ItemList, MediaType
from app.deletions.matching import Run
from app.errors import Faults

NDJSON: MediaType = "application/x-ndjson"
CSV: MediaType = "text/csv"


def _read(
    content: bytes, media_type: MediaType = NDJSON
) -> tuple[list[tuple[int, str | None, str | None, str | None]], dict[str, str]]:
    """The items with their lines, and the faults by their places."""
    faults = Faults()
    items: list[tuple[int, str | None, str | None, str | None]] = []
    for batch in ItemList(io.BytesIO(content), media_type, faults):
        if isinstance(batch, Run):
            pairs = zip(batch.places, batch.sample_ids, strict=True)
            items += [(line, None, sample_id, None) for line, sample_id in pairs]
        else:
            items += [(line, item.dataset, item.sample_id, item.subject) for line, item in batch]
    return items, {fault.pointer: fault.detail for fault in faults.first}


def test_lines_of_json_are_items() -> None:
    """Whatever names a sample or a subject, with or without a data set."""
    content = b'{"sample_id": "a"}\n{"subject": "Jane"}\n{"dataset": "faces", "sample_id": "b"}\n'
    assert _read(content) == ([(1, None, "a", None), (2, None, None, "Jane"), (3, "faces", "b", None)], {})


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_line_ends_marks_and_gaps_do_not_matter(end: bytes, mark: bytes) -> None:
    """Nor does a last line without an end; lines are counted as an editor counts them."""
    content = mark + b'{"sample_id": "a"}' + end + end + b'  {"sample_id":"b"}  '
    assert _read(content) == ([(1, None, "a", None), (3, None, "b", None)], {})


@pytest.mark.parametrize(("media_type", "head"), [(NDJSON, b""), (CSV, b"sample_id\n")])
def test_in_a_long_list_every_line_keeps_its_number(media_type: MediaType, head: bytes) -> None:
    """Wherever the pieces end in which it is read, and whatever kind of line comes between."""
    ids = [f"face-{'x' * (number % 97)}{number}" for number in range(20_000)]
    ids[7_001], ids[15_002] = "Gesicht-ä", "with, comma"
    rows = ids if media_type == CSV else [json.dumps({"sample_id": name}) for name in ids]
    lines = [f'"{row}"' if media_type == CSV and "," in row else row for row in rows]
    content = head + "\n".join(lines).encode()
    first = 1 + head.count(b"\n")
    expected = [(number, None, name, None) for number, name in enumerate(ids, first)]
    assert _read(content, media_type) == (expected, {})


def test_ids_of_any_alphabet_are_read() -> None:
    """Escaped or as they are."""
    content = '{"sample_id": "Gesicht-ä"}\n{"sample_id": "\\u00e4\\\\\\"x"}\n'.encode()
    assert [sample for _, _, sample, _ in _read(content)[0]] == ["Gesicht-ä", 'ä\\"x']


@pytest.mark.parametrize(
    ("line", "place"),
    [
        (b"not json", "line 2: item"),
        (b'["a"]', "line 2: item"),
        (b'{"sample_id": ""}', "line 2: sample_id"),
        (b'{"sample_id": 7}', "line 2: sample_id"),
        (b'{"sample_id": "a\\u0000"}', "line 2: sample_id"),
        (b'{"sample_id": "a", "subject": "b"}', "line 2: item"),
        (b"{}", "line 2: item"),
        (b'{"sample_id": "a", "colour": "red"}', "line 2: colour"),
        (b'{"sample_id": "\xff"}', "line 2: item"),
        (b'{"sample_id": "' + b"a" * 1001 + b'"}', "line 2: sample_id"),
        (b'{"sample_id": "' + b"a" * 20_000 + b'"}', "line 2"),
    ],
)
def test_a_wrong_line_is_named_and_the_others_are_read(line: bytes, place: str) -> None:
    """The fault does not repeat what was sent."""
    items, faults = _read(b'{"sample_id": "x"}\n' + line + b'\n{"sample_id": "y"}\n')
    assert [number for number, *_ in items] == [1, 3]
    assert list(faults) == [place]
    assert "red" not in str(faults)


def test_columns_of_csv_are_items() -> None:
    """In any order, quoted or not; an empty cell says nothing."""
    content = b'dataset,sample_id,subject\nfaces,a,\n,"b, the second",\n,,Jane\n'
    assert _read(content, CSV) == (
        [(2, "faces", "a", None), (3, None, "b, the second", None), (4, None, None, "Jane")],
        {},
    )


def test_csv_with_marks_and_windows_line_ends_is_read() -> None:
    """As spreadsheets write it."""
    assert _read(b"\xef\xbb\xbfsample_id\r\na\r\n\r\nb\r\n", CSV)[0] == [
        (2, None, "a", None),
        (4, None, "b", None),
    ]


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"", "line 1"),
        (b"name\na\n", "line 1"),
        (b"sample_id,sample_id\na,b\n", "line 1"),
        (b"sample_id\na,b\n", "line 2"),
        (b'sample_id,subject\n"a,b\n', "body"),
        (b"sample_id,subject\n,\n", "line 2: item"),
        (b"sample_id\n" + b"a" * 20_000 + b"\n", "body"),
        (b"sample_id\n\xff\n", "line 2: sample_id"),
    ],
)
def test_wrong_csv_is_named(content: bytes, place: str) -> None:
    """By its line where there is one."""
    assert list(_read(content, CSV)[1]) == [place]


def test_of_many_wrong_lines_all_are_counted() -> None:
    """The first thousand are named."""
    faults = Faults()
    assert not any(ItemList(io.BytesIO(b"x\n" * 3000), NDJSON, faults))
    assert (faults.count, len(faults.first)) == (3000, 1000)
