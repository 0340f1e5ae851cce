"""The quantities of a round and of a run, each declared once.

`rounds.jsonl`, TensorBoard, trackers, Prometheus, `--json` and CSV of every command, reports and
docs/run-folder.md read them here. A new quantity is an entry below, and what computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from layers.compute.data.targets import Targets
from layers.compute.engines.evaluation import ACCURACY, LOSS
from layers.compute.metrics import METRICS, USUAL
from layers.compute.metrics.metric import Metric

Unit = Literal["share", "number", "count", "bytes", "seconds", "text"]


@dataclass(frozen=True)
class Quantity:
    """One quantity.

    Attributes:
        key: its name in all outputs.
        about: what it is (Markdown), for docs/run-folder.md; empty: the entry before it says it.
        of: returns it for a `fedmx.server.round.Round`; None: it is among the round's `measured`
            numbers.
        unit: a share is from 0 to 1.
        tag: its tag in TensorBoard; empty: it is not there. A list counts as its length.
        label: its name in a report, as "Personal accuracy, mean", where its last value has a row
            and a tile; empty: it has none.
        short: its name where there is little room; empty: `words`.
        parts: key of the values that it is the mean of, by name; empty: none are recorded.
        optional: whether a record has it only if there is a value.
        published: whether it follows from the models and the experiment alone, so that it may leave
            the server of a private run.
        better: whether a higher or a lower value is better; empty: neither.
    """

    key: str
    about: str = ""
    of: Callable[[Any], Any] | None = None
    unit: Unit = "number"
    tag: str = ""
    label: str = ""
    short: str = ""
    parts: str = ""
    optional: bool = False
    published: bool = False
    better: Literal["higher", "lower", ""] = ""

    @property
    def words(self) -> str:
        """Its name in a line, such as "macro f1"."""
        return self.key.replace("_", " ")

    @property
    def name(self) -> str:
        """Its name in an experiment file, such as "macro-f1"."""
        return self.key.replace("_", "-")

    @property
    def sign(self) -> int:
        """1 if a higher value is better, -1 if a lower one is."""
        return -1 if self.better == "lower" else 1

    def is_better(self, value: float, other: float) -> bool:
        """Return whether a value is better than another."""
        return self.sign * value > self.sign * other

    def best(self, values: Iterable[float | None]) -> float | None:
        """Return the best of some values; None: there is none."""
        known = [value for value in values if value is not None]
        return max(known, key=lambda value: self.sign * value, default=None)

    def meets(self, value: float | None, target: float) -> bool:
        """Return whether a value is at least as good as a target; None, not measured, is not."""
        return value is not None and self.sign * value >= self.sign * target

    def fact(self) -> dict[str, str]:
        """Return it as `metrics_in` reads it."""
        unit = "table" if self.unit == "text" else self.unit
        return {"key": self.key, "label": self.label, "unit": unit, "better": self.better}

    @property
    def title(self) -> str:
        """A short text about it, for Prometheus."""
        name = self.label or self.key.replace("_", " ").capitalize()
        return f"{name}, in the last round that has it."


def _overhead(name: str) -> Callable[[Any], Any]:
    return lambda round: list(getattr(round.report.overhead, name))


def of_metric(metric: Metric, about: str = "") -> Quantity:
    """Return the quantity of a metric."""
    return Quantity(
        metric.key,
        about,
        unit="text" if metric.unit == "table" else metric.unit,
        tag="" if metric.unit == "table" else metric.key,
        label="" if metric.unit == "table" else metric.label or metric.key,
        optional=True,
        published=True,
        better=metric.better,
    )


def metrics_in(facts: Mapping[str, Any]) -> tuple[Quantity, ...]:
    """Return the metrics of a run, by the facts in its `run.json`.

    The first one, never a table, stands for the model wherever one number does: in progress, cards,
    verdicts, targets and sweeps. The accuracy of classes is there in any case.
    """
    named = facts.get("metrics") or [{"key": ACCURACY}]
    classes = (facts.get("targets") or {}).get("kind") == "classes"
    return _in_order((_of_fact(**one) for one in named), classes=classes)


def metrics_of(metrics: Iterable[Metric] | None, targets: Targets) -> tuple[Quantity, ...]:
    """Return the metrics that a run measures, None: the usual ones; see `metrics_in`."""
    given = [one() for one in USUAL[targets.kind]] if metrics is None else metrics
    return _in_order(map(of_metric, given), classes=bool(targets.classes))


def is_evaluated(record: Mapping[str, Any], metrics: Iterable[Quantity]) -> bool:
    """Return whether the model was evaluated after a round; a metric of it may not be a number."""
    accuracy = record.get(ACCURACY) is not None
    return accuracy or any(one.key in record for one in metrics if one.optional)


def _in_order(metrics: Iterable[Quantity], *, classes: bool) -> tuple[Quantity, ...]:
    declared = {one.key: one for one in QUANTITIES}
    keys = {one.key: declared.get(one.key, one) for one in metrics}
    if classes:
        keys[ACCURACY] = declared[ACCURACY]
    found = sorted(keys.values(), key=lambda one: one.unit == "text")
    return tuple(found if found[0].unit != "text" else [declared[LOSS], *found])


def _of_fact(key: str, label: str = "", unit: Any = "number", better: Any = "") -> Quantity:
    unit = "text" if unit == "table" else unit
    return Quantity(
        key, unit=unit, label=label, tag=key, optional=True, published=True, better=better
    )


def _of_metrics() -> list[Quantity]:
    """Return the quantities of the metrics, but for the accuracy, which every classifier has."""
    first, *others = [one() for name, one in METRICS.items() if name != ACCURACY]
    about = "only with [the metric of this name](metrics.md), as `top-k-accuracy`"
    return [of_metric(first, about), *map(of_metric, others)]


QUANTITIES = (
    Quantity(
        "round", "number of the round, from 1", lambda round: round.round, "count", published=True
    ),
    Quantity(
        "accuracy",
        "of the global model on the test split, after the round; null in rounds without evaluation",
        lambda round: round.accuracy,
        "share",
        "accuracy",
        "Accuracy",
        "acc",
        published=True,
        better="higher",
    ),
    Quantity("loss", "", lambda round: round.loss, tag="loss", published=True, better="lower"),
    *_of_metrics(),
    Quantity(
        "client_accuracy_mean",
        "over the clients, of the global model on each client's own test samples "
        "(`compute.evaluate.per_client`; simulations only, since a deployed server does not have "
        "its clients' samples)",
        lambda round: round.client_accuracy_mean,
        "share",
        "client_accuracy/mean",
        better="higher",
    ),
    Quantity(
        "client_accuracy_variance",
        "",
        lambda round: round.client_accuracy_variance,
        tag="client_accuracy/variance",
    ),
    Quantity(
        "personal_accuracy_mean",
        "only with `compute.evaluate.personal`: of "
        "[the model that each client uses](algorithms/personal.md)",
        unit="share",
        tag="personal_accuracy/mean",
        label="Personal accuracy, mean",
        optional=True,
    ),
    Quantity("personal_accuracy_variance", tag="personal_accuracy/variance", optional=True),
    Quantity(
        "personal_accuracy_worst_tenth",
        unit="share",
        tag="personal_accuracy/worst_tenth",
        label="Personal accuracy, worst tenth",
        optional=True,
    ),
    Quantity("personal_loss_mean", tag="personal_loss/mean", optional=True),
    Quantity(
        "newcomer_accuracy_mean",
        unit="share",
        tag="newcomer_accuracy/mean",
        label="Accuracy of newcomers, mean",
        optional=True,
    ),
    Quantity("newcomer_loss_mean", tag="newcomer_loss/mean", optional=True),
    Quantity(
        "client_accuracy_worst_tenth",
        unit="share",
        tag="client_accuracy/worst_tenth",
        optional=True,
    ),
    Quantity("client_loss_mean", tag="client_loss/mean", optional=True),
    Quantity(
        "group_accuracy_mean",
        "only where [groups have models of their own](algorithms/groups.md): over "
        "the groups, of their models on the test split; by group",
        unit="share",
        tag="group_accuracy/mean",
        label="Accuracy of the groups' models, mean",
        parts="group_accuracy",
        optional=True,
    ),
    Quantity("group_accuracy", unit="text", optional=True),
    Quantity(
        "test",
        "only in the last round of a run whose rounds are evaluated on other samples "
        "(`compute.evaluate.validation` or `clients`): the loss and each metric on the test split",
        unit="text",
        optional=True,
        published=True,
    ),
    Quantity(
        "initial",
        "only in the first round, if the server evaluates: the loss and each metric of the initial "
        "model",
        unit="text",
        optional=True,
        published=True,
    ),
    Quantity(
        "attack_success",
        "only with the attack `back-door`: share of the test images of other classes that the "
        "model takes for the target once they have the trigger",
        unit="share",
        tag="attack_success",
        label="Success of the attack",
        optional=True,
    ),
    Quantity(
        "train_loss",
        "mean of the participants' losses, weighted by samples; a client's loss is the mean over "
        "its mini-batches during training, unless a hook asks for the loss of the received model",
        lambda round: round.train_loss,
        tag="train_loss",
        better="lower",
    ),
    Quantity("selected", "clients in the plan", lambda round: round.report.selected, "count"),
    Quantity(
        "tasks",
        "models (or their changes) sent down, updates received",
        lambda round: round.tasks,
        "count",
    ),
    Quantity("updates", "", lambda round: round.updates, "count"),
    Quantity(
        "participants",
        "clients whose updates were accepted",
        lambda round: list(round.participants),
        "count",
        "clients/participants",
    ),
    Quantity(
        "rejected",
        "number of clients whose update failed a check; whose offer was declined or whose update "
        "was no longer needed; who sent nothing in time",
        lambda round: len(round.report.of("rejected")),
        "count",
        "clients/rejected",
    ),
    Quantity(
        "declined", "", lambda round: len(round.report.of("declined")), "count", "clients/declined"
    ),
    Quantity("lost", "", lambda round: len(round.report.of("lost")), "count", "clients/lost"),
    Quantity(
        "local_steps",
        "local steps of the clients whose updates were accepted",
        lambda round: sum(one.steps for one in round.report.clients if one.status == "accepted"),
        "count",
        "clients/local_steps",
    ),
    Quantity(
        "in_flight",
        "only where [tasks outlive rounds](clock.md#rounds-that-do-not-wait): tasks at the end of "
        "the round; the staleness of each accepted update",
        lambda round: round.report.in_flight,
        "count",
        "clients/in_flight",
        optional=True,
    ),
    Quantity(
        "staleness",
        "",
        lambda round: None if round.staleness is None else list(round.staleness),
        "count",
        optional=True,
    ),
    Quantity(
        "down_bytes",
        "bytes of the round's messages to and from clients",
        lambda round: round.down_bytes,
        "bytes",
        "bytes/down",
    ),
    Quantity("up_bytes", "", lambda round: round.up_bytes, "bytes", "bytes/up"),
    Quantity(
        "control_bytes",
        "handshakes, heartbeats, the experiment, updates that come again and so on; 0 in a "
        "simulation",
        lambda round: round.control_bytes,
        "bytes",
        "bytes/control",
    ),
    Quantity(
        "file_bytes",
        "transfers of assets, the files for every client (`fedshare`), both directions together: "
        "once per client, in the round after it joined. A simulation reports in round 1 the bytes "
        "of a deployment without interrupted transfers",
        lambda round: round.file_bytes,
        "bytes",
        "bytes/files",
    ),
    Quantity(
        "epsilon",
        "only of a private run: [the privacy](algorithms/privacy.md) that was spent up to this "
        "round",
        lambda round: round.epsilon,
        tag="epsilon",
        optional=True,
        published=True,
    ),
    Quantity(
        "stepped_back",
        "only if it happened: the steps back before this round, each with `round` (that failed), "
        "`to`, `reason`, `suspects` and `excluded` ([deployment.md](deployment.md#stepping-back))",
        lambda round: [step.record() for step in round.stepped_back] or None,
        "text",
        optional=True,
    ),
    Quantity(
        "suspended",
        "only if it happened: the clients that "
        "[get no task for a time](deployment.md#when-clients-come-and-go), with the seconds left "
        "after the round",
        lambda round: (
            {str(k): left_s for k, left_s in sorted(round.report.suspended.items())} or None
        ),
        "text",
        optional=True,
    ),
    Quantity(
        "operator",
        "only if it happened: what "
        "[an operator](deployment.md#telling-a-running-server-what-to-do) told the server, with "
        "the times",
        lambda round: _overhead("operator")(round) or None,
        "text",
        optional=True,
    ),
    Quantity(
        "other_versions",
        "only if it happened: the clients that joined with "
        "[another version](deployment.md#versions-and-upgrades) of fedmx since the previous round",
        lambda round: _overhead("other_versions")(round) or None,
        "text",
        optional=True,
    ),
    Quantity(
        "rejected_connections",
        "why connections were refused since the previous round",
        _overhead("rejected_connections"),
        "text",
    ),
    Quantity(
        "seconds",
        "of this round, with evaluation and without waiting for clients to join; of all rounds so "
        "far",
        lambda round: round.seconds,
        "seconds",
        "seconds",
    ),
    Quantity("elapsed_s", "", lambda round: round.elapsed_s, "seconds"),
    Quantity(
        "clock_s",
        "of this round, by the clients' clock and without evaluation; of all rounds so far",
        lambda round: round.report.took_s,
        "seconds",
    ),
    Quantity("clock_elapsed_s", "", lambda round: round.clock_elapsed_s, "seconds"),
    Quantity(
        "virtual", "whether that clock's time is virtual", lambda round: round.virtual, "text"
    ),
    Quantity(
        "learning_rate",
        "of this round, after the schedule",
        lambda round: round.report.learning_rate,
        tag="learning_rate",
        published=True,
    ),
    Quantity(
        "model_sha256",
        "SHA-256 of the global model after the round",
        lambda round: round.model_sha256,
        "text",
        published=True,
    ),
)
"""The quantities, in the order of the page and of a record."""


def record_of(round: Any) -> dict[str, Any]:
    """Return the quantities of a `Round` by key; one that is optional only if it has a value."""
    values = {
        one.key: round.measured.get(one.key) if one.of is None else one.of(round)
        for one in QUANTITIES
    }
    left_out = {one.key for one in QUANTITIES if one.optional and values[one.key] is None}
    known = {key: value for key, value in values.items() if key not in left_out}
    return {**known, **round.measured}


RESERVED = frozenset(one.key for one in QUANTITIES if one.optional and one.unit == "text")
"""The keys that no hook may record, also in rounds that do not have them."""


OF_CLASSES = metrics_in({})
"""The usual metrics of classes."""


LASTING = tuple(one for one in QUANTITIES if one.published and one.unit in ("share", "number"))
"""What a server tells of its last round that has it, also if the run is private."""


def lasting(metrics: Sequence[Quantity]) -> list[Quantity]:
    """Return `LASTING`, with a run's own metrics."""
    known = {one.key for one in LASTING}
    return [*LASTING, *(one for one in metrics if one.unit != "text" and one.key not in known)]


