"""Milliseconds of each selector per round, with 100, 1,000 and 10,000 clients.

    python benchmarks/selection.py [--clients 100 1000 10000] [--repeats 3]

A round includes all calls of the selector: the clients to inquire, the plan, the verdict on
each offer as it arrives (all clients offer), and the update of its memory from the report. The work
after the survey, which happens once, has its own column; FedSSO's clustering is left
out, because it is scikit-learn's. Times are the best of the repeats, in processor time. That of the
exact knapsack depends on the numbers.
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
    SELECT,
    SELECTORS,
    SURVEY,
    ClientReport,
    Offer,
    PendingOffers,
    Plan,
    Population,
    RoundReport,
    Selector,
    SelectorContext,
    ServerState,
    Times,
    Traffic,
)
from layers.logic.algorithms.knapsack import OfflineKP
from layers.logic.secrets import Secret
from layers.logic.seeds import generator
from layers.logic.selectors.power_of_choice import PowerOfChoice

DEADLINE_S = 1500.0
CLASSES = 10
ROUND = 5


def population_of(clients: int) -> Population:
    """Clients on the devices of the knapsack papers, with one or two labels each."""
    rng = np.random.default_rng(0)
    sizes = np.maximum(rng.normal(600, 150, clients), 100).astype(int)
    train_s = 250 / rng.uniform(1, 9, clients)
    upload_s = 100 / np.log2(1 + rng.exponential(size=clients))
    loss = rng.uniform(0, 3, clients)
    labels = np.zeros((clients, CLASSES), np.int64)
    for label in rng.integers(CLASSES, size=(2, clients)):
        labels[np.arange(clients), label] += sizes // 2
    answers: dict[str, dict[int, dict[str, Any]]] = {
        "times": {
            k: {"train_s": float(train_s[k]), "upload_s": float(upload_s[k])}
            for k in range(clients)
        },
        "loss": {k: {"loss": float(loss[k])} for k in range(clients)},
        "labels": {k: {"histogram": labels[k]} for k in range(clients)},
    }
    known = dict(enumerate(sizes.tolist()))
    return Population(known, answers, deadline_s=DEADLINE_S, secret=Secret.of_seed(0, "server"))


def offers_of(population: Population, plan: Plan) -> list[Offer]:
    """Return the offers of a plan's clients, in order of arrival."""
    norms = np.random.default_rng(1).normal(1, 0.2, len(population.samples))
    told = population.answers["times"]
    offers = [
        Offer(ROUND, k, 600, float(norms[k]), told[k]["upload_s"], at_s=told[k]["train_s"])
        for k in plan.clients
    ]
    return sorted(offers, key=lambda offer: offer.at_s)


def verdicts_on(
    selector: Selector, offers: list[Offer], population: Population, memory: Mapping[str, Any]
) -> float:
    """Let a selector answer offers as they arrive; return the seconds that it needed."""
    so_far, open_offers, took_s = None, [], 0.0
    waiting = {offer.client: None for offer in offers}
    for offer in offers:
        del waiting[offer.client]
        open_offers.append(offer)
        pending = PendingOffers(open_offers, waiting.keys(), offer.at_s, population, memory)
        began = time.thread_time()
        verdicts, so_far = selector.on_offers(pending, so_far)
        took_s += time.thread_time() - began
        if len(verdicts) > 1:
            break  # decided
        if verdicts:
            open_offers.pop()
    return took_s


def report_of(plan: Plan, population: Population) -> RoundReport:
    """Return a report of a round in which every update counted."""
    told = population.answers["times"]
    clients = tuple(
        ClientReport(
            k,
            "accepted",
            samples=600,
            steps=50,
            metrics={"loss": 1.0 + k % 7, "norm": 1.0, "divergence": 0.1},
            times=Times(0.0, ended_s=told[k]["train_s"] + 1.0),
        )
        for k in plan.clients
    )
    return RoundReport(ROUND, 0.1, len(clients), clients, Traffic(), DEADLINE_S)


def surveyed(selector: Selector, population: Population) -> Mapping[str, Any]:
    """Return a selector's memory after all clients have answered its survey."""
    questions = [question.name for question in selector.surveys()]
    if not questions:
        return {}
    if questions == ["step"]:
        clients = np.arange(len(population.samples))
        labels = np.random.default_rng(2).integers(-1, 30, clients.size)
        return {"clients": clients, "labels": labels, "samples": np.full(clients.size, 600)}
    survey = {name: population.answers[name] for name in questions}
    state = ServerState(0, np.zeros(1, np.float32), np.zeros(0, np.float32), {SURVEY: survey})
    return selector.on_survey(state, population, 0).memory.get(SELECT, {})


def round_s(selector: Selector, population: Population, memory: Mapping[str, Any]) -> float:
    """Return the seconds that one round's selection takes."""
    began = time.thread_time()
    selector.inquire(SelectorContext(population, memory, ROUND, generator(0, "inquire", ROUND)))
    plan = selector.select(
        SelectorContext(population, memory, ROUND, generator(0, "select", ROUND))
    )
    took_s = time.thread_time() - began
    if plan.offers:
        took_s += verdicts_on(selector, offers_of(population, plan), population, memory)
    report = report_of(plan, population)
    began = time.thread_time()
    selector.on_round_end(memory, report)
    return took_s + time.thread_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    selectors: dict[str, Selector] = {name: make() for name, make in SELECTORS.items()}
    selectors["offline-kp, dp"] = OfflineKP(solver="dp")
    selectors["power-of-choice, reported"] = PowerOfChoice(loss="reported")
    print("milliseconds a round (and once, after the survey)")
    print(f"{'selector':26}" + "".join(f"{f'{number:,} clients':>24}" for number in given.clients))
    populations = {number: population_of(number) for number in given.clients}
    for name, selector in sorted(selectors.items()):
        line = f"{name:26}"
        for number, population in populations.items():
            population.__dict__.pop("sizes", None)  # a deployment's are new each round
            began = time.thread_time()
            memory = surveyed(selector, population)
            once = f"({1000 * (time.thread_time() - began):,.0f})" if memory else ""
            if not memory:  # as after a round in which everybody took part
                everybody = Plan(tuple((k,) for k in range(number)))
                memory = selector.on_round_end({}, report_of(everybody, population))
            best_s = min(round_s(selector, population, memory) for _ in range(given.repeats))
            line += f"{1000 * best_s:>14,.1f}{once:>10}"
        print(line)


if __name__ == "__main__":
    main()
