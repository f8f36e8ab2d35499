"""What an operator reads of a collection."""

from __future__ import annotations

import pytest

from app.artefacts.service import Findings
from app.artefacts.table import amount, size, table


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1 kB"),
        (12_345, "12.3 kB"),
        (999_999, "1 MB"),
        (44_700_000, "44.7 MB"),
        (2_500_000_000, "2.5 GB"),
        (70_000_000_000_000, "70 TB"),
    ],
)
def test_sizes_are_short(count: int, shown: str) -> None:
    """Three digits and a decimal unit."""
    assert size(count) == shown


def test_the_table_gives_each_kind_its_line() -> None:
    """Blobs and bytes of what is kept, then of what is garbage, each in the order of its name."""
    findings = Findings(drafts=1)
    for description, count in (("reports", 2_000), ("model versions", 44_700_000), ("reports", 3_000)):
        findings.kept.add(description, count)
    findings.garbage.add("named by nothing in the database", 500)
    assert table(findings).splitlines() == [
        "    blobs       size",
        "        1    44.7 MB  kept: model versions",
        "        2       5 kB  kept: reports",
        "        1      500 B  garbage: named by nothing in the database",
        "        1             drafts that their writers abandoned",
    ]
    assert amount(findings.garbage) == "1 blob (500 B)"
    assert amount(findings.kept) == "3 blobs (44.7 MB)"
