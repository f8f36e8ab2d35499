"""Sections of a report about the network beside retrained and shadow networks, where there were any."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.reports.lines import AUDITED, NETWORKS, ONE_HALF, Cell, Line, Section, area, change, usual_range
from app.reports.questions import figure
from app.reports.tables import tables_of_scores
from app.reports.wording import count

Figures = Mapping[str, Any]

_USUAL: Final = "Usual range"


@dataclass(frozen=True)
class _Attack:
    """An attack that retrained networks calibrate. `usual` leads from a network to the references' range."""

    path: tuple[str, ...]
    usual: tuple[str, ...] | None
    label: str
    explanation: str

    def line(self, figures: Figures) -> Line | None:
        """Before, after, and what is usual; None where neither network was measured."""
        place, *name = self.path
        entries = [figure(figures, place, network, *name) for network in AUDITED]
        if not any(entries):
            return None
        rows = figure(figures, "sets", "forget")
        cells = [area(entry, figure(entry, "rows") or rows) for entry in entries]
        usual = figure(figures, place, "unlearned", *self.usual) if self.usual else None
        return Line(self.label, self.explanation, ONE_HALF, (*cells, usual_range(usual)))


_CENTRED: Final = _Attack(
    ("calibrated", "centred"),
    ("held_out",),
    "Calibrated attack: AUC",
    "Can a deleted row be told from an unseen one, beyond what retrained networks show of both?",
)
_MOST_MEMORISED: Final = _Attack(
    ("calibrated", "most_memorised"),
    None,
    "Most memorised tenth: AUC",
    "The same attack on those deleted rows that the original knew best. No verdict rests on it alone.",
)
_CALIBRATED: Final = (
    _CENTRED,
    _MOST_MEMORISED,
    _Attack(
        ("calibrated_noisy", "centred"),
        ("held_out",),
        "Calibrated attack, noisy images: AUC",
        "The same attack with a little noise on every image, which a table of known images cannot read.",
    ),
    _Attack(
        ("calibrated", "spread_auc"),
        ("held_out_spread",),
        "Unlike retrained networks: AUC",
        "Are deleted rows treated less as retrained networks treat them than unseen rows are?",
    ),
    _Attack(
        ("rmia",),
        None,
        "Relative attack (RMIA): AUC",
        "Is a row better known than other rows are, for how hard it is? No verdict rests on it.",
    ),
)


def short_lines(figures: Figures) -> list[Line]:
    """The two lines of the calibrated attack that are shown beside the main ones in a terminal."""
    return [line for attack in (_CENTRED, _MOST_MEMORISED) if (line := attack.line(figures))]


def beside_retrained(figures: Figures) -> Section:
    lines = [line for attack in _CALIBRATED if (line := attack.line(figures))]
    known = figure(figures, "calibrated", "unlearned", "references") or 0
    return Section(
        heading="Beside retrained networks",
        intro=(
            f"Some rows are easy for every network and some are hard. So that only what this network "
            f"remembers is left, the attack first takes away how sure {count(known, 'network')}, retrained "
            f"without the deleted rows, {'is' if known == 1 else 'are'} of each row. The usual range is "
            f"where the figure of one more retrained network would lie 19 times out of 20; the fewer there "
            f"are, the wider it is, and one alone gives none."
        ),
        columns=(*(NETWORKS[name] for name in AUDITED), _USUAL),
        lines=tuple(lines),
        notes=tuple(_notes_beside_retrained(figures)) if lines else (),
        tables=tuple(tables_of_scores(figures)),
    )


def _notes_beside_retrained(figures: Figures) -> Iterator[str]:
    found = figure(figures, "calibrated_difference")
    if found is not None:
        yield change(found, "calibrated attack")
    for name, place in (("deleted", "forget"), ("unseen", "holdout")):
        apart = figure(figures, "divergence", "unlearned", place)
        if apart is not None:
            among = "" if apart["floor"] is None else f", and theirs from one another by {apart['floor']:.3f}"
            yield (
                f"On {name} rows, this network's answers differ from the retrained networks' by "
                f"{apart['mean']:.3f} bits{among} (mean Jensen-Shannon divergence)."
            )


def beside_shadows(figures: Figures) -> Section:
    """The attacks that shadow networks make possible, on the unlearned network."""
    found = figure(figures, "shadow_attack") or {}
    rows, unseen = (figure(found, "rows", name) for name in ("forget", "holdout"))
    attacks = (
        ("ulira", "Row-by-row attack (U-LiRA): AUC", "Does a row look unlearned, or like one never seen?"),
        ("offline", "One-sided attack (LiRA): AUC", "Is the network surer of a row than those without it?"),
    )
    forgot = ", and of one that they forgot by this very method," if figure(found, "ulira") else ""
    return Section(
        heading="Row by row, beside shadow networks",
        intro=(
            f"{count(found.get('shadows', 0), 'shadow network')} learned other shares of the rows. What they "
            f"answer for a row that they never saw{forgot} tells what to expect of it. Tried on "
            f"{count(rows or 0, 'deleted row')} and {count(unseen or 0, 'unseen row')}. The verdict knows "
            f"U-LiRA alone."
        ),
        columns=(NETWORKS["unlearned"],),
        lines=tuple(
            Line(label, explanation, ONE_HALF, (area(found[name], rows),))
            for name, label, explanation in attacks
            if figure(found, name)
        ),
    )


def relearning(figures: Figures) -> Section | None:
    found = figure(figures, "relearning")
    if found is None:
        return None
    steps, budget = found["steps"], found["budget"]
    cells = [_steps([steps[name]], budget) for name in AUDITED]
    return Section(
        heading="How fast it comes back",
        intro=(
            f"Copies of the networks were trained on the deleted rows, all in the same way, until they were "
            f"right on {100 * found['target']:.1f}% of them, nearly as many as the original. A network that "
            f"still holds the rows gets there at once; one that never saw them takes as long as a retrained "
            f"one; one that was damaged takes longer. At most {count(budget, 'step')} were tried."
        ),
        columns=(*(NETWORKS[name] for name in AUDITED), NETWORKS["reference"]),
        lines=(
            Line(
                "Steps until known again",
                "A number for each retrained network; they have no interval.",
                None,
                (*cells, _steps(steps["references"], budget)),
            ),
        ),
        notes=(_index(found),),
    )


def _steps(steps: list[int | None], budget: int) -> Cell | None:
    told = [f"more than {budget}" if each is None else str(each) for each in steps]
    return Cell(text=", ".join(told)) if told else None


def _index(found: Figures) -> str:
    if found["ain"] is None and found["ain_at_least"] is None:
        return (
            "There is no relearning index (AIN): there are no retrained networks, or they needed no step, or "
            "did not get there either."
        )
    least = f"more than {found['ain_at_least']:.2g}" if found["ain"] is None else f"{found['ain']:.2g}"
    return (
        f"Relearning index (AIN), its steps over a retrained network's: {least}. Below 1 something was left, "
        f"above 1 too much was taken away."
    )
