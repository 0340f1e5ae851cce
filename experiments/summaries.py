"""The documents' main claims, and whether they hold here, from papers/*/summary.yaml."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cells import parsed
from texts import Numbers

ANSWERS = ("yes", "in part", "no", "open")


@dataclass(frozen=True)
class Claim:
    """A main claim of a document.

    Attributes:
        document: its name on the page.
        claim: what it says, with its numbers.
        here: what the records say; numbers in braces name their group.
        holds: one of ANSWERS.
    """

    document: str
    claim: str
    here: str
    holds: str

    def __post_init__(self) -> None:
        assert self.holds in ANSWERS, f"{self.document}: {self.holds!r} is none of {ANSWERS}"


def claims() -> list[Claim]:
    """Return the claims of all documents."""
    return [
        Claim(tree["document"], **claim)
        for tree in parsed("summary.yaml")
        for claim in tree["claims"]
    ]


def summary() -> Iterator[str]:
    """Return the lines of the table."""
    yield "| document | what it says | what fedmx gets | holds? |\n|---|---|---|---|\n"
    for one in claims():
        here = Numbers(group="", progress=True).fill(one.here)
        yield f"| {one.document} | {one.claim} | {here} | {one.holds} |\n"
