"""Work on several workers at once; the order of completion changes no result."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, pairwise
from typing import Any, Protocol, TypeAlias

import numpy as np

from fedmx.log import Log
from fedmx.protocol.messages import CODEC
from fedmx.simulation.executors.executor import (
    AnswerResult,
    ExecutorFailed,
    TrainResult,
    Work,
    WorkerTraceback,
)
from fedmx.simulation.executors.worker import (
    JOBS,
    Answers,
    AskClients,
    EncodedLedger,
    JobFailed,
    Score,
    ScoredRows,
    Train,
    TrainedGroup,
    TrainedUpdate,
    TrainGroup,
    within_round,
)
from layers.compute.scores import Scores
from layers.logic import ClientFailed, ClientLedger, Question, Task, Traffic
from layers.logic.clock.devices import trained_samples
from layers.logic.core.state import NO_ROUND
from layers.logic.core.survey import HOOKS
from layers.network import wire_size

log = Log("fedmx.executors")

MAX_DEATHS = 3  # workers that may die at the same job before the job fails
MAX_SHARED = 4  # shared buffers to keep for later jobs
MIN_SHARED_BYTES = 16 << 10  # smaller buffers are sent with each job
MAX_PENDING_BYTES = 128 << 20  # of replies not yet taken; above, only the wanted job starts
MAX_CLIENTS_PER_JOB = 64  # in a survey
# Queued jobs, for each worker, above which workers get jobs in advance. With fewer, every job waits
# for a free worker, so that none waits behind a long one at the end of a round.
MIN_QUEUED = 4

Part: TypeAlias = "bytes | Any"
"""Bytes that are sent with a job, or the handle that `Backend.share` returned for them."""


@dataclass(frozen=True)
class WorkerDied:
    """A worker has died, and a new one has replaced it.

    Attributes:
        who: the worker, with its process id if that is known.
        how: how it ended, as far as that is known.
    """

    who: str
    how: str


class Backend(Protocol):
    """Numbered workers; each does one job at a time.

    Attributes:
        depth: number of jobs that a worker may hold without a reply.
    """

    depth: int

    @property
    def size(self) -> int:
        """Number of workers, which are 0 to `size` - 1."""

    def open(self, build: bytes, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Let every worker, and each replacement of a dead one, make an experiment's parts.

        Args:
            build: the encoded `Build`.
            arrays: the experiment's data.

        Returns:
            The same arrays, read-only, in the memory that the workers of this machine use.

        Raises:
            ExecutorFailed: there is no room for the arrays.
        """

    def ready(self, worker: int) -> bool:
        """Return whether a worker without a job could take one now."""

    def share(self, data: memoryview) -> Any:
        """Store bytes where every worker can read them; return a handle to them."""

    def holds(self, shared: Any, data: memoryview) -> bool:
        """Return whether the shared bytes are equal to these."""

    def release(self, shared: Any) -> None:
        """Release shared bytes."""

    def submit(self, worker: int, parts: Sequence[Part]) -> None:
        """Send a worker a job; replies come in the order of the jobs.

        If it cannot take the job, `wait` returns `WorkerDied`, once for all of its jobs.
        """

    def wait(self) -> tuple[int, bytes | WorkerDied | None]:
        """Wait for an event; return the worker's number and its reply, its death, or None: ready.

        Raises:
            ExecutorFailed: workers die as soon as they start.
        """

    def poll(self) -> tuple[int, bytes | WorkerDied | None] | None:
        """Return what `wait` would return now; None: it would have to wait."""

    def close(self) -> None:
        """End all workers, also during a job."""


@dataclass(eq=False)
class _Shared:
    """Shared bytes that several jobs may refer to, such as a round's weights."""

    handle: Any
    size: int
    users: int = 1  # the jobs, and the list of recent buffers


