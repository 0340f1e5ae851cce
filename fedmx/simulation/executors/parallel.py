"""Clients' work on several workers at once; the order of completion changes no result."""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any, Protocol, TypeAlias

import numpy as np

from fedmx.protocol.messages import CODEC
from fedmx.simulation.executors.executor import ExecutorFailed, TrainResult, Work, WorkerTraceback
from fedmx.simulation.executors.worker import (
    JOBS,
    Answers,
    AskClients,
    EncodedState,
    JobFailed,
    Score,
    ScoredRows,
    Train,
    TrainedUpdate,
)
from layers.compute.scores import Scores
from layers.logic import Answer, ClientFailed, ClientLedger, Question, Task, Traffic
from layers.logic.clock.devices import trained_samples
from layers.network import Payload, wire_size

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
    """Numbered workers, each of which does one job at a time.

    Attributes:
        depth: number of jobs that a worker may have been given without a reply.
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
            The same arrays, read-only, in the memory that the workers of this machine use as well.

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
        """Give a worker a job, and another one in advance; replies come in the same order.

        If it cannot take the job, `wait` returns `WorkerDied`, once for all of its jobs.
        """

    def wait(self) -> tuple[int, bytes | WorkerDied | None]:
        """Wait until a worker replies, dies or becomes ready (None); return its number and that.

        Raises:
            ExecutorFailed: workers die as soon as they start.
        """

    def poll(self) -> tuple[int, bytes | WorkerDied | None] | None:
        """Return what `wait` would return now; None: it would have to wait."""

    def close(self) -> None:
        """End all workers, whatever they are doing."""


MAX_RECENT = 4  # shared buffers that are kept for later jobs


@dataclass(eq=False)
class Shared:
    """Shared bytes that several jobs may refer to."""

    handle: Any
    size: int
    users: int = 0


@dataclass(eq=False)
class SharedBuffers:
    """The shared buffers: equal bytes are shared once, while a job needs them or may need them."""

    backend: Backend
    recent: deque[Shared] = field(default_factory=deque)

    def share(self, data: memoryview) -> Shared:
        """Return shared bytes, compared by content, since arrays may change in place."""
        for shared in self.recent:
            if shared.size == data.nbytes and self.backend.holds(shared.handle, data):
                self.recent.remove(shared)
                break
        else:
            shared = Shared(self.backend.share(data), data.nbytes, users=1)  # one user is `recent`
        self.recent.append(shared)
        shared.users += 1
        if len(self.recent) > MAX_RECENT:
            self.release(self.recent.popleft())
        return shared

    def clear(self) -> None:
        """Release the buffers that are kept for later jobs."""
        while self.recent:
            self.release(self.recent.pop())

    def release(self, shared: Shared) -> None:
        """Remove one user of shared bytes; release them after the last one."""
        shared.users -= 1
        if not shared.users:
            self.backend.release(shared.handle)


@dataclass(eq=False)
class Job:
    """One job: its name, its estimated cost, and its reply."""

    name: str
    cost: float
    parts: Sequence[Part]
    shared: list[Shared]
    deaths: int = 0
    cancelled: bool = False
    reply: bytes | None = None
    client: int | None = None
    round: int = 0


class JobQueue:
    """The jobs that no worker has yet."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Job]] = []  # with a number: of equal costs the first
        self._jobs: set[Job] = set()
        self._added = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter([job for _, _, job in self._heap if job in self._jobs])

    def __contains__(self, job: Job) -> bool:
        return job in self._jobs

    def add(self, job: Job) -> None:
        """Add a job."""
        self._added += 1
        self._jobs.add(job)
        heapq.heappush(self._heap, (-job.cost, self._added, job))

    def remove(self, job: Job) -> None:
        """Remove a job; its place in the heap stays until it is at the top."""
        self._jobs.remove(job)
        if not self._jobs:
            self._heap.clear()

    def most_expensive(self) -> Job:
        """Return the most expensive job, without removing it."""
        while self._heap[0][2] not in self._jobs:
            heapq.heappop(self._heap)
        return self._heap[0][2]


log = logging.getLogger("fedmx.executors")

