"""A standing federation over mutual TLS: jobs come and go, sites stay, and nothing is lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fedmx import Experiment, RunFolder, simulate
from fedmx.errors import FedmxError
from fedmx.journal.chain import model_hash
from tests.fedmx.processes import until
from tests.fedmx.standing import Standing, experiment


@pytest.fixture
def standing(tmp_path: Path) -> Iterator[Standing]:
    with Standing(tmp_path) as found:
        yield found


def alone(text: str) -> list[str]:
    """The hash of the model after each round of an experiment that runs by itself."""
    with simulate(Experiment.parse(text, "experiment")) as simulation:
        states = [simulation.state for _ in simulation]
        return [model_hash(one.weights, one.buffers) for one in states]


def models(run: Path) -> list[str]:
    """The same of a run folder."""
    return [record["model_sha256"] for record in RunFolder.open(run).rounds()]


def test_jobs_end_in_the_bits_of_runs_of_their_own_and_sites_stay(standing: Standing) -> None:
    standing.serve()
    sites = [standing.site(name) for name in ("bonn", "ulm")]
    texts = [experiment("first"), experiment("second", preset="stc")]
    with standing.operator() as operator:
        jobs = [operator.submit(text) for text in texts]
        for job, text in zip(jobs, texts, strict=True):
            found = standing.over(operator, job)
            assert (found["state"], found["sites"]) == ("done", ["bonn", "ulm"])
            fetched = operator.fetch(job, standing.folder / job, standing.folder / "received")
            assert models(fetched) == alone(text)
            assert not (fetched / "secret.key").exists()
    assert all(site.output.count("begins as client") == 2 for site in sites)


def test_each_site_takes_part_by_its_own_policy(standing: Standing) -> None:
    standing.serve()
    standing.site("bonn")
    standing.site("ulm", "rounds: 2\n")
    standing.site("wien", "", "--available-if", "test -e open")
    with standing.operator() as operator:
        long, both = operator.submit(experiment("long", rounds=3)), "000002"
        # ulm refuses, and wien is not available yet
        until(
            lambda: {"ulm", "wien"} <= {*operator.order("jobs")["jobs"][0]["replies"]},
            lambda: str(operator.order("jobs")),
        )
        assert operator.submit(experiment("short", rounds=2)) == both
        assert standing.over(operator, both)["sites"] == ["bonn", "ulm"]
        (first, _) = operator.order("jobs")["jobs"]
        assert first["state"] == "queued"
        assert "rounds" in first["replies"]["ulm"]
        assert first["replies"]["wien"].startswith("not now")
        alone_at = operator.submit(experiment("no", clients=1, rounds=3), ("ulm",))
        refused = standing.over(operator, alone_at)
        assert (refused["state"], "ulm" in refused["reason"]) == ("failed", True)
        operator.order("cancel", long)


def test_a_site_trains_on_its_own_file_by_a_local_name(standing: Standing) -> None:
    draw = np.random.default_rng(1)
    for name in ("bonn", "ulm"):
        rows = draw.normal(size=(60, 2))
        lines = [f"{a},{b},{'yes' if a > b else 'no'}" for a, b in rows]
        (standing.folder / f"{name}.csv").write_text("\n".join(["a,b,ill", *lines]) + "\n")
    standing.serve()
    standing.site("bonn", "data: {clinic: ./bonn.csv}\n")
    standing.site("ulm", "data: {clinic: ./ulm.csv}\n")
    standing.site("wien", "data: {other: ./ulm.csv}\n")
    text = """\
name: clinic
rounds: 2
clients: 2
compute:
  engine: numpy
  model: logistic
  data: {name: table, target: ill, columns: [a, b], classes: ["no", "yes"], local: clinic}
  train: {epochs: 1, batch_size: 20, learning_rate: 0.1}
  evaluate: {clients: {every: 1}}
