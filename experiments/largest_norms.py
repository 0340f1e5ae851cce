"""A selector for a figure of a paper: all clients train, and the largest updates are uploaded."""

from __future__ import annotations

from dataclasses import dataclass

from fedmx import LogicError, Selector


@dataclass(frozen=True)
class LargestNorms(Selector):
    """Grants the `count` offers with the largest ||delta_k||; the lowest clients if equal.

    The comparison of the ten largest norms with ten clients at random in the paper on knapsack
    selection (figure 4). All clients train in every round. It decides when every client has offered
    or was lost, so it works without a deadline only, and it keeps nothing.
    """

    count: int = 10

    def __post_init__(self):
        if self.count < 1:
            raise LogicError(f"count must be 1 or more, not {self.count}")

    def check(self, logic):
        """Refuse a deadline, before which some clients may not have offered."""
        if logic.deadline_s is not None:
            raise LogicError("LargestNorms waits for all clients; leave out clock.deadline_s")

    def run(self, round):
        """Grant the largest norms when no client trains any more."""
        for client in round.clients:
            round.train(client, offer=True)
        while round.outstanding:
            yield from round.next()
            if not round.offers_due:
                break
        ranked = sorted(round.offers.values(), key=lambda offer: (-offer.norm, offer.client))
        largest = {offer.client for offer in ranked[: self.count]}
        for offer in list(round.offers.values()):
            (round.grant if offer.client in largest else round.decline)(offer)
        yield from round.until_all()
