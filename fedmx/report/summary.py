"""A run from its records: settings, points of its curves, totals, and costs up to a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from fedmx.errors import ExperimentError, FedmxError
from fedmx.experiment.reader import values_in
from fedmx.quantities import QUANTITIES, Quantity, figures, is_evaluated, metrics_in
from fedmx.report.formats import finite, mebibytes, plain, whole
from fedmx.report.participation import Participation, tally
from fedmx.run import RunFolder
from layers.compute.engines.evaluation import ACCURACY, LOSS

ABSENT = "–"


def read_settings(experiment_yaml: str) -> dict[str, Any]:
    """Return the value at each dotted path, in the order of the file.

    A component's name is at its own path: ``{partition: {name: shards, per_client: 2}}`` gives
    ``partition: shards`` and ``partition.per_client: 2``. A text that is not an experiment gives
    an empty mapping.
    """
    try:
        tree = values_in(experiment_yaml)
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
    """Return each path of any run, with its text in every run (`ABSENT` if it has none)."""
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
        round: counted from 1.
        accuracy: of the global model on the test split, 0 to 1; None: not evaluated.
        loss: of the global model on the test split; None: not evaluated.
        train_loss: mean over the participants.
        sizes: by the keys of `SIZES`, since the run began.
        local_steps: of the clients that counted, since the run began.
        elapsed_s: machine time since the run began, evaluation included.
        client_accuracy_mean: over clients, of the accuracy on a client's own test samples.
        client_accuracy_variance: over clients, of the same.
        measured: the other quantities of the record that are numbers, by key (`fedmx.quantities`).
        evaluated: whether the global model was evaluated on the test split.
        clock_elapsed_s: by the experiment's clock since the run began; None: not recorded.
        clock_s: of this round, by the experiment's clock.
        virtual: whether that clock is virtual, as in a simulation with devices.
        staleness: of each accepted update, if rounds do not wait; otherwise None.
        in_flight: tasks at the end of the round, if rounds do not wait; otherwise None.
        initial: in the first round, the loss and the metrics of the initial model, by key.
    """

    round: int
    accuracy: float | None
    loss: float | None
    train_loss: float | None
    sizes: Mapping[str, float]
    local_steps: float
    elapsed_s: float
    client_accuracy_mean: float | None = None
    client_accuracy_variance: float | None = None
    measured: Mapping[str, Any] = field(default_factory=dict)
    evaluated: bool = False
    clock_elapsed_s: float | None = None
    clock_s: float | None = None
    virtual: bool = False
    staleness: tuple[int, ...] | None = None
    in_flight: int | None = None
    initial: Mapping[str, float] = field(default_factory=dict)

    def value(self, of: Quantity) -> float | None:
        """The value of a metric; None: not measured, or not a number."""
        if of.key in (ACCURACY, LOSS):
            return self.accuracy if of.key == ACCURACY else self.loss
        return self.measured.get(of.key)

    @property
    def bytes(self) -> float:
        """Up and down, since the run began."""
        return self.sizes["up_bytes"] + self.sizes["down_bytes"]

    @property
    def time_s(self) -> float | None:
        """Machine time, evaluation included; None if time is virtual."""
        return None if self.virtual else self.elapsed_s

    @property
    def virtual_s(self) -> float | None:
        """Virtual time; None if time is real."""
        return self.clock_elapsed_s if self.virtual else None


def deviation(variance: float | None) -> float | None:
    """Return the standard deviation of a quantity with this variance."""
    return None if variance is None else max(variance, 0.0) ** 0.5


