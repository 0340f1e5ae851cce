"""A worker: it makes an experiment's parts once, and then works for any client."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedmx.assembly.assembly import Assembly
from fedmx.assembly.data_arrays import use_arrays
from fedmx.components.user_code import place_of, reason_of
from fedmx.experiment import Experiment
from fedmx.protocol.messages import CODEC
from fedmx.simulation.executors.jobs import (
    JOBS,
    Answers,
    AskClients,
    Build,
    EncodedState,
    JobFailed,
    Score,
    ScoredRows,
    Train,
    TrainedUpdate,
)
from fedmx.simulation.executors.serial import SerialExecutor
from layers.compute.blas import one_blas_thread
from layers.compute.data.datasets import Files
from layers.logic import ClientLedger
from layers.network import Payload, wire_size


class Worker:
    """Turns encoded jobs into encoded replies; an exception also becomes a reply."""

    def __init__(self) -> None:
        self._failure = JobFailed("the worker was given a job before its experiment", "", "")
        self._serial: SerialExecutor | None = None

    def open(self, build: bytes, arrays: Sequence[np.ndarray]) -> None:
        """Make an experiment's parts; a failure is the reply to each job that follows.

        Args:
            build: the encoded `Build`.
            arrays: the experiment's data, as the build describes them.
        """
        self._serial = None
        self.__dict__.pop("_assembly", None)
        gc.collect()  # the data of the experiment before this one
        try:
            self._make(JOBS.decode(build), arrays)
        except BaseException as error:  # noqa: BLE001 - the simulation reports it
            self._failure = _failure_of(error)

    def do(self, parts: Iterable[bytes | bytearray | memoryview]) -> Payload:
        """Do one job and return the reply."""
        client: int | None = None
        try:
            job = JOBS.decode(bytearray().join(parts))
            if self._serial is None:
                return JOBS.encode(self._failure)
            with one_blas_thread():
                match job:
                    case Train():
                        client = job.task.client
                        return JOBS.encode(self._train(job))
                    case AskClients():
                        answers = []
                        for client in job.clients:  # the failure names the last one
                            answers.append(self._participant(client).answer(job.question))
                        sizes = tuple(_wire_bytes(answer) for answer in answers)
                        return JOBS.encode(Answers(tuple(answers), sizes))
                    case Score():
                        return JOBS.encode(self._score(job))
            raise TypeError(f"{type(job).__name__} is not a job")
        except BaseException as error:  # noqa: BLE001 - the simulation reports it
            return JOBS.encode(_failure_of(error, client))

    def _make(self, build: Build, arrays: Sequence[np.ndarray]) -> None:
        folder = None if build.folder is None else Path(build.folder)
        data, cache = (None if one is None else Path(one) for one in (build.data, build.cache))
        # The simulation that sent it has made the same parts, from modules that it allows.
        experiment = Experiment.parse(build.experiment, build.source, folder=folder, modules=None)
        self._assembly = Assembly(experiment, Files(data, cache, build.download))
        use_arrays(self._assembly, build.contents, arrays)
        self._serial = SerialExecutor.of(self._assembly)

    def _participant(self, client: int, ledger: ClientLedger | None = None) -> Any:
        assert self._serial is not None
        return self._serial.participant(client, ledger or ClientLedger())

    def _train(self, job: Train) -> TrainedUpdate:
        participant = self._participant(job.task.client, job.ledger.decode())
        update = participant.train(job.task)
        return TrainedUpdate(update, _wire_bytes(update), EncodedState.of(participant.ledger))

    def _score(self, job: Score) -> ScoredRows:
        engine = self._assembly.engine
        engine.load(job.weights, job.buffers)
        samples = self._assembly.data.test_samples
        scores = engine.scores(samples, job.batch_size, job.start, job.stop)
        return ScoredRows(scores.right, scores.losses)


def _wire_bytes(message: object) -> int:
    return wire_size(CODEC.encode(message).size)


def _failure_of(error: BaseException, client: int | None = None) -> JobFailed:
    lines = traceback.format_exception(error)
    what = reason_of(error) if client is not None else str(error)
    return JobFailed(_utf8(what), _utf8("".join(lines)), _utf8(place_of(error)), client)


def _utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
