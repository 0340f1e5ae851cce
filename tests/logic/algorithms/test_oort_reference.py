"""Oort works out what the authors' own selector works out, round by round.

`oort_reference.json` has numbers that the selector of FedScale (thirdparty/oort) worked out on a
script; its note says how they were got.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from layers.logic import ClientReport, Population, RoundReport, Traffic
from layers.logic.algorithms.oort import TOLD, Oort, Standing, best, candidates_for
from layers.logic.core.report import Times
from layers.logic.core.selector import with_numbers
from layers.logic.seeds import generator

GIVEN = json.loads((Path(__file__).parent / "oort_reference.json").read_text())
SAMPLES, TOOK_S, ASKED = GIVEN["samples"], GIVEN["took_s"], GIVEN["asked"]
OORT = Oort(count=ASKED, **GIVEN["settings"])
CLOSE = pytest.approx


def report_of(script: dict[str, Any]) -> RoundReport:
    """Return the script's round; who was late is declined, lost or rejected in turn."""
    came = {int(client): loss for client, loss in script["came"].items()}
    told = [
        ClientReport(
            client,
            "accepted",
            samples=SAMPLES[client],
            metrics={"loss": 99.0, "rms_loss": loss},
            times=Times(1.0, ended_s=1.0 + TOOK_S[client]),
        )
        for client, loss in came.items()
    ]
    fates = ("declined", "lost", "rejected")
    late = [
        # It was given up before it would have ended: how long it takes is known from before.
        ClientReport(client, fates[script["round"] % 3], times=Times(0.0, ended_s=1.0))
        for client in script["late"]
    ]
    clients = (*told, *late)
    return RoundReport(script["round"], 0.1, len(clients), clients, Traffic())


def the_run() -> list[tuple[dict[str, Any], Population, dict[str, Any], Standing]]:
    """Return each round from the second: the script, who is there, the memory, our numbers."""
    memory: dict[str, Any] = with_numbers({}, TOLD, dict(enumerate(TOOK_S)))
    seen = []
    for script in GIVEN["rounds"]:
        if script["round"] > 1:
            absent = script["absent"]
            there = Population({k: n for k, n in enumerate(SAMPLES) if k not in absent})
            seen.append(
                (script, there, memory, OORT.standing(there, memory, script["round"], ASKED))
            )
        memory = dict(OORT.on_round_end(memory, report_of(script)))
    return seen


RUN = the_run()
ROUNDS = pytest.mark.parametrize(
    ("script", "there", "memory", "standing"), RUN, ids=[str(one[0]["round"]) for one in RUN]
)


@ROUNDS
def test_the_scale_and_the_preferred_duration_are_theirs(script, there, memory, standing) -> None:
    assert standing.scale.clip == CLOSE(script["clip"], rel=1e-9)
    assert standing.scale.least == CLOSE(script["least"], rel=1e-9)
    assert standing.scale.span == CLOSE(script["span"], rel=1e-9)
    assert standing.preferred_s == CLOSE(script["preferred_s"], rel=1e-9)


@ROUNDS
def test_as_many_are_explored_and_the_same_are_barred(script, there, memory, standing) -> None:
    assert (standing.exploiting, standing.exploring) == (script["exploiting"], script["exploring"])
    assert standing.clients.tolist() == sorted(set(there.clients) - set(script["barred"]))


def test_the_pacer_moves_when_theirs_does_and_by_as_much() -> None:
    percentiles = [memory["percentile"] for _, _, memory, _ in RUN]
    assert percentiles == [script["percentile"] for script, *_ in RUN]
    steps = {after - before for before, after in itertools.pairwise(percentiles)}
    assert steps == {-5.0, 0.0, 5.0}


@pytest.mark.parametrize(
    ("script", "standing"), [(one[0], one[3]) for one in RUN if "utility" in one[0]]
)
def test_utilities_and_candidates_are_theirs(script, standing) -> None:
    tried, clients = standing.tried, standing.clients
    ours = dict(zip(clients[tried].tolist(), standing.utility[tried].tolist(), strict=True))
    assert ours == CLOSE({int(k): x for k, x in script["utility"].items()}, rel=1e-9)
    utility, number = standing.utility[tried], standing.exploiting
    places = candidates_for(utility, number, OORT.cutoff, OORT.candidates)
    assert sorted(clients[tried][places].tolist()) == script["candidates"]
    promise = standing.promise[~tried]
    places = best(promise, int(OORT.new_candidates * standing.exploring))
    picked = zip(clients[~tried][places].tolist(), promise[places].tolist(), strict=True)
    assert dict(picked) == CLOSE({int(k): x for k, x in script["new"].items()}, rel=1e-9)


def test_the_cohort_is_drawn_from_their_candidates() -> None:
    for script, there, memory, _ in RUN:
        if "utility" not in script:
            continue
        new = {int(client) for client in script["new"]}
        for seed in range(20):
            rng = generator(seed, "select", script["round"])
            cohort = set(OORT.select(there, memory, script["round"], rng).clients)
            assert len(cohort & set(script["candidates"])) == script["exploiting"]
            assert len(cohort & new) == script["exploring"]
            assert len(cohort) == ASKED


def test_the_script_is_one_in_which_everything_happens() -> None:
    """Somebody is barred, and the cut-off leaves somebody out."""
    last = RUN[-1][0]
    assert last["barred"]
    assert len(last["candidates"]) < len(last["utility"])
    assert len(last["candidates"]) > OORT.candidates * last["exploiting"] + 1
    assert not np.isinf(last["preferred_s"])