def points_of(records: Sequence[Mapping[str, Any]], metrics: Sequence[Quantity]) -> list[Point]:
    """Return a point for each record of a round; a value of a wrong type was not measured."""
    kept = dict.fromkeys(one.key for one in (*QUANTITIES, *metrics) if one.optional)
    named = [one.parts for one in QUANTITIES if one.parts]
    rows = [{key: finite(value) for key, value in record.items()} for record in records]
    points: list[Point] = []
    local_steps = elapsed_s = clock_s = 0.0
    sizes = dict.fromkeys(SIZES, 0.0)
    # The duration of the run is unknown if some rounds have no clock.
    clocked = all(row.get("clock_s") is not None for row in rows)
    for record, row in zip(records, rows, strict=True):
        sizes = {key: size + (row.get(key) or 0.0) for key, size in sizes.items()}
        local_steps += row.get("local_steps") or 0.0
        elapsed = row.get("elapsed_s")
        elapsed_s = elapsed_s + (row.get("seconds") or 0.0) if elapsed is None else elapsed
        clock_s = row.get("clock_elapsed_s") or clock_s + (row.get("clock_s") or 0.0)
        points.append(
            Point(
                round=int(row.get("round") or len(points) + 1),
                accuracy=row.get("accuracy"),
                loss=row.get("loss"),
                train_loss=row.get("train_loss"),
                sizes=sizes,
                local_steps=local_steps,
                elapsed_s=elapsed_s,
                client_accuracy_mean=row.get("client_accuracy_mean"),
                client_accuracy_variance=row.get("client_accuracy_variance"),
                measured={key: value for key in kept if (value := row.get(key)) is not None}
                | {key: parts for key in named if (parts := _finite_parts(record.get(key)))},
                evaluated=is_evaluated(row, metrics),
                clock_elapsed_s=clock_s if clocked else None,
                clock_s=row.get("clock_s"),
                virtual=clocked and record.get("virtual") is True,
                staleness=_wholes(record.get("staleness")),
                in_flight=whole(record.get("in_flight")),
                initial=_finite_parts(record.get("initial")),
            )
        )
    return points


def _finite_parts(values: object) -> dict[str, float]:
    """Return the finite numbers of a quantity that is recorded by name."""
    given = values.items() if isinstance(values, dict) else ()
    found = ((str(name), finite(value)) for name, value in given)
    return {name: value for name, value in found if value is not None}


def _wholes(values: object) -> tuple[int, ...] | None:
    if not isinstance(values, list):
        return None
    return tuple(one for value in values if (one := whole(value)) is not None)


@dataclass(frozen=True)
class Curve:
    """The points of a run.

    Attributes:
        points: one for each round, in order.
        metrics: of an evaluation; the first one stands for the model. Empty: not known yet.
    """

    points: Sequence[Point] = ()
    metrics: Sequence[Quantity] = ()

    @property
    def metric(self) -> Quantity:
        """The metric that stands for the model."""
        return self.metrics[0]

    def value(self, point: Point | None) -> float | None:
        """The value of `metric` in a round; None: not measured."""
        return None if point is None else point.value(self.metric)

    def by(self: AnyCurve, metric: Quantity) -> AnyCurve:
        """Return the same run with another metric that stands for the model."""
        others = [one for one in self.metrics if one.key != metric.key]
        return replace(self, metrics=(metric, *others))

    @property
    def drawn(self) -> Sequence[Point]:
        """The points of a curve: the initial model as round 0, if it was evaluated, and rounds."""
        if not self.points or not self.points[0].initial:
            return self.points
        first, values = self.points[0], self.points[0].initial
        start = Point(
            round=0,
            accuracy=values.get(ACCURACY),
            loss=values.get(LOSS),
            train_loss=None,
            sizes=dict.fromkeys(SIZES, 0.0),
            local_steps=0.0,
            elapsed_s=0.0,
            measured=values,
            clock_elapsed_s=None if first.clock_elapsed_s is None else 0.0,
            virtual=first.virtual,
        )
        return [start, *self.points]

    @property
    def rounds(self) -> int:
        """The number of the last round; 0: none has ended."""
        return self.points[-1].round if self.points else 0

    @property
    def waits(self) -> bool:
        """Whether rounds wait for their clients; if not, each round is a version of the model."""
        return not self.points or self.points[-1].in_flight is None

    @property
    def seconds(self) -> float | None:
        """Machine time of the rounds, evaluation included."""
        return self.points[-1].elapsed_s if self.points else None

    @property
    def virtual(self) -> bool:
        """Whether the rounds' clock is virtual."""
        return bool(self.points) and self.points[-1].virtual

    @property
    def virtual_s(self) -> float | None:
        """Virtual time of the rounds; None if time is real."""
        return self.points[-1].virtual_s if self.points else None

    @property
    def totals(self) -> Mapping[str, float]:
        """Bytes over all rounds, by the keys of `SIZES`."""
        return self.points[-1].sizes if self.points else dict.fromkeys(SIZES, 0.0)

    @property
    def evaluated(self) -> list[Point]:
        """The rounds after which the model was evaluated."""
        return [point for point in self.points if point.evaluated]

    @property
    def best(self) -> Point | None:
        """The first round with the best value."""
        found = [p for p in self.points if self.value(p) is not None]
        sign = self.metric.sign if found else 1
        return max(found, key=lambda p: (sign * (self.value(p) or 0.0), -p.round), default=None)

    @property
    def best_value(self) -> float | None:
        """The best value."""
        return self.value(self.best)

    @property
    def final(self) -> Point | None:
        """The last evaluated round."""
        return self.evaluated[-1] if self.evaluated else None

    @property
    def final_loss(self) -> float | None:
        """The last loss."""
        return next((p.loss for p in reversed(self.points) if p.loss is not None), None)

    @property
    def final_by_client(self) -> Point | None:
        """The last round after which the clients' own test samples were evaluated."""
        return next((p for p in reversed(self.points) if p.client_accuracy_mean is not None), None)

    @property
    def last_measured(self) -> Mapping[str, Any]:
        """The last value of each quantity that not every round has (`Point.measured`)."""
        found = {key: value for point in self.points for key, value in point.measured.items()}
        if (by_client := self.final_by_client) is not None:
            found["client_accuracy_mean"] = by_client.client_accuracy_mean or 0.0
        return found

    def last(self, of: Quantity) -> float | None:
        """The last value of a quantity that some evaluations measure."""
        return next((y for p in reversed(self.points) if (y := p.value(of)) is not None), None)

    def last_parts(self, of: Quantity) -> Mapping[str, float]:
        """The last values whose mean a quantity is, by name."""
        last = next((p for p in reversed(self.points) if of.parts in p.measured), None)
        return {} if last is None else last.measured[of.parts]

    def reached(self, target: float | None) -> Point | None:
        """Return the first round that is as good as a target; None: none, or no target."""
        if target is None:
            return None
        return next((p for p in self.points if self.metric.meets(self.value(p), target)), None)

    def reached_by_clients(self, accuracy: float | None) -> Point | None:
        """Return the first round with at least this mean accuracy over clients; see `reached`."""
        if accuracy is None:
            return None
        return next((p for p in self.points if (p.client_accuracy_mean or 0.0) >= accuracy), None)


