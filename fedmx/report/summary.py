"""What a run's records say: settings, points of its curves, totals, and costs up to a target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmx.errors import ExperimentError
from fedmx.experiment.reader import parse_text
from fedmx.report.participation import Participation, tally
from fedmx.report.quantities import finite, mebibytes, plain
from fedmx.run import RunFolder

ABSENT = "–"


def read_settings(experiment_yaml: str) -> dict[str, Any]:
    """Return the value at each dotted path, in the order of the file.

    The name of a component is at the component's own path: ``{partition: {name: shards,
    per_client: 2}}`` gives ``partition: shards`` and ``partition.per_client: 2``. A text that is
    not an experiment gives an empty mapping.
    """
    try:
        tree, _ = parse_text(experiment_yaml, "experiment.yaml")
    except ExperimentError:
        return {}
    settings: dict[str, Any] = {}
    _flatten("", tree, settings)
    return settings


def as_text(value: object) -> str:
    """Return a value as an experiment file spells it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def table_of(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """Return each path that some run has, with its text in every run (`ABSENT` if it has none)."""
    paths = dict.fromkeys(path for settings in runs for path in settings)
    return [
        (path, [as_text(settings[path]) if path in settings else ABSENT for settings in runs])
        for path in paths
    ]


def _flatten(path: str, value: object, settings: dict[str, Any]) -> None:
    if isinstance(value, dict) and value:
        if path and "name" in value:
            settings[path] = value["name"]
            value = {key: item for key, item in value.items() if key != "name"}
        for key, item in value.items():
            _flatten(f"{path}.{key}" if path else str(key), item, settings)
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for index, item in enumerate(value):
            _flatten(f"{path}.{index}", item, settings)
    elif isinstance(value, dict | list):
        settings[path] = ", ".join(as_text(item) for item in value) or "none"
    else:
        settings[path] = value


@dataclass(frozen=True)
class Point:
    """One round: its own measures, and the run's totals at its end.

    Attributes:
        round: from 1.
        accuracy: of the global model on the test split, 0 to 1; None: not evaluated.
        loss: of the global model on the test split; None: not evaluated.
        train_loss: mean over the participants.
        bytes: up and down, since the run began.
        seconds: of the process since the run began, evaluation included.
        client_accuracy: mean over clients of the accuracy on a client's own test samples.
        client_variance: variance over clients of the same.
        clock_s: by the experiment's clock since the run began; None: not recorded.
        round_s: of this round, by the experiment's clock.
        virtual: whether that clock is virtual, as in a simulation with devices.
    """

    round: int
    accuracy: float | None
    loss: float | None
    train_loss: float | None
    bytes: float
    seconds: float
    client_accuracy: float | None = None
    client_variance: float | None = None
    clock_s: float | None = None
    round_s: float | None = None
    virtual: bool = False

    @property
    def time_s(self) -> float | None:
        """Real time by the clock, else of the process; None if time is virtual."""
        if self.virtual:
            return None
        return self.seconds if self.clock_s is None else self.clock_s

    @property
    def virtual_s(self) -> float | None:
        """Virtual time; None if time is real."""
        return self.clock_s if self.virtual else None

    @property
    def client_deviation(self) -> float | None:
        """The standard deviation of the accuracy over the clients."""
        return None if self.client_variance is None else max(self.client_variance, 0.0) ** 0.5


def points_of(records: Sequence[Mapping[str, Any]]) -> list[Point]:
    """Return a point for each record of a round; a value of a wrong type was not measured."""
    points: list[Point] = []
    sent_bytes = elapsed_s = clock_s = 0.0
    # A clock that some rounds do not have does not give the duration of the run.
    clocked = all(finite(record.get("clock_s")) is not None for record in records)
    for record in records:
        for key in ("up_bytes", "down_bytes"):
            sent_bytes += finite(record.get(key)) or 0.0
        elapsed = finite(record.get("elapsed_s"))
        elapsed_s = (
            elapsed_s + (finite(record.get("seconds")) or 0.0) if elapsed is None else elapsed
        )
        round_s = finite(record.get("clock_s"))
        clock_s = finite(record.get("clock_elapsed_s")) or clock_s + (round_s or 0.0)
        points.append(
            Point(
                round=int(finite(record.get("round")) or len(points) + 1),
                accuracy=finite(record.get("accuracy")),
                loss=finite(record.get("loss")),
                train_loss=finite(record.get("train_loss")),
                bytes=sent_bytes,
                seconds=elapsed_s,
                client_accuracy=finite(record.get("client_accuracy_mean")),
                client_variance=finite(record.get("client_accuracy_variance")),
                clock_s=clock_s if clocked else None,
                round_s=round_s,
                virtual=clocked and record.get("virtual") is True,
            )
        )
    return points


def evaluated(points: Iterable[Point]) -> list[Point]:
    """Return the rounds after which the model was evaluated."""
    return [p for p in points if p.accuracy is not None]


def best_of(points: Iterable[Point]) -> Point | None:
    """Return the first round with the highest accuracy, or None."""
    return max(evaluated(points), key=lambda p: (p.accuracy or 0.0, -p.round), default=None)


def first_with(points: Iterable[Point], accuracy: float) -> Point | None:
    """Return the first round with at least this accuracy, or None."""
    return next((p for p in evaluated(points) if (p.accuracy or 0.0) >= accuracy), None)


FLOAT32_BYTES = 4
TOLERANCE = 0.05  # a smaller difference comes from the headers of messages


@dataclass(frozen=True)
class Compression:
    """The bytes of one direction of a run.

    Attributes:
        sent_bytes: the measured size of the encoded messages.
        float32_bytes: 4 x values of the model x messages.
        rounds: the rounds in which they were sent, 1 or more.
    """

    sent_bytes: float
    float32_bytes: float
    rounds: int

    @property
    def ratio(self) -> float:
        """float32_bytes / sent_bytes."""
        return self.float32_bytes / self.sent_bytes

    @property
    def per_round(self) -> str:
        """The mean size of a round's messages, with its unit."""
        return mebibytes(self.sent_bytes / self.rounds)

    @property
    def float32_per_round(self) -> str:
        """The mean size of a round's messages in float32, with its unit."""
        return mebibytes(self.float32_bytes / self.rounds)

    def __str__(self) -> str:
        ratio = self.ratio
        if abs(ratio - 1) < TOLERANCE:
            comparison = "as large as"
        elif ratio > 1:
            comparison = f"{plain(ratio)} x smaller than"
        else:
            comparison = f"{plain(1 / ratio)} x larger than"
        return f"{self.per_round} a round, {comparison} float32 ({self.float32_per_round})"


def compression(
    facts: Mapping[str, Any], records: Sequence[Mapping[str, Any]], bytes_key: str, count_key: str
) -> Compression | None:
    """Return the compression of a direction, or None if the records do not have the numbers.

    Args:
        facts: the facts of the run.
        records: the records of its rounds.
        bytes_key: the key of a round's bytes in this direction, ``up_bytes`` or ``down_bytes``.
        count_key: the key of a round's messages in this direction that hold a model or an update.
    """
    values = [finite(facts.get(name)) for name in ("parameters", "buffers")]
    rows = [(finite(one.get(bytes_key)), finite(one.get(count_key))) for one in records]
    sent = sum(size for size, _ in rows if size is not None)
    messages = sum(count for _, count in rows if count is not None)
    if any(None in row for row in (values, *rows)) or sent <= 0 or messages <= 0:
        return None
    dense = FLOAT32_BYTES * sum(value for value in values if value is not None) * messages
    return Compression(sent, dense, len(rows)) if dense > 0 else None


@dataclass(frozen=True)
class RunSummary:
    """One run as a report shows it; ``bytes`` of a point are without control and file bytes.

    What is damaged in its folder (``damage``, a line each) is missing in the figures.
    """

    name: str
    status: str
    reason: str
    facts: Mapping[str, Any]
    experiment_yaml: str
    settings: Mapping[str, Any]
    points: Sequence[Point]
    up_bytes: float
    down_bytes: float
    control_bytes: float
    file_bytes: float
    participation: Participation
    up: Compression | None = None
    down: Compression | None = None
    damage: Sequence[str] = ()

    @property
    def seconds(self) -> float | None:
        """Wall-clock time of the rounds, evaluation included."""
        return self.points[-1].seconds if self.points else None

    @property
    def virtual(self) -> bool:
        """Whether the rounds' clock is virtual."""
        return bool(self.points) and self.points[-1].virtual

    @property
    def virtual_s(self) -> float | None:
        """Virtual time of the rounds; None if time is real."""
        return self.points[-1].virtual_s if self.points else None

    @property
    def planned_rounds(self) -> int | None:
        """The number of rounds in the experiment."""
        rounds = self.settings.get("rounds")
        return rounds if isinstance(rounds, int) else None

    @property
    def evaluated(self) -> list[Point]:
        """The rounds after which the model was evaluated."""
        return evaluated(self.points)

    def best(self) -> Point | None:
        """Return the first round with the highest accuracy, or None."""
        return best_of(self.points)

    def final(self) -> Point | None:
        """Return the last evaluated round, or None."""
        return self.evaluated[-1] if self.evaluated else None

    def final_loss(self) -> float | None:
        """Return the last evaluated loss, or None."""
        return next((p.loss for p in reversed(self.points) if p.loss is not None), None)

    def reached(self, accuracy: float) -> Point | None:
        """Return the first round with at least this accuracy, or None."""
        return first_with(self.points, accuracy)

    def final_by_client(self) -> Point | None:
        """Return the last round after which clients' own test samples were evaluated, or None."""
        return next((p for p in reversed(self.points) if p.client_accuracy is not None), None)

    def reached_by_clients(self, accuracy: float) -> Point | None:
        """Return the first round whose mean accuracy over clients is at least this, or None."""
        return next((p for p in self.points if (p.client_accuracy or 0.0) >= accuracy), None)


def summarise(run: RunFolder) -> RunSummary:
    """Return the figures of a run; a value of a wrong type counts as not measured.

    Raises:
        RunError: the run cannot be read.
    """
    records = run.rounds()
    points = points_of(records)
    totals = {
        key: sum(finite(record.get(key)) or 0.0 for record in records)
        for key in ("up_bytes", "down_bytes", "control_bytes", "file_bytes")
    }
    return RunSummary(
        name=run.name,
        status=run.status,
        reason=run.reason,
        facts=run.facts,
        experiment_yaml=run.experiment_yaml,
        settings=read_settings(run.experiment_yaml),
        points=points,
        participation=tally(run.clients()),
        up=compression(run.facts, records, "up_bytes", "updates"),
        down=compression(run.facts, records, "down_bytes", "tasks"),
        damage=run.damage,
        **totals,
    )
