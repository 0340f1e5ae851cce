"""Milliseconds of each selector per round, with 100, 1,000 and 10,000 clients.

    python benchmarks/selection.py [--clients 100 1000 10000] [--repeats 3]

A round is the selector's algorithm: until its first tasks, without the time in which clients answer
its questions; on each offer as it arrives (all clients offer), until all are decided; and the
update of its memory from the report. Times are the best of the repeats, in processor time. The
first round of a selector that asks clients once has its own column; FedSSO's clustering is left
out, because it is scikit-learn's. The time of the exact knapsack depends on the numbers.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from layers.logic import (
    SELECTORS,
    ClientReport,
    Offer,
    OpenRound,
    RoundReport,
    Selector,
    Times,
    Traffic,
    Verdict,
)
from layers.logic.algorithms.fedsso import Clustering, FedSSO
from layers.logic.algorithms.knapsack import OfflineKP
from layers.logic.client_sizes import ClientSizes
from layers.logic.core.round import Answers, Changed
from layers.logic.secrets import Secret
from layers.logic.selectors.power_of_choice import PowerOfChoice

DEADLINE_S = 1500.0
CLASSES = 10
ROUND = 5


class Clients:
    """Clients on the devices of the knapsack papers, with one or two labels each.

    Attributes:
        sizes: their numbers of samples.
        answers: what they answer, by question, then by client.
    """

    def __init__(self, clients: int) -> None:
        rng = np.random.default_rng(0)
        sizes = np.maximum(rng.normal(600, 150, clients), 100).astype(int)
        train_s = 250 / rng.uniform(1, 9, clients)
        upload_s = 100 / np.log2(1 + rng.exponential(size=clients))
        loss = rng.uniform(0, 3, clients)
        labels = np.zeros((clients, CLASSES), np.int64)
        for label in rng.integers(CLASSES, size=(2, clients)):
            labels[np.arange(clients), label] += sizes // 2
        self.sizes = ClientSizes.of(dict(enumerate(sizes.tolist())))
        self.answers: dict[str, dict[int, dict[str, Any]]] = {
            "times": {
                k: {"train_s": float(train_s[k]), "upload_s": float(upload_s[k])}
                for k in range(clients)
            },
            "loss": {k: {"loss": float(loss[k])} for k in range(clients)},
            "labels": {k: {"histogram": labels[k]} for k in range(clients)},
        }

    def offers_of(self, clients: list[int]) -> list[Offer]:
        """Return the offers of some clients, in order of arrival."""
        norms = np.random.default_rng(1).normal(1, 0.2, len(self.sizes))
        told = self.answers["times"]
        offers = [
            Offer(ROUND, k, 600, float(norms[k]), told[k]["upload_s"], at_s=told[k]["train_s"])
            for k in clients
        ]
        return sorted(offers, key=lambda offer: offer.at_s)

    def report_of(self, clients: list[int]) -> RoundReport:
        """Return a report of a round in which every update counted."""
        told = self.answers["times"]
        reports = tuple(
            ClientReport(
                k,
                "accepted",
                samples=600,
                steps=50,
                metrics={"loss": 1.0 + k % 7, "norm": 1.0, "divergence": 0.1},
                times=Times(0.0, ended_s=told[k]["train_s"] + 1.0),
            )
            for k in clients
        )
        return RoundReport(ROUND, 0.1, len(reports), reports, Traffic(), DEADLINE_S)

    def round(
        self, memory: Mapping[str, Any], survey: Mapping[str, Mapping[int, Any]]
    ) -> OpenRound:
        """Return a round that begins, with what is known from those before."""
        return OpenRound(
            self.sizes,
            number=ROUND,
            memory=memory,
            survey=survey,
            deadline_s=DEADLINE_S,
            secret=Secret.of_seed(0, "server"),
        )


class Played:
    """The algorithm of a round, as far as it takes time of the selector.

    Attributes:
        took_s: seconds that it took until now.
        clients: the clients that train.
    """

    def __init__(self, selector: Selector, round: OpenRound, clients: Clients) -> None:
        self.took_s = 0.0
        self._round, self._steps = round, selector.run(round)
        wait = self._resumed(None)
        while isinstance(wait, Answers):
            told = clients.answers.get(wait.question.name, {})
            wait = self._resumed({one: told[one] for one in wait.clients})
        if isinstance(wait, Changed):
            self._resumed(True)
        lanes, round.planned = round.planned, []
        self.clients = [client for lane in lanes for client in lane.clients]
        if lanes and lanes[0].offer:
            self._answer_offers(clients.offers_of(self.clients))
        self._steps.close()

    def _answer_offers(self, offers: list[Offer]) -> None:
        round, verdicts = self._round, list[Verdict]()
        round.in_flight = round.offers_due = dict.fromkeys(self.clients)

        def answer(verdict: Verdict) -> None:
            verdicts.append(verdict)
            round.offers.pop(verdict.client, None)

        round.answer = answer
        for offer in offers:
            del round.offers_due[offer.client]
            round.offers[offer.client] = offer
            verdicts.clear()
            self._resumed(offer)
            if len(verdicts) > 1:
                return  # decided

    def _resumed(self, value: Any) -> Any:
        """Resume the algorithm; return what it waits for, or None if it has ended."""
        began = time.thread_time()
        try:
            return self._steps.send(value)
        except StopIteration:
            return None
        finally:
            self.took_s += time.thread_time() - began


def known(selector: Selector, clients: Clients) -> tuple[OpenRound, float]:
    """Return a round that knows what the selector does after its first one, and the seconds of
    that, if it asks clients once."""
    everybody = list(clients.sizes)
    if isinstance(selector, FedSSO):
        ids = np.arange(len(everybody))
        labels = np.random.default_rng(2).integers(-1, 30, ids.size)
        points = np.zeros((ids.size, 2))
        memory = Clustering(ids, labels, np.full(ids.size, 600), points).memory()
        return clients.round(memory, {"step": {one: {} for one in everybody}}), 0.0
    first = clients.round({}, {})
    once_s = Played(selector, first, clients).took_s if selector.asks else 0.0
    # As after a round in which everybody took part.
    memory = selector.on_round_end(first.memory, clients.report_of(everybody))
    return clients.round(memory, first.survey), once_s


def round_s(selector: Selector, before: OpenRound, clients: Clients) -> float:
    """Return the seconds that one round's selection takes."""
    round = clients.round(before.memory, before.survey)
    played = Played(selector, round, clients)
    report = clients.report_of(played.clients)
    began = time.thread_time()
    selector.on_round_end(round.memory, report)
    return played.took_s + time.thread_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    selectors: dict[str, Selector] = {name: make() for name, make in SELECTORS.items()}
    selectors["offline-kp, dp"] = OfflineKP(solver="dp")
    selectors["power-of-choice, reported"] = PowerOfChoice(loss="reported")
    print("milliseconds a round (and of the first one)")
    print(f"{'selector':26}" + "".join(f"{f'{number:,} clients':>24}" for number in given.clients))
    populations = [Clients(number) for number in given.clients]
    for name, selector in sorted(selectors.items()):
        line = f"{name:26}"
        for clients in populations:
            before, once_s = known(selector, clients)
            once = f"({1000 * once_s:,.0f})" if once_s else ""
            best_s = min(round_s(selector, before, clients) for _ in range(given.repeats))
            line += f"{1000 * best_s:>14,.1f}{once:>10}"
        print(line)


if __name__ == "__main__":
    main()