AnyCurve = TypeVar("AnyCurve", bound=Curve)


def by_common_metric(runs: Sequence[AnyCurve]) -> list[AnyCurve]:
    """Return runs by the first metric of the first one that all of them have.

    Raises:
        FedmxError: there is none.
    """
    keys = [{one.key for one in run.metrics} for run in runs]
    for metric in runs[0].metrics if runs else ():
        if metric.unit != "text" and all(metric.key in own for own in keys):
            return [run.by(metric) for run in runs]
    names = " and ".join(dict.fromkeys(run.metric.words for run in runs))
    if names:
        raise FedmxError(f"the runs have no metric in common, but {names}; compare them one by one")
    return []


def curve_of(folder: RunFolder) -> Curve:
    """Return the points of a run.

    Raises:
        RunError: the run cannot be read.
    """
    metrics = metrics_in(folder.facts)
    return Curve(points_of(folder.rounds(), metrics), metrics)


def document_of(folder: RunFolder, settings: Mapping[str, Any], curve: Curve) -> dict[str, Any]:
    """Return what every command says of a run as JSON: its state and its quantities.

    Args:
        folder: the run folder.
        settings: of its experiment; see `read_settings`.
        curve: of the run; see `curve_of`.
    """
    return {
        "run": str(folder.path),
        "state": folder.status,
        "reason": folder.reason,
        "rounds": settings.get("rounds"),
        **figures(curve),
    }


class Size(NamedTuple):
    """A size that each record of a round has, in bytes.

    Attributes:
        label: what it is.
        note: more about it.
        messages: the key of a round's messages of this size that hold a model or an update.
    """

    label: str
    note: str = ""
    messages: str = ""


SIZES = {
    "up_bytes": Size("Bytes up", "clients to server", "updates"),
    "down_bytes": Size("Bytes down", "server to clients", "tasks"),
    "control_bytes": Size("Control bytes"),
    "file_bytes": Size("File bytes", "assets, both ways"),
}
"""The sizes by their key in a record of a round; all of them are summed and shown."""

