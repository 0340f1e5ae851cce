"""Your own selector: clients that finish in time offer updates; the first large ones upload."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedmx import LogicError, Offer, Question, ReportedTimes, Selector


@dataclass(frozen=True)
class LargeFirst(Selector):
    """Grants the first `count` updates of at least `least` times the last round's mean norm."""

    count: int = 3
    least: float = 0.8

    def check(self, logic):  # before anything runs
        if logic.deadline_s is None:
            raise LogicError("LargeFirst fills rounds of a given length; set clock.deadline_s")

    def run(self, round):
        answers = yield from round.ask(Question("times"))
        told = ReportedTimes.of(answers)  # leaves out malformed answers
        in_time = told.train_s + told.upload_s < round.deadline_s
        for client in told.clients[in_time]:
            round.train(client, offer=True)
        left = self.count
        while round.outstanding:
            match (yield from round.next()):
                case Offer() as offer if offer.norm >= round.memory.get("enough", 0.0):
                    round.grant(offer)
                    left -= 1
                case Offer() as offer:
                    round.decline(offer)
            if not left:  # the other clients can stop training
                break
        for client in list(round.offers_due):
            round.decline(client)
        yield from round.until_all()

    def on_round_end(self, memory, report):  # after the round
        norms = [one.metrics["norm"] for one in report.clients if "norm" in one.metrics]
        return {"enough": self.least * float(np.mean(norms))} if norms else memory
