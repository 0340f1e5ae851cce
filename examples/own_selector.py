"""Your own selector: clients that finish in time offer updates; the first large ones upload."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedmx import LogicError, Plan, Question, ReportedTimes, Selector, Verdict, single_lanes


@dataclass(frozen=True)
class LargeFirst(Selector):
    """Grants the first `count` updates of at least `least` times the last round's mean norm."""

    count: int = 3
    least: float = 0.8

    def check(self, logic):  # before anything runs
        if logic.deadline_s is None:
            raise LogicError("LargeFirst fills rounds of a given length; set clock.deadline_s")

    def inquire(self, context):  # before each round
        return [(Question("times"), context.clients)]

    def select(self, context):
        told = ReportedTimes.of(context.population)  # leaves out malformed answers
        in_time = told.train_s + told.upload_s < context.population.deadline_s
        return Plan(single_lanes(told.clients[in_time].tolist()), offers=True)

    def on_offers(self, pending, so_far):  # after each offer and each lost client
        left = self.count if so_far is None else so_far
        verdicts = []
        for offer in pending.offers:
            granted = left > 0 and offer.norm >= pending.memory.get("enough", 0.0)
            left -= granted
            verdicts.append(Verdict(offer.round, offer.client, granted))
        if pending.offers and not left:  # the other clients can stop training
            verdicts += [
                Verdict(pending.offers[0].round, client, False) for client in pending.waiting
            ]
        return verdicts, left

    def on_round_end(self, memory, report):  # after the round
        norms = [one.metrics["norm"] for one in report.clients if "norm" in one.metrics]
        return {"enough": self.least * float(np.mean(norms))} if norms else memory