@dataclass(eq=False)
class _Job:
    """One job.

    Attributes:
        name: its name in the log.
        cost: its estimated cost.
        parts: its message, whose large parts are shared.
        shared: the shared bytes that it refers to.
        number: its place in the order of submission.
        client: the client in messages; None: the job belongs to no client.
        round: the client's round.
        queued: whether no worker has it yet.
        cancelled: whether its reply is ignored.
        deaths: number of workers that died over it.
        reply: the reply, until it is taken.
    """

    name: str
    cost: float
    parts: Sequence[Part]
    shared: list[_Shared]
    number: int
    client: int | None = None
    round: int = 0
    queued: bool = field(default=False, init=False)
    cancelled: bool = field(default=False, init=False)
    deaths: int = field(default=0, init=False)
    reply: bytes | None = field(default=None, init=False)


class ParallelExecutor:
    """An executor that works on several tasks at once.

    Args:
        backend: runs the workers, which have made the experiment's parts or will.
        samples: number of samples by client, from which the cost of a task is estimated.
        rows: number of the server's samples.
        closes: close the backend when this executor is left; if not, the caller closes it.
    """

    def __init__(
        self,
        backend: Backend,
        samples: Mapping[int, int],
        rows: int,
        closes: bool,
    ) -> None:
        self._backend = backend
        self._closes = closes
        self._samples = samples
        self._rows = rows
        self._recent: deque[_Shared] = deque()  # shared buffers that later jobs may need
        self._queue: list[_Job] = []  # by ascending cost; of equal costs the first comes last
        self._running: list[deque[_Job]] = [deque() for _ in range(backend.size)]  # by worker
        self._jobs = 0
        self._pending_bytes = 0

    def __enter__(self) -> ParallelExecutor:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._closes:
            self._backend.close()
            return
        for job in [*self._queue, *chain(*self._running)]:
            self._cancel(job)
        while any(self._running):  # their replies must not reach the next executor
            self._handle_reply(*self._backend.wait())
        while self._recent:
            self._leave(self._recent.pop())

    # --- for simulated clients: `Executor` ---------------------------------------------------

    def submit(self, task: Task, ledger: ClientLedger) -> Work:
        """Submit a task.

        A free worker starts it when any result is waited for, or earlier if many tasks wait.
        """
        cost = trained_samples(self._samples[task.client], task.training)
        name = f"client {task.client} in round {task.round}"
        message = Train(task, EncodedLedger.of(ledger))
        job = self._job(name, cost, message, task.client, task.round)
        self._start_early(job)

        def result() -> TrainResult:
            reply = self._wait_for(job)
            assert isinstance(reply, TrainedUpdate)
            return reply.result()

        return Work(wire_size(CODEC.encode(task).size), result, lambda: self._cancel(job))

    def submit_group(self, group: Sequence[tuple[Task, ClientLedger]]) -> Sequence[Work]:
        """Submit the tasks of clients that a worker trains at once, as one job."""
        tasks = [task for task, _ in group]
        cost = sum(trained_samples(self._samples[one.client], one.training) for one in tasks)
        name = f"clients {', '.join(str(one.client) for one in tasks)} in round {tasks[0].round}"
        job = self._job(name, cost, TrainGroup.of(group), tasks[0].client, tasks[0].round)
        self._start_early(job)
        replies: list[TrainedUpdate] = []
        waiting = set(range(len(group)))

        def result(number: int) -> TrainResult:
            if not replies:
                found = self._wait_for(job)
                assert isinstance(found, TrainedGroup)
                replies.extend(found.updates)
            return replies[number].result()

        def cancel(number: int) -> None:
            waiting.discard(number)
            if not waiting and not replies:
                self._cancel(job)

        return [Work(0, partial(result, one), partial(cancel, one)) for one in sorted(waiting)]

    def ask(
        self, question: Question, clients: Sequence[int], ledgers: Mapping[int, ClientLedger]
    ) -> Sequence[AnswerResult]:
        """Ask clients, several in each job."""
        job_clients = min(-(-len(clients) // (4 * self._backend.size)), MAX_CLIENTS_PER_JOB)
        jobs = []
        for start in range(0, len(clients), job_clients or 1):
            some = tuple(clients[start : start + job_clients])
            cost = sum(self._samples[client] for client in some)
            kept = {client: ledgers[client] for client in some if client in ledgers}
            within = within_round(kept) if question.name in HOOKS else {}
            message = AskClients(question, some, within)
            jobs.append(self._job(f"survey {question.name!r}", cost, message, some[0]))
        down_bytes = wire_size(CODEC.encode(question).size)
        answers: list[AnswerResult] = []
        try:
            for reply in self._replies(jobs):
                assert isinstance(reply, Answers)
                for answer, up_bytes in zip(reply.answers, reply.up_bytes, strict=True):
                    after = reply.within.get(answer.client)
                    memory = NO_ROUND if after is None else after.decode().within
                    answers.append(AnswerResult(answer, Traffic(down_bytes, up_bytes), memory))
        except ClientFailed as error:
            what = f"survey {question.name!r}: {error.what}"
            raise ClientFailed(error.client, 0, what) from error.__cause__
        return answers

    # --- for the server: `Scorer` ------------------------------------------------------------

    def scores(self, weights: np.ndarray, buffers: np.ndarray, batch_size: int) -> Scores | None:
        """Return a model's scores on the server's samples; None: they are too few to divide."""
        batches = -(-self._rows // batch_size)
        pieces = min(2 * self._backend.size, batches)
        if pieces < 2:
            return None
        ends = [batches * piece // pieces * batch_size for piece in range(pieces)] + [self._rows]
        jobs = []
        for start, stop in pairwise(ends):
            message = Score(weights, buffers, batch_size, start, stop)
            jobs.append(self._job("the evaluation", stop - start, message))
        found = [reply for reply in self._replies(jobs) if isinstance(reply, ScoredRows)]
        return Scores.joined(
            [Scores(reply.right, reply.losses, batch_size, reply.outputs) for reply in found]
        )

    # --- jobs --------------------------------------------------------------------------------

    def _job(
        self, name: str, cost: float, message: object, client: int | None = None, round: int = 0
    ) -> _Job:
        """Queue a job; its parts are copies, so that the message's arrays may change afterwards."""
        parts: list[Part] = []
        shared: list[_Shared] = []
        for buffer in JOBS.encode(message).buffers:
            if buffer.nbytes >= MIN_SHARED_BYTES:
                shared.append(self._share(buffer))
                parts.append(shared[-1].handle)
            else:
                parts.append(bytes(buffer))
        self._jobs += 1
        job = _Job(name, cost, parts, shared, self._jobs, client, round)
        self._enqueue(job)
        return job

    def _enqueue(self, job: _Job) -> None:
        job.queued = True
        insort(self._queue, job, key=lambda one: (one.cost, -one.number))

    def _replies(self, jobs: Sequence[_Job]) -> list[Any]:
        """Wait for jobs and return their replies; cancel the others after a failure."""
        try:
            return [self._wait_for(job) for job in jobs]
        finally:
            for job in jobs:
                self._cancel(job)

    def _wait_for(self, job: _Job) -> Any:
        """Wait for a job and return its reply.

        Raises:
            ClientFailed: the client's code failed.
            ExecutorFailed: the worker cannot do any job.
        """
        while job.reply is None:
            self._assign_jobs(job)
            self._handle_reply(*self._backend.wait())
        self._assign_jobs(job)  # so that no worker waits while this process uses the reply
        reply, job.reply = job.reply, None
        self._pending_bytes -= len(reply)
        message = JOBS.decode(reply)
        if not isinstance(message, JobFailed):
            return message
        known = bool(message.traceback)
        cause = WorkerTraceback(message.traceback, message.place) if known else None
        if message.client is None:
            raise ExecutorFailed(message.what) from cause
        raise ClientFailed(message.client, job.round, message.what) from cause

    def _cancel(self, job: _Job) -> None:
        """Cancel a job; the reply of a worker that has started it is ignored."""
        job.cancelled = True
        if job.queued:
            self._dequeue(job)
            self._release(job)
        if job.reply is not None:
            self._pending_bytes -= len(job.reply)
            job.reply = None

    def _dequeue(self, job: _Job) -> None:
        job.queued = False
        if self._queue[-1] is job:
            self._queue.pop()
        else:
            self._queue.remove(job)

    # --- workers -----------------------------------------------------------------------------

    def _assign_jobs(self, wanted: _Job) -> None:
        """Give workers jobs, the most expensive first, so that no long job comes last.

        Free workers come first. While many jobs wait, the others get some in advance.
        """
        for depth in range(self._backend.depth):
            for worker in range(self._backend.size):
                if not self._queue or (depth and not self._many_wait):
                    return
                if len(self._running[worker]) > depth or not self._backend.ready(worker):
                    continue
                job = self._queue[-1]
                if self._pending_bytes > MAX_PENDING_BYTES:
                    if not wanted.queued:
                        return
                    job = wanted
                self._dequeue(job)
                self._running[worker].append(job)
                self._backend.submit(worker, job.parts)

    def _start_early(self, submitted: _Job) -> None:
        """Keep workers busy while many jobs are submitted."""
        while self._many_wait and self._pending_bytes <= MAX_PENDING_BYTES:
            self._assign_jobs(submitted)
            found = self._backend.poll()
            if found is None:
                return
            self._handle_reply(*found)

    @property
    def _many_wait(self) -> bool:
        return len(self._queue) > MIN_QUEUED * self._backend.size

    def _handle_reply(self, worker: int, reply: bytes | WorkerDied | None) -> None:
        if reply is None:
            return
        jobs = self._running[worker]
        job = jobs.popleft() if jobs else None
        if isinstance(reply, WorkerDied):
            self._handle_death(job, reply)
            while jobs:  # it had not started them
                self._repeat(jobs.popleft())
        elif job is not None:
            self._finish(job, reply)

    def _handle_death(self, job: _Job | None, death: WorkerDied) -> None:
        if job is None or job.cancelled:
            log.warning(
                "worker_replaced", "{who} {how}; another replaces it", who=death.who, how=death.how
            )
            if job is not None:
                self._release(job)
            return
        job.deaths += 1
        log.warning(
            "job_repeated",
            "{who} {how} (job: {job}); another worker repeats it",
            who=death.who,
            how=death.how,
            job=job.name,
        )
        if job.deaths < MAX_DEATHS:
            self._repeat(job)
            return
        what = f"{MAX_DEATHS} workers died over it, the last one ({death.who}) {death.how}"
        if job.client is None:
            what = f"{job.name}: {what}"
        self._finish(job, bytes(JOBS.encode(JobFailed(what, "", "", job.client))))

    def _repeat(self, job: _Job) -> None:
        """Put a job back into the queue, unless it was cancelled."""
        if job.cancelled:
            self._release(job)
        else:
            self._enqueue(job)

    def _finish(self, job: _Job, reply: bytes) -> None:
        self._release(job)
        if not job.cancelled:
            job.reply = reply
            self._pending_bytes += len(reply)

    # --- shared buffers ----------------------------------------------------------------------

    def _share(self, data: memoryview) -> _Shared:
        """Return shared bytes; equal bytes are shared once while a job may need them."""
        for shared in self._recent:  # compared by content, since arrays may change in place
            if shared.size == data.nbytes and self._backend.holds(shared.handle, data):
                self._recent.remove(shared)
                break
        else:
            shared = _Shared(self._backend.share(data), data.nbytes)
        self._recent.append(shared)
        shared.users += 1
        if len(self._recent) > MAX_SHARED:
            self._leave(self._recent.popleft())
        return shared

    def _leave(self, shared: _Shared) -> None:
        """Remove one user of shared bytes; release them after the last one."""
        shared.users -= 1
        if not shared.users:
            self._backend.release(shared.handle)

    def _release(self, job: _Job) -> None:
        """Release the shared bytes of a job."""
        for shared in job.shared:
            self._leave(shared)
        job.shared = []