def last_values(
    records: Sequence[Mapping[str, Any]], metrics: Sequence[Quantity] = ()
) -> dict[str, Any]:
    """Return the last measured value of each quantity that lasts, by key; see `lasting`."""
    return {
        one.key: record[one.key]
        for one in lasting(metrics)
        for record in [next((r for r in reversed(records) if r.get(one.key) is not None), None)]
        if record is not None
    }


@dataclass(frozen=True)
class RunQuantity:
    """One quantity of a run, under the same key in every output.

    Attributes:
        key: its name.
        about: what it is (Markdown), for docs/run-folder.md.
        of: returns it for a `fedmx.report.summary.Curve` and a target (None: none); None: not
            measured, or not reached.
    """

    key: str
    about: str
    of: Callable[[Any, float | None], Any]


def _at_target(of: Callable[[Any], Any]) -> Callable[[Any, float | None], Any]:
    return lambda run, target: None if (hit := run.reached(target)) is None else of(hit)


def _total(size: str) -> Callable[[Any, float | None], int]:
    return lambda run, _: int(run.totals[size])


OF_RUN = (
    RunQuantity(
        "rounds_done", "the number of the last round that has ended", lambda run, _: run.rounds
    ),
    RunQuantity(
        "accuracy",
        "after the last evaluation; null without classes",
        lambda run, _: run.final.accuracy if run.final else None,
    ),
    RunQuantity("loss", "after the last evaluation", lambda run, _: run.final_loss),
    RunQuantity(
        "metric",
        "the key of the first metric, which stands for the model",
        lambda run, _: run.metrics[0].key if run.metrics else None,
    ),
    RunQuantity("best", "its best value, the highest or the lowest", lambda run, _: run.best_value),
    RunQuantity(
        "best_round", "the first round with it", lambda run, _: run.best.round if run.best else None
    ),
    *(
        RunQuantity(key, f"the sum of the rounds' `{key}`", _total(key))
        for key in ("up_bytes", "down_bytes", "control_bytes", "file_bytes")
    ),
    RunQuantity(
        "elapsed_s",
        "machine time, with evaluation",
        lambda run, _: None if run.seconds is None else round(run.seconds, 3),
    ),
    RunQuantity("virtual_s", "virtual time; null: time is real", lambda run, _: run.virtual_s),
    RunQuantity("target", "its value up to which costs are counted", lambda _, target: target),
    RunQuantity(
        "rounds_to_target",
        "the first round that reaches it",
        _at_target(lambda point: point.round),
    ),
    RunQuantity(
        "bytes_to_target",
        "`up_bytes` and `down_bytes` up to it",
        _at_target(lambda point: int(point.bytes)),
    ),
)
"""The quantities of a run, in the order of its outputs."""


def figures(run: Any, target: float | None = None) -> dict[str, Any]:
    """Return the quantities of a run (`fedmx.report.summary.Curve`), and the last value of each
    quantity of its rounds that was measured besides accuracy and loss.

    Args:
        run: the run.
        target: a value of its first metric; None: none.
    """
    return {**{one.key: one.of(run, target) for one in OF_RUN}, **run.last_measured}
