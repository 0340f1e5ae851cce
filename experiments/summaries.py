"""The documents' main claims, and whether they hold here, from papers/*/summary.yaml."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cells import parsed
from criteria import verdicts
from prices import hours_left, text
from texts import Numbers


@dataclass(frozen=True)
class Claim:
    """A main claim of a document.

    Attributes:
        document: its name on the page.
        claim: what it says, with its numbers.
        here: what the records say; numbers in braces name their group.
        holds: the comparisons that decide it (criteria.py).
        rows: or the document's table whose rows decide it.
        hours: what it would cost, if no record shows it.
    """

    document: str
    claim: str
    here: str
    holds: tuple[str, ...] = ()
    rows: str = ""
    hours: float = 0.0

    def answer(self, judged: Mapping[tuple[str, str], Sequence[bool | None]]) -> str:
        """Return ``yes``, ``in part``, ``no``, or ``open`` with its price.

        Args:
            judged: whether the rows of each document's table are within; None: open.
        """
        numbers = Numbers("")
        found = judged[self.document, self.rows] if self.rows else verdicts(self.holds, numbers)
        if None in found:
            return f"open{text(hours_left(numbers.runs) if numbers.runs else self.hours or None)}"
        return "yes" if all(found) else "in part" if any(found) else "no"


def claims() -> list[Claim]:
    """Return the claims of all documents."""
    return [
        Claim(tree["document"], **{**claim, "holds": tuple(claim.get("holds", ()))})
        for tree in parsed("summary.yaml")
        for claim in tree["claims"]
    ]


def conclusion(document: str) -> str:
    """Return what a document's page says before its tables; empty if it has no such text."""
    (tree,) = (one for one in parsed("summary.yaml") if one["document"] == document)
    return Numbers("", progress=True).fill(tree.get("conclusion", ""))


def summary(judged: Mapping[tuple[str, str], Sequence[bool | None]]) -> Iterator[str]:
    """Return the lines of the table; see `Claim.answer`."""
    yield "| document | what it says | what fedmx gets | holds? |\n|---|---|---|---|\n"
    for one in claims():
        here = Numbers(group="", progress=True).fill(one.here)
        yield f"| {one.document} | {one.claim} | {here} | {one.answer(judged)} |\n"