MAX_DEATHS = 3  # workers that may die at the same job before the job fails
MIN_SHARED_BYTES = 16 << 10  # smaller buffers are sent with each job
MAX_PENDING_BYTES = 128 << 20  # of replies not yet taken; above, only the wanted job is begun
MAX_CLIENTS_PER_JOB = 64  # in a survey
# Jobs in the queue, for each worker, from which workers get jobs in advance. With fewer, every job
# waits for a free worker, so that none waits behind a long one at the end of a round.
MIN_QUEUED = 4


class ParallelExecutor:
    """An executor that works on several tasks at once.

    Args:
        backend: runs the workers, which have made the experiment's parts or will.
        samples: number of samples by client, from which the cost of a task is estimated.
        rows: number of the server's samples.
        closes: whether leaving this executor closes the backend; otherwise the caller does.
    """

    def __init__(
        self,
        backend: Backend,
        samples: Mapping[int, int],
        rows: int,
        closes: bool = True,
    ) -> None:
        self._backend = backend
        self._closes = closes
        self._samples = samples
        self._rows = rows
        self._buffers = SharedBuffers(backend)
        self._queue = JobQueue()
        self._running: list[deque[Job]] = [deque() for _ in range(backend.size)]  # by worker
        self._pending_bytes = 0

    def __enter__(self) -> ParallelExecutor:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._closes:
            self._backend.close()
            return
        for job in [*self._queue, *chain(*self._running)]:
            self.cancel(job)
        while any(self._running):  # their replies must not reach the next executor
            self._handle_reply(*self._backend.wait())
        self._buffers.clear()

    # --- for simulated clients: `Executor` ---------------------------------------------------

    def submit(self, task: Task, ledger: ClientLedger) -> Work:
        """Submit a task.

        A free worker begins it when any result is waited for, or before that if many tasks wait.
        """
        cost = trained_samples(self._samples[task.client], task.training)
        name = f"client {task.client} in round {task.round}"
        job = self._job(name, cost, Train(task, EncodedState.of(ledger)))
        job.client, job.round = task.client, task.round
        self._begin_early(job)
        return _PoolWork(self, job, wire_size(CODEC.encode(task).size))

    def ask(self, question: Question, clients: Sequence[int]) -> Sequence[tuple[Answer, Traffic]]:
        """Ask clients, several in each job."""
        job_clients = min(-(-len(clients) // (4 * self._backend.size)), MAX_CLIENTS_PER_JOB)
        jobs = []
        for start in range(0, len(clients), job_clients or 1):
            some = tuple(clients[start : start + job_clients])
            cost = sum(self._samples[client] for client in some)
            job = self._job(f"survey {question.name!r}", cost, AskClients(question, some))
            job.client = some[0]
            jobs.append(job)
        down_bytes = wire_size(CODEC.encode(question).size)
        answers: list[tuple[Answer, Traffic]] = []
        try:
            for job in jobs:
                reply = self.wait_for(job)
                assert isinstance(reply, Answers)
                for answer, up_bytes in zip(reply.answers, reply.up_bytes, strict=True):
                    answers.append((answer, Traffic(down_bytes, up_bytes)))
        except ClientFailed as error:
            what = f"survey {question.name!r}: {error.what}"
            raise ClientFailed(error.client, 0, what) from error.__cause__
        finally:
            for job in jobs:
                self.cancel(job)
        return answers

    # --- for the server: `Scorer` ------------------------------------------------------------

    def scores(self, weights: np.ndarray, buffers: np.ndarray, batch_size: int) -> Scores | None:
        """Return a model's scores on the server's samples; None: they are too few to divide."""
        batches = -(-self._rows // batch_size)
        pieces = min(2 * self._backend.size, batches)
        if pieces < 2:
            return None
        ends = [batches * piece // pieces * batch_size for piece in range(pieces)] + [self._rows]
        jobs = [
            self._job(
                "the evaluation", stop - start, Score(weights, buffers, batch_size, start, stop)
            )
            for start, stop in pairwise(ends)
        ]
        try:
            replies = [self.wait_for(job) for job in jobs]
        finally:
            for job in jobs:
                self.cancel(job)
        found = [reply for reply in replies if isinstance(reply, ScoredRows)]
        return Scores(
            np.concatenate([reply.right for reply in found]),
            np.concatenate([reply.losses for reply in found]),
            batch_size,
        )

    # --- inside ------------------------------------------------------------------------------

    def _job(self, name: str, cost: float, message: object) -> Job:
        parts, shared = self._parts(JOBS.encode(message))
        job = Job(name, cost, parts, shared)
        self._queue.add(job)
        return job

    def _parts(self, payload: Payload) -> tuple[list[Part], list[Shared]]:
        """Return the parts of a message as copies, so that its arrays may change afterwards."""
        parts: list[Part] = []
        shared: list[Shared] = []
        for buffer in payload.buffers:
            if buffer.nbytes >= MIN_SHARED_BYTES:
                shared.append(self._buffers.share(buffer))
                parts.append(shared[-1].handle)
            else:
                parts.append(bytes(buffer))
        return parts, shared

    def wait_for(self, job: Job) -> Any:
        """Wait for a job and return its reply.

        Raises:
            ClientFailed: the client's code failed.
            ExecutorFailed: the worker cannot do any job.
        """
        while job.reply is None:
            self._assign_jobs(job)
            self._handle_reply(*self._backend.wait())
        self._assign_jobs(job)  # so that no worker waits while the reply is decoded and used
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

    def _assign_jobs(self, wanted: Job) -> None:
        """Give workers jobs, the most expensive first, so that no long job comes last.

        Free workers come first. As long as many jobs wait, the others get some in advance.
        """
        for depth in range(self._backend.depth):
            for worker in range(self._backend.size):
                if not self._queue or (depth and len(self._queue) <= self._many):
                    return
                if len(self._running[worker]) > depth or not self._backend.ready(worker):
                    continue
                job = self._queue.most_expensive()
                if self._pending_bytes > MAX_PENDING_BYTES:
                    if wanted not in self._queue:
                        return
                    job = wanted
                self._queue.remove(job)
                self._running[worker].append(job)
                self._backend.submit(worker, job.parts)

    def _begin_early(self, submitted: Job) -> None:
        """Keep workers busy while many jobs are submitted."""
        while len(self._queue) > self._many and self._pending_bytes <= MAX_PENDING_BYTES:
            self._assign_jobs(submitted)
            found = self._backend.poll()
            if found is None:
                return
            self._handle_reply(*found)

    @property
    def _many(self) -> int:
        return MIN_QUEUED * self._backend.size

    def _handle_reply(self, worker: int, reply: bytes | WorkerDied | None) -> None:
        if reply is None:
            return
        jobs = self._running[worker]
        job = jobs.popleft() if jobs else None
        if isinstance(reply, WorkerDied):
            self._handle_death(job, reply)
            while jobs:  # it had not begun them
                self._repeat(jobs.popleft())
        elif job is not None:
            self._finish(job, reply)

    def _handle_death(self, job: Job | None, death: WorkerDied) -> None:
        if job is None or job.cancelled:
            log.warning("%s %s; another replaces it", death.who, death.how)
            if job is not None:
                self._release(job)
            return
        job.deaths += 1
        log.warning("%s %s (job: %s); another worker repeats it", death.who, death.how, job.name)
        if job.deaths < MAX_DEATHS:
            self._repeat(job)
            return
        what = f"{MAX_DEATHS} workers died over it, the last one ({death.who}) {death.how}"
        if job.client is None:
            what = f"{job.name}: {what}"
        self._finish(job, bytes(JOBS.encode(JobFailed(what, "", "", job.client))))

    def _repeat(self, job: Job) -> None:
        """Put a job back into the queue, unless it was cancelled."""
        if job.cancelled:
            self._release(job)
        else:
            self._queue.add(job)

    def _finish(self, job: Job, reply: bytes) -> None:
        self._release(job)
        if not job.cancelled:
            job.reply = reply
            self._pending_bytes += len(reply)

    def cancel(self, job: Job) -> None:
        """Cancel a job; the reply of a worker that has begun it is ignored."""
        job.cancelled = True
        if job in self._queue:
            self._queue.remove(job)
            self._release(job)
        if job.reply is not None:
            self._pending_bytes -= len(job.reply)
            job.reply = None

    def _release(self, job: Job) -> None:
        for shared in job.shared:
            self._buffers.release(shared)
        job.shared = []


@dataclass(eq=False)
class _PoolWork:
    executor: ParallelExecutor
    job: Job
    down_bytes: int

    def result(self) -> TrainResult:
        reply = self.executor.wait_for(self.job)
        assert isinstance(reply, TrainedUpdate)
        return TrainResult(reply.update, reply.up_bytes, reply.ledger.decode())

    def cancel(self) -> None:
        self.executor.cancel(self.job)
