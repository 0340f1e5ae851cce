from dataclasses import dataclass

import numpy as np

from fedmx import Need, Offer, Question, ReportedTimes, Selector


@dataclass(frozen=True)
class LargeFirst(Selector):
    """Grants the first `count` updates of at least `least` times the last round's mean norm."""

    requires = frozenset({Need.DEADLINE})
    count: int = 3
    least: float = 0.8

    def run(self, round):
        answers = yield from round.ask(Question("times"))
        told = ReportedTimes.of(answers)  # without malformed answers
        for client in told.clients[told.train_s + told.upload_s < round.deadline_s]:
            round.train(client, offer=True)
        left = self.count
        while left and round.outstanding:
            match (yield from round.next()):
                case Offer() as offer if offer.norm >= round.memory.get("enough", 0.0):
                    round.grant(offer)
                    left -= 1
                case Offer() as offer:
                    round.decline(offer)
        for client in list(round.offers_due):  # they can stop training
            round.decline(client)
        yield from round.until_all()

    def on_round_end(self, memory, report):
        norms = [one.metrics["norm"] for one in report.clients if "norm" in one.metrics]
        return {"enough": self.least * float(np.mean(norms))} if norms else memory
