"""What a collection found, as lines for an operator."""

from __future__ import annotations

from collections.abc import Iterator

from app.artefacts.service import Findings, Tally

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def table(findings: Findings) -> str:
    """Blobs and bytes of each kind that is kept, and of each kind of garbage."""
    lines = [f"{'blobs':>9} {'size':>10}", *_part("kept", findings.kept), *_part("garbage", findings.garbage)]
    return "\n".join([*lines, f"{findings.drafts:>9} {'':>10}  drafts that their writers abandoned"])


def amount(tally: Tally) -> str:
    """How much all of it is together."""
    count = tally.blobs.total()
    return f"{count} blob{'s' if count != 1 else ''} ({size(tally.bytes.total())})"


def size(count: int) -> str:
    """Bytes in the unit that leaves at most three digits before the point."""
    value, unit = float(count), 0
    while value >= 999.5 and unit + 1 < len(_UNITS):
        value, unit = value / 1000, unit + 1
    return f"{value:.0f} B" if unit == 0 else f"{value:.3g} {_UNITS[unit]}"


def _part(heading: str, tally: Tally) -> Iterator[str]:
    for description, count in sorted(tally.blobs.items()):
        yield f"{count:>9} {size(tally.bytes[description]):>10}  {heading}: {description}"
