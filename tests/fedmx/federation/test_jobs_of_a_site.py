"""A site takes part in as many jobs at a time as its policy says, and trains for one at a time."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedmx import RunFolder
from tests.fedmx.federation.test_federation import alone, models
from tests.fedmx.processes import until
from tests.fedmx.standing import Standing, experiment


@pytest.fixture
def standing(tmp_path: Path) -> Iterator[Standing]:
    with Standing(tmp_path) as found:
        yield found


def test_two_jobs_at_one_site_take_turns_and_end_in_their_own_bits(standing: Standing) -> None:
    standing.serve("--at-once", "3")
    standing.site("ulm", "jobs: 2\n")
    texts = [experiment("a", clients=1), experiment("b", clients=1, preset="stc")]
    turns = standing.folder / "memory-ulm" / "training-ulm.lock"
    turns.parent.mkdir(exist_ok=True)
    with standing.operator() as operator, turns.open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)  # as a third process of the site that trains
        jobs = [operator.submit(text) for text in texts]
        third = operator.submit(experiment("c", clients=1))
        logs = [standing.folder / "fed" / "jobs" / job / "log" for job in jobs]
        for job in jobs:
            standing.when(operator, job, "running")
        until(
            lambda: all(one.exists() and "round 1" in one.read_text() for one in logs),
            lambda: str([one.read_text() for one in logs if one.exists()]),
        )
        assert operator.order("job", third)["state"] == "queued"
        states = {one["name"]: one["state"] for one in operator.order("sites")}
        assert states["ulm"] == f"in job {jobs[0]}, {jobs[1]}"
        assert "round 1/2" not in logs[0].read_text() + logs[1].read_text()
        fcntl.flock(other, fcntl.LOCK_UN)
        for job, text in zip(jobs, texts, strict=True):
            assert standing.over(operator, job)["state"] == "done"
            (run,) = (standing.folder / "fed" / "jobs" / job / "runs").glob("[!.]*")
            assert models(run) == alone(text)
            # A site that trains for another job is not silent: as long as before a first answer.
            patience = RunFolder.open(run).journal()[-1]["patience"]
            assert patience == {"limit_s": 3600.0}
        assert standing.over(operator, third)["state"] == "done"


def test_a_site_without_such_a_policy_takes_part_in_one_job_at_a_time(standing: Standing) -> None:
    standing.serve("--at-once", "2")
    site = standing.site("ulm")
    with standing.operator() as operator:
        first = operator.submit(experiment("a", clients=1, rounds=3000))
        second = operator.submit(experiment("b", clients=1))
        log = standing.folder / "fed" / "jobs" / first / "log"
        until(lambda: log.exists() and "round 1/3000" in log.read_text(), lambda: "no round 1")
        assert operator.order("job", second)["state"] == "queued"
        operator.order("cancel", first)
        assert standing.over(operator, second)["state"] == "done"
    assert site.output.count("begins as client") == 2


def test_a_server_that_was_killed_goes_on_with_both_jobs_of_a_site(standing: Standing) -> None:
    server = standing.serve("--at-once", "2")
    standing.site("ulm", "jobs: 2\n")
    texts = [experiment("a", clients=1, rounds=20), experiment("b", clients=1, rounds=20)]
    with standing.operator() as operator:
        jobs = [operator.submit(text) for text in texts]
        logs = [standing.folder / "fed" / "jobs" / job / "log" for job in jobs]
        until(
            lambda: all(one.exists() and "round 2/20" in one.read_text() for one in logs),
            lambda: "no round 2",
        )
        server.kill()
    standing.serve("--at-once", "2")
    with standing.operator() as operator:
        for job, text in zip(jobs, texts, strict=True):
            assert standing.over(operator, job)["state"] == "done"
            (run,) = (standing.folder / "fed" / "jobs" / job / "runs").glob("[!.]*")
            assert models(run) == alone(text)


def test_two_processes_are_not_one_site(standing: Standing) -> None:
    standing.serve()
    first = standing.site("ulm", "jobs: 2\n")
    first.line("connected to")
    second = standing.site("ulm", "jobs: 2\n")
    assert second.code() == 2
    assert str(first.pid) in second.output


def test_a_job_whose_process_answers_late_holds_the_federation_up_no_longer(
    standing: Standing,
) -> None:
    standing.serve()
    for name in ("bonn", "ulm"):
        standing.site(name)
    text = experiment(rounds=3000) + "network: {wait_for: 1}\n"
    with standing.operator() as operator:
        job = operator.submit(text)
        log = standing.folder / "fed" / "jobs" / job / "log"
        until(lambda: log.exists() and "round 1/3000" in log.read_text(), lambda: "no round 1")
        (run,) = (log.parent / "runs").glob("[!.]*")
        pid = RunFolder.open(run).process
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        operator.order("remove", "ulm")
        sites = {one["name"]: one for one in operator.order("sites")}
        # In quarantine: it stays connected, and is seen, but takes part in nothing.
        assert (sites["ulm"]["state"], bool(sites["ulm"]["address"])) == ("removed", True)
        os.kill(pid, signal.SIGCONT)
        until(lambda: "operator: exclude" in log.read_text(), log.read_text)
        assert operator.order("job", job)["state"] == "running"
        operator.order("cancel", job)
        assert standing.over(operator, job)["reason"] == "cancelled"
