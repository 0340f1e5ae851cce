"""A worker, and the messages between a simulation and its workers.

A worker makes an experiment's parts once, from the simulation's arrays, and then works for any
client. Jobs go out to workers, replies come back.
"""

from __future__ import annotations

import gc
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from fedmx.assembly.assembly import Assembly
from fedmx.components.user_code import place_of
from fedmx.experiment import Experiment
from fedmx.protocol.messages import CODEC
from fedmx.run.checkpoint import decode_tree, encode_tree
from fedmx.simulation.executors.cohort import SerialGroups, groups_of
from fedmx.simulation.executors.executor import SerialExecutor, TrainResult
from layers.compute.bits import one_blas_thread
from layers.compute.data.dataset import Samples
from layers.compute.data.datasets import Dataset, Files, Raw
from layers.compute.data.partitions.partition import GroupedRows
from layers.compute.data.targets import Targets
from layers.logic import Answer, ClientFailed, ClientLedger, Question, Task, Update
from layers.logic.core.messages import EMPTY
from layers.logic.errors import reason_of
from layers.network import MessageCodec, Payload, wire_size

# --- messages --------------------------------------------------------------------------------


@dataclass(frozen=True)
class DataIndex:
    """The contents of a list of arrays that hold an experiment's data.

    Attributes:
        name: name of the data set.
        targets: what the targets of its samples are.
        shape: shape of one example.
        words: the words of its tokens.
        arrays: the index of each array in the list, by name. The arrays are the samples that
            evaluate the global model, those of each asset, both splits, and the rows of all
            clients, one client after the other, with the end of each client's rows.
    """

    name: str
    targets: Targets
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
        download: whether to download missing data.
        deployed: see `Assembly`.
        contents: the contents of the arrays that come with this message.
    """

    experiment: str
    source: str
    folder: str | None
    data: str | None
    cache: str | None
    download: bool
    deployed: bool
    contents: DataIndex


@dataclass(frozen=True, eq=False)
class EncodedLedger:
    """A client's ledger: the text of a state tree, and its arrays by name."""

    text: str
    arrays: dict[str, np.ndarray]

    @classmethod
    def of(cls, ledger: ClientLedger) -> EncodedLedger:
        """Return the encoded ledger.

        Raises:
            TypeError: a hook keeps something other than arrays, numbers and text.
        """
        return cls(*encode_tree(ledger.tree()))

    def decode(self) -> ClientLedger:
        """Return the ledger."""
        return ClientLedger.of_tree(decode_tree(self.text, self.arrays))


def within_round(ledgers: Mapping[int, ClientLedger]) -> dict[int, EncodedLedger]:
    """Return the encoded memory of clients within a round, of those that have one."""
    return {
        client: EncodedLedger.of(ClientLedger(within=ledger.within))
        for client, ledger in ledgers.items()
        if ledger.within.round
    }


@dataclass(frozen=True, eq=False)
class Train:
    """Out: a client's task and its ledger."""

    task: Task
    ledger: EncodedLedger


@dataclass(frozen=True, eq=False)
class TrainedUpdate:
    """Back: the client's update, its bytes on the wire, and the client's new ledger."""

    update: Update
    up_bytes: int
    ledger: EncodedLedger

    @classmethod
    def of(cls, result: TrainResult) -> TrainedUpdate:
        """Return the encoded result."""
        return cls(result.update, result.up_bytes, EncodedLedger.of(result.ledger))

    def result(self) -> TrainResult:
        """Return the result."""
        return TrainResult(self.update, self.up_bytes, self.ledger.decode())


@dataclass(frozen=True, eq=False)
class TrainGroup:
    """Out: tasks of clients that train at once.

    Attributes:
        weights: the weights of the first task; others that have the same leave them out.
        tasks: the tasks and ledgers.
    """

    weights: np.ndarray
    tasks: tuple[Train, ...]

    @classmethod
    def of(cls, group: Sequence[tuple[Task, ClientLedger]]) -> TrainGroup:
        """Return the message for tasks and ledgers."""
        weights = group[0][0].weights
        tasks = (
            (replace(task, weights=EMPTY) if task.weights is weights else task, ledger)
            for task, ledger in group
        )
        return cls(weights, tuple(Train(task, EncodedLedger.of(one)) for task, one in tasks))

    def group(self) -> list[tuple[Task, ClientLedger]]:
        """Return the tasks and ledgers."""
        return [
            (
                one.task if one.task.weights.size else replace(one.task, weights=self.weights),
                one.ledger.decode(),
            )
            for one in self.tasks
        ]


