"""Executors: any order of replies and any deaths of workers give the bits of one process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmx import Experiment, simulate
from fedmx.protocol.messages import CODEC
from fedmx.simulation.executors import parallel
from fedmx.simulation.executors.executor import ExecutorFailed, SerialExecutor
from fedmx.simulation.executors.parallel import ParallelExecutor, WorkerDied
from fedmx.simulation.executors.worker import JOBS, AskClients, JobFailed, Score, Train, Worker
from layers.logic import ClientFailed, Question
from layers.network import wire_size

TREE: dict[str, Any] = {
    "rounds": 3,
    "clients": 5,
    "compute": {
        "model": "2nn",
        "data": "digits",
        "normalise": {"scale": 16},
        "partition": "dirichlet",
        "train": {"batch_size": 50, "learning_rate": 0.05},
        "evaluate": {"batch_size": 100, "every": 2},
    },
    "logic": {"preset": {"name": "scaffold", "fraction": 1.0}},
}


class MemoryCrew:
    """Workers in this process that work when they are waited for, in an order that `choose` draws.

    Args:
        choose: takes a number n and returns one of 0 to n - 1.
        deaths: number of workers that die, each at its first job.
        depth: number of jobs that a worker may hold.
    """

    def __init__(
        self, size: int, choose: Callable[[int], int], deaths: int = 0, depth: int = 1
    ) -> None:
        self.size = size
        self.depth = depth
        self.given: list[Any] = []
        self.shared: dict[int, bytes] = {}
        self.put = 0
        self._choose = choose
        self._deaths = deaths
        self._worker = Worker()
        self._doing: dict[int, list[Sequence[Any]]] = {}

    def open(self, build: bytes, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        self._worker.open(build, arrays)
        return list(arrays)

    def ready(self, worker: int) -> bool:
        return True

    def share(self, data: memoryview) -> int:
        self.put += 1
        self.shared[self.put] = bytes(data)
        return self.put

    def holds(self, shared: int, data: memoryview) -> bool:
        return self.shared[shared] == bytes(data)

    def release(self, shared: int) -> None:
        del self.shared[shared]

    def submit(self, worker: int, parts: Sequence[Any]) -> None:
        jobs = self._doing.setdefault(worker, [])
        assert len(jobs) < self.depth
        jobs.append([self.shared[p] if isinstance(p, int) else p for p in parts])
        self.given.append(JOBS.decode(b"".join(jobs[-1])))

    def wait(self) -> tuple[int, bytes | WorkerDied | None]:
        worker = sorted(self._doing)[self._choose(len(self._doing))]
        parts, *later = self._doing.pop(worker)
        if self._deaths:
            self._deaths -= 1
            return worker, WorkerDied("a worker", "died")
        if later:
            self._doing[worker] = later
        return worker, bytes(self._worker.do(parts))

    def poll(self) -> tuple[int, bytes | WorkerDied | None] | None:
        return self.wait() if self._doing and self._choose(2) else None

    def close(self) -> None:
        assert not self._doing


def outcome(backend: MemoryCrew | None = None) -> list[Any]:
    with simulate(Experiment(**TREE), backend) as simulation:
        rounds = [(one.accuracy, one.loss, one.report.traffic) for one in simulation]
        return [*rounds, simulation.weights.tobytes()]


@pytest.fixture(scope="module")
def serial() -> list[Any]:
    return outcome()


@settings(max_examples=8)
@given(
    size=st.integers(1, 4),
    deaths=st.integers(0, 2),
    draw=st.randoms(use_true_random=False),
    depth=st.integers(1, 2),
    queued=st.integers(0, 2),
)
def test_any_order_of_replies_and_any_deaths_give_the_same_bits(
    serial: list[Any], size: int, deaths: int, draw: Any, depth: int, queued: int
) -> None:
    backend = MemoryCrew(size, draw.randrange, deaths, depth)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel, "MIN_QUEUED", queued)  # above it workers get jobs in advance
        assert outcome(backend) == serial
    assert not backend.shared, "every shared buffer is released"


@pytest.mark.parametrize("depth", [1, 2])
def test_a_worker_that_dies_after_an_interrupted_round_is_said_to_be_replaced(
    depth: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "MIN_QUEUED", 0)  # with a depth of 2, workers hold two jobs

    class Interrupted(MemoryCrew):
        interrupted = False

        def wait(self) -> tuple[int, bytes | WorkerDied | None]:
            if not self.interrupted:
                self.interrupted = True
                raise KeyboardInterrupt
            return super().wait()

    backend = Interrupted(3, lambda number: 0, deaths=2, depth=depth)
    with caplog.at_level(logging.INFO, "fedmx.executors"), pytest.raises(KeyboardInterrupt):
        outcome(backend)
    assert caplog.messages == ["a worker died; another replaces it"] * 2
    backend.close()
    assert not backend.shared, "every shared buffer is released"


def test_a_task_over_which_three_workers_die_fails_with_its_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class NoTask(MemoryCrew):
        armed = False

        def wait(self) -> tuple[int, bytes | WorkerDied | None]:
            if not self.armed and not isinstance(self.given[-1], Score):
                self.armed, self._deaths = True, 3
            return super().wait()

    backend = NoTask(1, lambda number: 0)
    with caplog.at_level(logging.INFO, "fedmx.executors"), pytest.raises(ClientFailed) as caught:
        outcome(backend)
    begun = [job.task.client for job in backend.given if not isinstance(job, Score)]
    client = begun[0]
    assert (begun[:3], begun.count(client)) == ([client] * 3, 3)
    repeated = f"a worker died (job: client {client} in round 1); another worker repeats it"
    assert caplog.messages == [repeated] * 3
    assert (caught.value.client, caught.value.round) == (client, 1)
    assert caught.value.what == "3 workers died over it, the last one (a worker) died"
    assert not backend.shared, "every shared buffer is released"


def test_a_part_of_an_evaluation_over_which_three_workers_die_fails_the_run() -> None:
    class NoScores(MemoryCrew):
        def wait(self) -> tuple[int, bytes | WorkerDied | None]:
            if isinstance(self.given[-1], Score):
                self._deaths = 1
            return super().wait()

    backend = NoScores(1, lambda number: 0)
    with pytest.raises(ExecutorFailed) as caught:
        outcome(backend)
    expected = "the evaluation: 3 workers died over it, the last one (a worker) died"
    assert str(caught.value) == expected
    assert not backend.shared, "every shared buffer is released"


def test_the_longest_task_starts_first() -> None:
    backend = MemoryCrew(2, lambda number: 0)
    outcome(backend)
    whole = simulate(Experiment(**TREE))
    _, sizes = whole.network.open_round(whole.state)
    tasks = [job.task for job in backend.given if isinstance(job, Train)]
    for round in (1, 2, 3):
        begun = [sizes[task.client] for task in tasks if task.round == round]
        assert begun == sorted(sizes.values(), reverse=True)


def test_the_model_is_shared_once_a_round() -> None:
    backend = MemoryCrew(2, lambda number: 0)
    outcome(backend)
    assert len([job.task for job in backend.given if isinstance(job, Train)]) == 15
    model = 3 + 1  # each round's, and the last one's to be evaluated
    variate = 2  # SCAFFOLD's c, from round 2 on
    kept = 5 + 10  # a client's own c: none, one, and also the one before it, since it may count
    assert backend.put == model + variate + kept


def test_while_many_replies_wait_only_the_wanted_job_starts(
    serial: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "MAX_PENDING_BYTES", 0)
    assert outcome(MemoryCrew(2, lambda number: number - 1)) == serial


def test_the_bytes_of_a_task_equal_its_message_on_the_wire() -> None:
    backend = MemoryCrew(1, lambda number: 0)
    with simulate(Experiment(**TREE), backend) as simulation:
        first = next(simulation.rounds())
    down = {
        job.task.client: wire_size(CODEC.encode(job.task).size)
        for job in backend.given
        if isinstance(job, Train)
    }
    assert {one.client: one.traffic.down_bytes for one in first.report.clients} == down


def test_a_survey_asks_each_client_once_and_several_in_a_job() -> None:
    asked = {"name": "power-of-choice", "count": 2, "candidates": 18}
    logic = {"selector": asked, "aggregator": {"name": "mean", "weights": "uniform"}}
    backend = MemoryCrew(1, lambda number: 0)
    with simulate(Experiment(**{**TREE, "clients": 18, "logic": logic}), backend) as simulation:
        next(simulation.rounds())
    jobs = [job.clients for job in backend.given if isinstance(job, AskClients)]
    assert [len(clients) for clients in jobs] == [5, 5, 5, 3]
    assert sorted(client for clients in jobs for client in clients) == list(range(18))


def test_a_client_that_cannot_answer_is_named_with_the_question() -> None:
    def no_samples(client: int) -> Any:
        raise OSError(f"no samples of {client}")

    nothing: Any = None
    executor = SerialExecutor(nothing, nothing, no_samples)
    with pytest.raises(ClientFailed) as caught:
        executor.ask(Question("labels", round=2), [3, 4], {})
    failed = caught.value
    assert (failed.client, failed.round) == (3, 0)
    assert failed.what == "survey 'labels': OSError: no samples of 3"


def test_after_a_failed_answer_the_other_jobs_of_the_survey_are_not_started() -> None:
    class NoAnswers(MemoryCrew):
        def wait(self) -> tuple[int, bytes | WorkerDied | None]:
            (job,), client = self._doing.pop(0), self.given[-1].clients[0]
            assert job
            return 0, bytes(JOBS.encode(JobFailed("OSError: no samples", "", "", client)))

    backend = NoAnswers(1, lambda number: 0)
    executor = ParallelExecutor(backend, dict.fromkeys(range(6), 10), 0, closes=False)
    with pytest.raises(ClientFailed):
        executor.ask(Question("labels", round=2), range(4), {})
    begun = len(backend.given)
    assert 1 <= begun < 4
    with pytest.raises(ClientFailed) as caught:
        executor.ask(Question("labels", round=3), [5], {})
    assert caught.value.client == 5
    assert [job.clients for job in backend.given[begun:]] == [(5,)]
