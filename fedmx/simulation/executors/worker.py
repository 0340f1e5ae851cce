"""A worker, which works for any client, and the messages between a simulation and its workers."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedmx.assembly.assembly import Assembly
from fedmx.components.user_code import place_of, reason_of
from fedmx.experiment import Experiment
from fedmx.protocol.messages import CODEC
from fedmx.run import state_tree
from fedmx.simulation.executors.executor import SerialExecutor
from layers.compute.bits import one_blas_thread
from layers.compute.data.dataset import Samples
from layers.compute.data.datasets import Dataset, Files, Raw
from layers.compute.data.partitions.partition import GroupedRows
from layers.logic import Answer, ClientLedger, Question, Task, Update
from layers.network import MessageCodec, Payload, wire_size


@dataclass(frozen=True)
class DataIndex:
    """What a list of arrays holds.

    Attributes:
        name: name of the data set.
        classes: its number of labels.
        shape: shape of one example.
        words: the words of its tokens.
        arrays: the place in the list of each array, by the array's name. The arrays are both
            splits, the rows of all clients one after the other (and where those of each client
            end), the samples on which the global model is evaluated, and those of the assets.
    """

    name: str
    classes: int
    shape: tuple[int, ...]
    words: tuple[str, ...]
    arrays: dict[str, int]


@dataclass(frozen=True)
class Build:
    """Out, first: the experiment whose parts a worker makes.

    Attributes:
        experiment: text of the experiment, with all defaults.
        source: name of the experiment in messages.
        folder: the folder of the modules that it names; None: they are installed.
        data: the user's data folder; None: from the environment.
        cache: the folder for downloads; None: from the environment.
        download: whether missing data may be downloaded.
        contents: what the arrays hold that come with this message.
    """

    experiment: str
    source: str
    folder: str | None
    data: str | None
    cache: str | None
    download: bool
    contents: DataIndex


@dataclass(frozen=True, eq=False)
class EncodedState:
    """A client's ledger, encoded: the text of a state tree, and its arrays by name."""

    text: str
    arrays: dict[str, np.ndarray]

    @classmethod
    def of(cls, ledger: ClientLedger) -> EncodedState:
        """Return the encoded ledger.

        Raises:
            TypeError: a hook keeps something other than arrays, numbers and text.
        """
        return cls(*state_tree.encode(ledger.tree()))

    def decode(self) -> ClientLedger:
        """Return the ledger."""
        return ClientLedger.of_tree(state_tree.decode(self.text, self.arrays))


@dataclass(frozen=True, eq=False)
class Train:
    """Out: a client's task and its ledger."""

    task: Task
    ledger: EncodedState


@dataclass(frozen=True, eq=False)
class TrainedUpdate:
    """Back: the client's update, its bytes on the wire, and the client's new ledger."""

    update: Update
    up_bytes: int
    ledger: EncodedState


@dataclass(frozen=True, eq=False)
class AskClients:
    """Out: a question to several clients."""

    question: Question
    clients: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Answers:
    """Back: the clients' answers in the same order, and the bytes of each on the wire."""

    answers: tuple[Answer, ...]
    up_bytes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Score:
    """Out: a model to evaluate on a range of the server's samples.

    Attributes:
        weights: float32 (d,).
        buffers: float32 (b,).
        batch_size: samples a batch.
        start: the first row, a multiple of `batch_size`.
        stop: the row after the last one.
    """

    weights: np.ndarray
    buffers: np.ndarray
    batch_size: int
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """Back: for each row whether it was classified correctly, and its loss."""

    right: np.ndarray
    losses: np.ndarray


@dataclass(frozen=True)
class JobFailed:
    """Back: the job failed, in the experiment's code or in a component that it names.

    Attributes:
        what: type and text of the error.
        traceback: the worker's traceback.
        place: FILE:LINE of the user's own code where it was raised; empty: not in user code.
        client: the client whose job failed; None: the worker cannot do any job.
    """

    what: str
    traceback: str
    place: str
    client: int | None = field(default=None)