@dataclass(frozen=True, eq=False)
class TrainedGroup:
    """Back: the results of a group's tasks."""

    updates: tuple[TrainedUpdate, ...]


@dataclass(frozen=True, eq=False)
class AskClients:
    """Out: a question to several clients, and of some their memory within the round."""

    question: Question
    clients: tuple[int, ...]
    within: dict[int, EncodedLedger]


@dataclass(frozen=True, eq=False)
class Answers:
    """Back: the clients' answers in the same order, and the bytes of each on the wire.

    Also, of some clients, their memory within the round.
    """

    answers: tuple[Answer, ...]
    up_bytes: tuple[int, ...]
    within: dict[int, EncodedLedger]


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
    """Back: the scores of rows; see `Scores`."""

    right: np.ndarray
    losses: np.ndarray
    outputs: np.ndarray


@dataclass(frozen=True)
class JobFailed:
    """Back: the job failed, in the experiment's code or in a component that it names.

    Attributes:
        what: type and text of the error.
        traceback: the worker's traceback.
        place: FILE:LINE of the user's own code that raised it; empty: not in user code.
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
        9: TrainGroup,
        10: TrainedGroup,
    }
)


def build_of(assembly: Assembly, contents: DataIndex) -> bytes:
    """Return the encoded `Build`, from which a worker makes the experiment's parts.

    Args:
        assembly: the parts of the experiment.
        contents: the contents of the arrays that workers receive with it.
    """
    experiment, files = assembly.experiment, assembly.files
    source = experiment.compute.model.source
    build = Build(
        experiment=experiment.to_yaml(),
        source=source.name,
        folder=None if source.folder is None else str(source.folder),
        data=None if files.root is None else str(files.root.absolute()),
        cache=None if files.cache is None else str(files.cache.absolute()),
        download=files.download,
        deployed=assembly.deployed,
        contents=contents,
    )
    return bytes(JOBS.encode(build))


# --- the experiment's data -------------------------------------------------------------------


def arrays_of(assembly: Assembly) -> tuple[DataIndex, list[np.ndarray]]:
    """Return the data of an experiment as arrays, each once, and their contents.

    For data that come client by client there are only the samples that evaluate the global model.
    """
    dataset = assembly.data.dataset
    samples = {"evaluated": assembly.evaluated_samples}
    samples |= {f"asset {name}": one for name, one in assembly.asset_samples.items()}
    named: dict[str, np.ndarray] = {}
    for name, one in samples.items():
        named |= {f"{name}.x": one.x, f"{name}.y": one.y}
    if isinstance(dataset, Dataset):
        for split, raw in (("train", dataset.train), ("test", dataset.test)):
            named |= {f"{split}.x": raw.x, f"{split}.y": raw.y}
            if raw.users is not None:
                named[f"{split}.users"] = raw.users
        for split, parts in zip(("train", "test"), assembly.parts, strict=True):
            rows = GroupedRows.joined(parts)
            named |= {f"{split}.rows": rows.rows, f"{split}.ends": rows.ends}
    arrays: list[np.ndarray] = []
    indices: dict[str, int] = {}
    known: dict[int, int] = {}
    for name, array in named.items():
        indices[name] = known.setdefault(id(array), len(arrays))
        if indices[name] == len(arrays):
            arrays.append(array)
    words = tuple(dataset.words)
    return DataIndex(dataset.name, dataset.targets, dataset.shape, words, indices), arrays


def use_arrays(assembly: Assembly, index: DataIndex, arrays: Sequence[np.ndarray]) -> None:
    """Replace the data of an assembly, loaded or not, by these equal arrays."""
    named = {name: arrays[place] for name, place in index.arrays.items()}
    samples = {
        name.removesuffix(".x"): Samples(x, named[f"{name.removesuffix('.x')}.y"])
        for name, x in named.items()
        if name.endswith(".x")
    }
    assembly.evaluated_samples = samples["evaluated"]
    assembly.asset_samples = {
        name.removeprefix("asset "): one
        for name, one in samples.items()
        if name.startswith("asset ")
    }
    if "train.x" not in named:
        return
    train, test = (
        Raw(named[f"{split}.x"], named[f"{split}.y"], named.get(f"{split}.users"))
        for split in ("train", "test")
    )
    shape, words = tuple(index.shape), tuple(index.words)
    assembly.data.dataset = Dataset(index.name, train, test, index.targets, shape, words)
    train_rows, test_rows = (
        GroupedRows(named[f"{split}.rows"], named[f"{split}.ends"]) for split in ("train", "test")
    )
    assembly.parts = train_rows, test_rows


# --- the worker ------------------------------------------------------------------------------


class Worker:
    """Turns encoded jobs into encoded replies; an exception also becomes a reply."""

    def __init__(self) -> None:
        self._failure = JobFailed("the worker received a job before its experiment", "", "")
        self._parts: tuple[Assembly, SerialExecutor] | None = None

    def open(self, build: bytes, arrays: Sequence[np.ndarray]) -> None:
        """Make an experiment's parts; a failure is the reply to all later jobs.

        Args:
            build: the encoded `Build`.
            arrays: the experiment's data, as the build describes them.
        """
        self._parts = None
        gc.collect()  # the data of the previous experiment
        try:
            assembly = _assembly_of(JOBS.decode(build), arrays)
            one = assembly.at_once is None
            self._parts = assembly, SerialExecutor.of(assembly) if one else groups_of(assembly)
        except BaseException as error:  # noqa: BLE001 - the simulation reports it
            self._failure = _failure_of(error)

    def do(self, parts: Iterable[bytes | bytearray | memoryview]) -> Payload:
        """Do one job and return the reply."""
        client: int | None = None
        try:
            job = JOBS.decode(bytearray().join(parts))
            if self._parts is None:
                return JOBS.encode(self._failure)
            assembly, serial = self._parts
            with one_blas_thread():
                match job:
                    case Train():
                        client = job.task.client
                        participant = serial.participant(client, job.ledger.decode())
                        update = participant.train(job.task)
                        ledger = EncodedLedger.of(participant.ledger)
                        return JOBS.encode(TrainedUpdate(update, _wire_bytes(update), ledger))
                    case TrainGroup():
                        assert isinstance(serial, SerialGroups)
                        results = serial.train_group(job.group())
                        return JOBS.encode(TrainedGroup(tuple(map(TrainedUpdate.of, results))))
                    case AskClients():
                        answers, ledgers = [], {}
                        for client in job.clients:  # the failure names the last one
                            encoded = job.within.get(client)
                            known = ClientLedger() if encoded is None else encoded.decode()
                            participant = serial.participant(client, known)
                            answers.append(participant.answer(job.question))
                            ledgers[client] = participant.ledger
                        sizes = tuple(_wire_bytes(answer) for answer in answers)
                        return JOBS.encode(Answers(tuple(answers), sizes, within_round(ledgers)))
                    case Score():
                        assembly.engine.load(job.weights, job.buffers)
                        samples = assembly.evaluated_samples
                        rows = job.batch_size, job.start, job.stop
                        needed = assembly.evaluator.needs_outputs
                        scores = assembly.engine.scores(samples, *rows, outputs=needed)
                        found = scores.right, scores.losses, scores.outputs
                        return JOBS.encode(ScoredRows(*found))
            raise TypeError(f"{type(job).__name__} is not a job")
        except ClientFailed as error:
            return JOBS.encode(_failure_of(error.__cause__ or error, error.client))
        except BaseException as error:  # noqa: BLE001 - the simulation reports it
            return JOBS.encode(_failure_of(error, client))


def _assembly_of(build: Build, arrays: Sequence[np.ndarray]) -> Assembly:
    folder = None if build.folder is None else Path(build.folder)
    data, cache = (None if one is None else Path(one) for one in (build.data, build.cache))
    # The simulation has made the same parts, from modules that it allows.
    experiment = Experiment.parse(build.experiment, build.source, folder=folder, modules=None)
    files = Files(data, cache, build.download)
    assembly = Assembly(experiment, files, deployed=build.deployed)
    use_arrays(assembly, build.contents, arrays)
    return assembly


def _wire_bytes(message: object) -> int:
    return wire_size(CODEC.encode(message).size)


def _failure_of(error: BaseException, client: int | None = None) -> JobFailed:
    lines = traceback.format_exception(error)
    what = reason_of(error) if client is not None else str(error)
    return JobFailed(_utf8(what), _utf8("".join(lines)), _utf8(place_of(error)), client)


def _utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
