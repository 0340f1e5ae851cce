"""The removal of clients: from which round on a fork has nothing of them, and whether it is exact.

A model of which a client's update is a part cannot be rid of it. The model of before that client's
first round is, if nobody was selected because of the client until then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedmx.run import RunError, RunFolder


@dataclass(frozen=True)
class Removal:
    """The clients that a fork is without, and what of them is in the rounds before it.

    Attributes:
        clients: the clients.
        first: by client, the first round in which it was selected; None: it never was.
        selector: the selector of the run.
        by_number: whether the run's cohorts were drawn by number alone, so that these clients have
            decided about nothing before they were selected.
    """

    clients: tuple[int, ...]
    first: Mapping[int, int | None]
    selector: str
    by_number: bool

    @classmethod
    def of(cls, run: RunFolder, clients: Sequence[int], selector: str, by_number: bool) -> Removal:
        """Return the removal of clients from a run; see the attributes."""
        return cls(tuple(clients), first_rounds(run, clients), selector, by_number)

    @property
    def round(self) -> int:
        """The last round that has nothing of the clients.

        Raises:
            RunError: there is nothing of them in the run.
        """
        if not self.by_number:
            return 0
        rounds = [round for round in self.first.values() if round is not None]
        if not rounds:
            raise RunError(
                f"{_clients(self.clients)} took part in no round, so the run is already the one "
                "without; give --round to go on from one of its rounds"
            )
        return min(rounds) - 1

    def is_exact(self, round: int) -> bool:
        """Return whether a fork that begins after a round has nothing of the clients."""
        if not round:
            return True
        took_part = any(first is not None and first <= round for first in self.first.values())
        return self.by_number and not took_part

    def note(self, round: int, same_settings: bool) -> str:
        """Return what to say of a fork that begins after a round.

        Args:
            round: the round; 0: it begins from the initial model.
            same_settings: whether its other settings are those of the run.
        """
        who = _clients(self.clients)
        if self.is_exact(round):
            return f"Exact removal of {who}: {self._why_exact(round, same_settings)}"
        took_part = {
            client: first
            for client, first in self.first.items()
            if first is not None and first <= round
        }
        if took_part:
            when = ", ".join(f"client {one} from round {at} on" for one, at in took_part.items())
            why = f"the model after round {round} holds what it sent ({when})"
        else:
            why = (
                f"{self.selector} does not select by the clients' numbers alone, so the cohorts of "
                f"rounds 1 to {round} depended on {who}"
            )
        better = self.round if self.by_number else 0
        return f"No exact removal of {who}: {why}. A fork after round {better} is exact."

    def _why_exact(self, round: int, same_settings: bool) -> str:
        if not round:
            why = "the fork begins before round 1."
            if not self.by_number:
                why += (
                    f" It has to, since {self.selector} does not select by the clients' numbers "
                    "alone, so that all cohorts depended on all clients."
                )
            return why
        why = (
            f"no round up to {round} selected it, and {self.selector} selects by the clients' "
            "numbers alone, so that nothing it has or did decided who was selected."
        )
        if same_settings:
            why += (
                " So this is the run that never had it: the same experiment with this setting of "
                "without, run from the beginning, has the same bits."
            )
        return why


def first_rounds(run: RunFolder, clients: Sequence[int]) -> dict[int, int | None]:
    """Return the first round in which each of these clients was selected; None: it never was.

    A run that stepped back has forgotten the records of rounds, not what followed from them. So all
    clients may have taken part in what came after its first step back.
    """
    first: dict[int, int | None] = dict.fromkeys(clients)
    for record in run.clients():
        client, round = record.get("client"), record.get("round")
        if client in first and isinstance(round, int):
            first[client] = min(first[client] or round, round)
    back = [step["to"] + 1 for one in run.rounds() for step in one.get("stepped_back", ())]
    if back:
        first = {one: min(back if at is None else [*back, at]) for one, at in first.items()}
    return first


def _clients(clients: Sequence[int]) -> str:
    return f"client{'' if len(clients) == 1 else 's'} {', '.join(map(str, clients))}"