FLOAT32_BYTES = 4
TOLERANCE = 0.05  # a smaller difference comes from the headers of messages


@dataclass(frozen=True)
class Compression:
    """The bytes of one direction of a run, compared with the same messages in float32.

    Attributes:
        sent_bytes: the measured size of the encoded messages.
        float32_bytes: 4 x values of the model x messages.
        rounds: the rounds in which they were sent, 1 or more.
    """

    sent_bytes: float
    float32_bytes: float
    rounds: int

    @classmethod
    def of(
        cls, facts: Mapping[str, Any], records: Sequence[Mapping[str, Any]], size: str
    ) -> Compression | None:
        """Return the compression of a direction; None: the records do not have the numbers.

        Args:
            facts: the facts of the run.
            records: the records of its rounds.
            size: the direction, a key of `SIZES`.
        """
        values = [finite(facts.get(name)) for name in ("parameters", "buffers")]
        count = SIZES[size].messages
        rows = [(finite(one.get(size)), finite(one.get(count))) for one in records]
        if any(None in row for row in (values, *rows)):
            return None
        sent = sum(size or 0.0 for size, _ in rows)
        dense = (
            FLOAT32_BYTES
            * sum(value or 0.0 for value in values)
            * sum(number or 0.0 for _, number in rows)
        )
        return cls(sent, dense, len(rows)) if sent > 0 and dense > 0 else None

    @property
    def ratio(self) -> float:
        """float32_bytes / sent_bytes."""
        return self.float32_bytes / self.sent_bytes

    @property
    def per_round(self) -> str:
        """The mean size of a round's messages, with its unit."""
        return mebibytes(self.sent_bytes / self.rounds)

    @property
    def against_float32(self) -> str:
        """How the size compares with float32, and the mean size of a round in float32."""
        return f"{compared(self.ratio)} (float32: {mebibytes(self.float32_bytes / self.rounds)})"

    def __str__(self) -> str:
        size, than = compared(self.ratio), "as" if abs(self.ratio - 1) < TOLERANCE else "than"
        in_float32 = mebibytes(self.float32_bytes / self.rounds)
        return f"{self.per_round} a round, {size} {than} float32 ({in_float32})"


def compared(ratio: float) -> str:
    """Return how the size of messages compares with float32, by `Compression.ratio`."""
    if abs(ratio - 1) < TOLERANCE:
        return "as large"
    return f"{plain(ratio)} x smaller" if ratio > 1 else f"{plain(1 / ratio)} x larger"


@dataclass(frozen=True, kw_only=True)
class RunSummary(Curve):
    """One run as a report shows it.

    Attributes:
        folder: the run folder; the figures leave out its damaged parts.
        status: of the run when it was read.
        reason: why the run ended.
        settings: of the experiment; see `read_settings`.
        participation: of the clients.
        compression: by the keys of `SIZES`, of the directions whose messages are recorded.
    """

    folder: RunFolder
    status: str
    reason: str
    settings: Mapping[str, Any]
    participation: Participation
    compression: Mapping[str, Compression]

    @classmethod
    def of(cls, run: RunFolder) -> RunSummary:
        """Return the figures of a run; a value of a wrong type counts as not measured.

        Raises:
            RunError: the run cannot be read.
        """
        records = run.rounds()
        sizes = {size: Compression.of(run.facts, records, size) for size in SIZES}
        metrics = metrics_in(run.facts)
        return cls(
            points=points_of(records, metrics),
            metrics=metrics,
            folder=run,
            status=run.status,
            reason=run.reason,
            settings=read_settings(run.experiment_yaml),
            participation=tally(run.clients()),
            compression={key: one for key, one in sizes.items() if one is not None},
        )

    @property
    def seed(self) -> str:
        """The seed as a text."""
        return as_text(self.settings.get("seed", self.folder.facts.get("seed", ABSENT)))

    @property
    def ended(self) -> bool:
        """Whether its last figures are final: it is done, or its caller left the loop."""
        return self.status in ("done", "stopped")

    @property
    def planned_rounds(self) -> int | None:
        """The number of rounds in the experiment."""
        rounds = self.settings.get("rounds")
        return rounds if isinstance(rounds, int) else None