JOBS = MessageCodec(
    {
        1: Build,
        2: Train,
        3: TrainedUpdate,
        4: AskClients,
        5: Answers,
        6: Score,
        7: ScoredRows,
        8: JobFailed,
    }
)


def build_of(assembly: Assembly, contents: DataIndex) -> bytes:
    """Return the encoded `Build`, from which a worker makes the experiment's parts.

    Args:
        assembly: the parts of the experiment.
        contents: what the arrays hold that workers are given with it.
    """
    experiment, files = assembly.experiment, assembly.files
    source = experiment.compute.model.source
    return bytes(
        JOBS.encode(
            Build(
                experiment=experiment.to_yaml(),
                source=source.name,
                folder=None if source.folder is None else str(source.folder),
                data=None if files.root is None else str(files.root.absolute()),
                cache=None if files.cache is None else str(files.cache.absolute()),
                download=files.download,
                contents=contents,
            )
        )
    )


def arrays_of(assembly: Assembly) -> tuple[DataIndex, list[np.ndarray]]:
    """Return the data of an experiment: what there is, and the arrays.

    An array with two names is there once. Of data that are no `Dataset`, whose samples come client
    by client, there are only the samples that the global model is evaluated on.
    """
    dataset = assembly.data.dataset
    named = _of_samples("evaluated", assembly.data.test_samples)
    if isinstance(dataset, Dataset):
        parts = GroupedRows.joined(assembly.parts[0])
        named |= {**_of_raw("train", dataset.train), **_of_raw("test", dataset.test)}
        named["clients.rows"], named["clients.ends"] = parts.rows, parts.ends
    for name, samples in assembly.asset_samples.items():
        named |= _of_samples(f"asset {name}", samples)
    arrays: list[np.ndarray] = []
    places: dict[str, int] = {}
    known: dict[int, int] = {}
    for name, array in named.items():
        places[name] = known.setdefault(id(array), len(arrays))
        if places[name] == len(arrays):
            arrays.append(array)
    words = tuple(dataset.words)
    return DataIndex(dataset.name, dataset.classes, dataset.shape, words, places), arrays


def use_arrays(assembly: Assembly, index: DataIndex, arrays: Sequence[np.ndarray]) -> None:
    """Let an assembly have the data in these arrays, instead of what it has or would read."""
    named = {name: arrays[place] for name, place in index.arrays.items()}
    assets = [name[len("asset ") : -len(".x")] for name in named if _is_asset(name)]
    dataset: Dataset | None = None
    rows: GroupedRows | None = None
    if "train.x" in named:
        dataset = Dataset(
            name=index.name,
            train=_raw("train", named),
            test=_raw("test", named),
            classes=index.classes,
            shape=tuple(index.shape),
            words=tuple(index.words),
        )
        rows = GroupedRows(named["clients.rows"], named["clients.ends"])
    assembly.data.use(_samples("evaluated", named), dataset)
    assembly.use({name: _samples(f"asset {name}", named) for name in assets}, rows)


def _is_asset(name: str) -> bool:
    return name.startswith("asset ") and name.endswith(".x")


def _of_raw(split: str, raw: Raw) -> dict[str, np.ndarray]:
    users = {} if raw.users is None else {f"{split}.users": raw.users}
    return {f"{split}.x": raw.x, f"{split}.y": raw.y, **users}


def _raw(split: str, named: Mapping[str, np.ndarray]) -> Raw:
    return Raw(named[f"{split}.x"], named[f"{split}.y"], named.get(f"{split}.users"))


def _of_samples(what: str, samples: Samples) -> dict[str, np.ndarray]:
    return {f"{what}.x": samples.x, f"{what}.y": samples.y}


def _samples(what: str, named: Mapping[str, np.ndarray]) -> Samples:
    return Samples(named[f"{what}.x"], named[f"{what}.y"])


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