"""
    with standing.operator() as operator:
        found = standing.over(operator, operator.submit(text))
        assert (found["state"], found["sites"]) == ("done", ["bonn", "ulm"]), found
        assert found["replies"].get("wien", "refused: clinic").startswith("refused")
        other = standing.over(operator, operator.submit(experiment(clients=1), ("ulm",)))
    assert "digits" in other["reason"]  # its policy allows its own files alone


def test_a_killed_server_loses_no_job_and_no_update(standing: Standing) -> None:
    server = standing.serve()
    for name in ("bonn", "ulm"):
        standing.site(name)
    text = experiment("long", rounds=8)
    with standing.operator() as operator:
        jobs = [operator.submit(text), operator.submit(experiment("next"))]
        log = standing.folder / "fed" / "jobs" / jobs[0] / "log"
        until(lambda: log.exists() and "round 2/8" in log.read_text(), lambda: "no round 2")
        server.kill()
    standing.serve()
    with standing.operator() as operator:
        for job, one in zip(jobs, (text, experiment("next")), strict=True):
            assert standing.over(operator, job)["state"] == "done"
            (run,) = (standing.folder / "fed" / "jobs" / job / "runs").glob("[!.]*")
            assert models(run) == alone(one)


def test_a_job_goes_on_when_the_process_of_the_killed_server_ends_late(standing: Standing) -> None:
    server = standing.serve()
    standing.site("ulm")
    text = experiment("long", clients=1, rounds=20)
    with standing.operator() as operator:
        job = operator.submit(text)
        runs = standing.folder / "fed" / "jobs" / job
        log = runs / "log"
        until(lambda: log.exists() and "round 2/20" in log.read_text(), lambda: "no round 2")
        (run,) = (runs / "runs").glob("[!.]*")
        pid = RunFolder.open(run).process
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        server.kill()
    standing.serve()
    before = log.stat().st_size
    time.sleep(3.0)  # the new process is there by now, and must not give up
    os.kill(pid, signal.SIGCONT)
    with standing.operator() as operator:
        assert standing.over(operator, job)["state"] == "done", log.read_text()[before:]
    assert models(run) == alone(text)


def test_a_backup_that_is_restored_elsewhere_goes_on_with_its_jobs(standing: Standing) -> None:
    server = standing.serve()
    sites = [standing.site(name) for name in ("bonn", "ulm")]
    text, queued = experiment("long", rounds=8), experiment("next")
    with standing.operator() as operator:
        over = operator.submit(experiment("over", rounds=1))
        assert standing.over(operator, over)["state"] == "done"
        jobs = [operator.submit(text), operator.submit(queued)]
        log = standing.folder / "fed" / "jobs" / jobs[0] / "log"
        until(lambda: log.exists() and "round 2/8" in log.read_text(), lambda: "no round 2")
        server.terminate()
        assert server.code() == 130
    subprocess.run(["tar", "-cf", "backup.tar", "fed", "pki"], cwd=standing.folder, check=True)
    for site in sites:
        site.terminate()
        assert site.code() == 130
    for name in ("fed", "pki"):
        shutil.rmtree(standing.folder / name)
    elsewhere = standing.folder / "elsewhere"
    elsewhere.mkdir()
    subprocess.run(["tar", "-xf", "../backup.tar"], cwd=elsewhere, check=True)
    standing.certificates.folder = elsewhere / "pki"
    standing.address = "127.0.0.1:0"
    standing.serve(folder="elsewhere/fed")
    for name in ("bonn", "ulm"):  # they have what they remember of the job
        standing.site(name)
    with standing.operator() as operator:
        for job, one in zip(jobs, (text, queued), strict=True):
            assert standing.over(operator, job)["state"] == "done"
            (run,) = (elsewhere / "fed" / "jobs" / job / "runs").glob("[!.]*")
            assert models(run) == alone(one)
        fetched = operator.fetch(over, standing.folder / over, standing.folder / "received")
        assert models(fetched) == alone(experiment("over", rounds=1))


def test_a_killed_job_and_a_killed_site_are_of_this_job_alone(standing: Standing) -> None:
    standing.serve("--at-once", "2")
    for name in ("bonn", "ulm"):
        standing.site(name)
    with standing.operator() as operator:
        jobs = [
            operator.submit(experiment("a", clients=1, rounds=30), ("bonn",)),
            operator.submit(experiment("b", clients=1, rounds=30), ("ulm",)),
        ]
        for job in jobs:  # at the same time, at different sites
            standing.when(operator, job, "running")
        operator.order("cancel", jobs[0])
        assert standing.over(operator, jobs[0])["state"] == "cancelled"
        assert standing.over(operator, jobs[1])["state"] == "done"
        again = operator.submit(experiment("again", clients=2))
        assert standing.over(operator, again)["state"] == "done"


def test_epsilon_counts_over_all_jobs_of_a_site_whatever_its_number(standing: Standing) -> None:
    pytest.importorskip("dp_accounting")
    standing.serve()
    standing.site("ulm", "epsilon: 30\n")
    private = experiment(clients=1) + "privacy: {name: local, clip: 1.0, noise: 1.0, delta: 1e-4}\n"
    two = experiment(clients=2) + "privacy: {name: local, clip: 1.0, noise: 1.0, delta: 1e-4}\n"
    with standing.operator() as operator:
        assert standing.over(operator, operator.submit(private))["state"] == "done"
        standing.site("bonn")  # so that ulm is client 1 next time
        assert standing.over(operator, operator.submit(two))["sites"] == ["bonn", "ulm"]
        spent = standing.over(operator, operator.submit(private, ("ulm",)))
    assert "epsilon" in spent["reason"]
    assert (standing.folder / "memory-ulm" / "releases-ulm.jsonl").exists()


def test_a_job_whose_site_cannot_take_part_ends_with_the_reason(standing: Standing) -> None:
    standing.serve()
    standing.site("ulm", "job_megabytes: 1\n")
    with standing.operator() as operator:
        found = standing.over(operator, operator.submit(experiment(clients=1)))
    assert (found["state"], "ulm" in found["reason"]) == ("failed", True)
    assert "job_megabytes" in found["reason"]


def test_orders_go_by_the_role_in_the_certificate(standing: Standing) -> None:
    standing.serve()
    with standing.operator("looks", "reader") as reader:
        assert reader.order("jobs") == {"jobs": [], "all": 0}
        for refused in (lambda: reader.submit(experiment()), lambda: reader.order("remove", "ulm")):
            with pytest.raises(FedmxError, match="looks"):
                refused()
    with standing.operator() as operator:
        with pytest.raises(FedmxError, match="lenet6"):
            operator.submit(experiment().replace("2nn", "lenet6"))
        with pytest.raises(FedmxError, match="000009"):
            operator.order("cancel", "000009")
        job = operator.submit(experiment())
        operator.order("cancel", job)
        assert standing.over(operator, job)["reason"] == "cancelled"
    with pytest.raises(FedmxError), standing.operator("bonn", "") as site:
        site.submit(experiment())


def test_a_removed_site_takes_part_in_nothing_until_it_is_added(standing: Standing) -> None:
    standing.serve()
    standing.site("bonn")
    with standing.operator() as operator:
        operator.order("remove", "bonn")
        job = operator.submit(experiment(clients=1))
        with pytest.raises(FedmxError, match="ulm"):
            operator.order("add", "ulm")
        assert standing.when(operator, job, "queued")["replies"] == {}
        operator.order("add", "bonn")
        assert standing.over(operator, job)["state"] == "done"


def test_two_servers_do_not_share_a_folder(standing: Standing) -> None:
    server = standing.serve()
    second = standing._start(
        "second", "federation", "serve", "fed", "--listen", "127.0.0.1:0", "--certs", "pki"
    )
    assert second.code() == 2
    os.kill(server.pid, signal.SIGTERM)
    assert server.code() == 130


def test_sites_keep_nothing_of_a_job_that_is_over(standing: Standing) -> None:
    standing.serve()
    for name in ("aachen", "bonn", "ulm"):
        standing.site(name)
    with standing.operator() as operator:
        job = operator.submit(experiment(clients=1))
        assert standing.over(operator, job)["state"] == "done"

    def kept() -> list[Path]:
        return [*standing.folder.glob("memory-*/jobs/*.accepted")]

    until(lambda: not kept(), lambda: str(kept()))
