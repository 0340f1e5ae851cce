"""The sections of an experiment: the type, the default and the text of each key.

A key is defined here or in `fedmx.experiment.model`; the keys of an executor are in its module in
`fedmx.components.executors`. The string below a field is
its text for ``fedmx explain``, for editors and for docs/experiment-file.md, which
``make generate`` writes.
"""

from __future__ import annotations

import ipaddress
import pkgutil
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    create_model,
    model_validator,
)

from fedmx.components.component import Component
from fedmx.components.engines import DeviceName, EngineName, PrecisionName
from fedmx.components.section import (
    MAX_COUNT,
    Count,
    CountOrAll,
    Executor,
    NotNegative,
    PathText,
    Positive,
    Rules,
    Section,
    Share,
    Takes,
    WholeNumber,
    component_at,
    default_at,
    numbered,
)
from fedmx.components.text import shown, unknown

MOST_METRICS = 20
MOST_HOOKS = 100  # a hook is built to check it: a small file must not cost minutes


def _check_partition_or_count(value: Any) -> Any:
    if value is None or value == "partition":
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_COUNT:
        return value
    raise ValueError(f"must be partition, null or a whole number from 1, not {shown(value)}")


def _check_address(value: str) -> str:
    host, colon, port = value.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    named = bare and bare.isprintable() and not any(c in bare for c in " /[]@")
    if not colon or not named or (":" in bare and bare == host):
        raise ValueError(f"must be HOST:PORT, as 127.0.0.1:7070 or [::1]:7070, not {shown(value)}")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise ValueError(f"the port must be from 0 to 65535, not {shown(port)}")
    return value


def _is_loopback(address: str) -> bool:
    bare = address.rpartition(":")[0].strip("[]")
    try:
        return bare == "localhost" or ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False


_PartitionOrCount = Annotated[
    int | Literal["partition"] | None,
    BeforeValidator(
        _check_partition_or_count, json_schema_input_type=Count | Literal["partition"] | None
    ),
    Takes("count, `partition` or null"),
]


class StopSection(Section):
    """Ends a run before its last round, as soon as one of these is reached."""

    accuracy: Share | None = None
    """Test accuracy to reach."""
    loss: Positive | None = None
    """Test loss to get down to."""
    seconds: Positive | None = None
    """Time to spend."""
    clock_s: Positive | None = None
    """Time to spend by the clients' clock, which is virtual where devices are simulated."""
    client_accuracy: Share | None = None
    """Mean over the clients of the accuracy on each client's own samples; needs
    `compute.evaluate.clients`, or in a simulation `compute.evaluate.per_client`."""
    metric: Annotated[
        dict[str, Annotated[float, Field(strict=True)]] | None,
        Takes("numbers by the names of metrics"),
        Rules("unless default"),
    ] = None
    """Values of [metrics](metrics.md) to reach, e.g. `{rmse: 0.5}`: at most this value if lower is
    better, otherwise at least."""
    patience: Annotated[Count | None, Rules("unless default")] = None
    """Rounds without a new best value of the first metric, as of the test accuracy."""

    @property
    def is_set(self) -> bool:
        """Whether a run may end before its last round."""
        return any(value is not None for _, value in self)


class NormaliseSection(Section):
    """The model's input for a stored value x: (x / scale - mean) / std. 8-bit images need it."""

    short_form: ClassVar[Any] = Literal["federated"]

    federated: Annotated[bool, Rules("unless default")] = False
    """Mean and std are those of the samples of all clients, which tell them before round 1
    ([more](evaluation.md#statistics-of-clients)); `federated` alone says the same."""
    scale: Positive = 1.0
    """Divides each value."""
    mean: Annotated[float | tuple[float, ...], Takes("number, or one per channel")] = 0.0
    """Is subtracted."""
    std: Annotated[Positive | tuple[Positive, ...], Takes("number above 0, or one per channel")] = (
        1.0
    )
    """Divides the rest."""

    @model_validator(mode="before")
    @classmethod
    def _expand_word(cls, value: Any) -> Any:
        return {"federated": True} if value == "federated" else value


class TrainSection(Section):
    """The local training of a client in one round."""

    epochs: Count = 1
    """Passes over the client's samples."""
    steps: WholeNumber | None = None
    """Local steps, instead of epochs; 0 returns the model untrained."""
    batch_size: CountOrAll = 10
    """Samples in a step; `all` is all samples of the client. A last one alone joins the step before
    it if the model has buffers (BatchNorm)."""
    accumulate: Annotated[Count, Rules("unless default")] = 1
    """Parts of a step's samples whose gradients are computed one after the other and averaged: the
    step is the same within rounding, and needs less memory. For models without buffers
    (BatchNorm)."""
    learning_rate: Positive = 0.1
    """Learning rate."""
    momentum: Annotated[float, Field(ge=0, lt=1), Takes("number in [0, 1)")] = 0.0
    """Momentum of `sgd` or `rmsprop` ([more](algorithms.md#momentum))."""
    weight_decay: NotNegative = 0.0
    """Factor of the weights in the gradient (L2); of `adamw`, in the step."""
    optimiser: Annotated[Component, component_at("optimiser"), Rules("unless default")] = (
        default_at("optimiser", "sgd")
    )
    """How a step follows from the gradient, e.g. `{name: adam, beta1: 0.8}`
    ([more](algorithms.md#optimisers))."""
    schedule: Annotated[Component, component_at("schedule")] = default_at("schedule", "constant")
    """Learning rate over the rounds, e.g. `{name: step, every: 10, gamma: 0.5}`."""

    @property
    def batch_samples(self) -> int:
        """The batch size for the compute layer; 0 means all samples in one batch."""
        return 0 if self.batch_size == "all" else self.batch_size


class ClientsSection(Section):
    """Which clients evaluate, and when."""

    every: Count = 1
    """Rounds from one evaluation to the next; the last round is always evaluated."""
    fraction: Share = 1.0
    """Share of the clients that can be asked, at least one; in the last round, all of them."""


class EvaluateSection(Section):
    """How often, and on how much of the test set, the global model is evaluated."""

    every: Count = 1
    """Rounds from one evaluation to the next."""
    batch_size: Count = 500
    """Samples at a time; changes speed and memory, but no result."""
    sample: Annotated[
        Count | None, Rules(fixed="its curve and the run's must be of the same samples")
    ] = None
    """Test samples to use; null is all."""
    validation: Annotated[
        Annotated[float, Field(gt=0, lt=1), Takes("number in (0, 1)")] | None,
        Rules("unless default", "the rounds before it were trained on these samples"),
    ] = None
    """Share of the training samples that evaluate the rounds instead of the test split: of the
    server's data, or of each client's where `clients` evaluate. The test split is then evaluated
    once, at the end ([more](evaluation.md#validation))."""
    clients: Annotated[ClientsSection | None, Rules("unless default")] = None
    """Clients evaluate the rounds, on their own test or validation samples, and send sums; null:
    the server does, on its test split ([more](evaluation.md#evaluation-by-clients))."""
    per_client: bool = False
    """Also evaluate the model on each client's own test samples: mean and variance over clients;
    simulations only."""
    metrics: Annotated[
        tuple[Annotated[Component, component_at("metric")], ...],
        numbered(MOST_METRICS),
        Rules("unless default"),
    ] = ()
    """What is measured, e.g. `[accuracy, macro-f1]` ([more](metrics.md)); the first stands for the
    model wherever one number does. Empty: `accuracy` for classes, `macro-f1` and `micro-f1` for
    several labels, `rmse` and `r2` for real values, `perplexity` and `accuracy` for tokens."""
    personal: Annotated[bool, Rules("unless default")] = False
    """Also evaluate the model that each client uses itself, and what a client would use that never
    took part, on its own test samples ([more](algorithms/personal.md)); simulations only."""


class ComputeSection(Section):
    """The model, the data, and how a client trains."""

    model: Annotated[
        Component,
        component_at("model"),
        Rules(fixed="the weights that it begins with are of the model"),
    ]
    """`2nn`, `lenet5` and others below, `gluon:NAME` and `gluoncv:NAME` for the zoos, or your own
    Gluon block."""
    data: Annotated[
        Component,
        component_at("data set"),
        Rules(fixed="the rounds before it were trained on the data"),
    ]
    """A data set by name (below), `{name: arrays, path: my.npz}`, [a table, images or a data set of
    Hugging Face](own-model-and-data.md#data), your own function, or your own class of federated
    data."""
    start: Annotated[
        PathText | None,
        Rules("unless default", "the weights that it begins with come from the run"),
    ] = None
    """Weights to begin from, instead of random ones: a file of `fedmx export`, a run folder, or its
    `model.safetensors` or a checkpoint."""
    normalise: Annotated[
        NormaliseSection | None, Rules(fixed="the rounds before it were trained on these inputs")
    ] = None
    partition: Annotated[
        Component,
        component_at("partition"),
        Rules(fixed="the rounds before it were trained on these parts of the data"),
    ] = default_at("partition", "iid")
    """How the samples are divided among the clients."""
    bits: Annotated[
        Literal["native", "portable"],
        Rules("unless default", "the rounds before it were computed on these instructions"),
    ] = "native"
    """Vector instructions of every process of the run: the CPU's own, or AVX2 everywhere, so that
    machines of different kinds agree ([more](same-bits.md))."""
    engine: Annotated[
        EngineName,
        Rules("unless default", "the rounds before it were computed by this engine"),
    ] = "mxnet"
    """The library that trains and evaluates the model: `mxnet`, `torch` or `numpy`
    ([more](engines.md))."""
    device: Annotated[
        DeviceName,
        Rules("unless default", "the rounds before it were computed on this device"),
    ] = "cpu"
    """Where every process of the run trains and evaluates: `cpu`, or `cuda` for the engine `torch`,
    which promises no bits ([more](engines.md#on-a-gpu))."""
    precision: Annotated[
        PrecisionName,
        Rules("unless default", "the rounds before it were computed in this precision"),
    ] = "float32"
    """Numbers of a training step: `float32`, or `bf16` for the engine `torch`, which casts where
    PyTorch's autocast does ([more](engines.md#bf16)). Weights and evaluation are float32."""
    loss: Annotated[Annotated[Component, component_at("loss")] | None, Rules("unless default")] = (
        None
    )
    """What local training minimises ([more](own-model-and-data.md#the-loss)); null: the model's
    own loss, softmax cross-entropy for most. Evaluation uses the model's own loss."""
    train: TrainSection = TrainSection()
    evaluate: EvaluateSection = EvaluateSection()


class LogicSection(Section):
    """Who takes part, what happens to an update on its way, and how updates become a model."""

    preset: Annotated[Component, component_at("preset")] | None = default_at("preset", "fedavg")
    """An algorithm: a selector, an aggregator and hooks. It takes all settings of these."""
    selector: Annotated[Component, component_at("selector")] | None = None
    """Who takes part in a round; null: the preset's."""
    aggregator: Annotated[Component, component_at("aggregator")] | None = None
    """How the updates become the next model; null: the preset's."""
    hooks: Annotated[
        tuple[Annotated[Component, component_at("hook")], ...], numbered(MOST_HOOKS)
    ] = ()
    """Further changes of models and updates, before the preset's hooks."""
    trainer: Annotated[
        Annotated[Component, component_at("trainer")] | None, Rules("unless default")
    ] = None
    """How a client makes its update from the model that it receives; null: the preset's."""
    own: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...] | None,
        Rules("unless default", "each client's own tensors would begin anew"),
        Takes("list of patterns or null"),
    ] = None
    """Tensors and buffers of the model that stay on each client: names with `*`, or `head` (the
    last layer), `body` (all others), `norm` (layers with buffers); null: the preset's."""
    min_updates: WholeNumber = 1
    """Fails a round with fewer accepted updates; at most `clients`. With 0, a round without updates
    keeps the model and the run goes on."""
    over_select: Annotated[float, Field(ge=1, le=100), Takes("number from 1 to 100")] = 1.0
    """Asks this many times as many clients as are needed, and accepts the first that answer."""
    max_update: Annotated[Positive | None, Rules("unless default")] = 1000.0
    """Rejects an update whose norm is more than this many times the norm of the model plus 1, and
    fails a round that moves the model farther; null: no limit."""


class ClockSection(Section):
    """How long a round may take, and in a simulation how long each step of a client takes."""

    deadline_s: Positive | None = None
    """Time after which a round goes on without the clients that have not answered."""
    devices: Annotated[Component, component_at("devices")] | None = None
    """How fast each client trains, uploads and downloads."""
    uploads: Annotated[Component, component_at("uploads")] | None = None
    """How uploads share the way to the server; null: `serial` for `fedcs`, `offline-kp` and
    `online-kp`, `parallel` for all others."""
    availability: Annotated[Component, component_at("availability")] = default_at(
        "availability", "always"
    )
    """When clients are available."""
    dropout: Annotated[float, Field(ge=0, le=1), Takes("number from 0 to 1")] = 0.0
    """Probability that a client of a round drops out before its update arrives."""


class TlsSection(Section):
    """The server's files (PEM) for mutual TLS, which `fedmx certs` makes."""

    ca: PathText
    """Certificate of the authority that signed both ends."""
    certificate: PathText
    """Certificate of this end."""
    key: PathText
    """Private key of this end."""
    crl: PathText | None = None
    """The authority's list of revoked certificates (`fedmx certs revoke`)."""


MOST_VIOLATIONS = 10
LOG_LINES = 20
PATIENCE = 10.0


class NetworkSection(Section):
    """How the server and its clients reach each other in a deployment."""

    address: Annotated[str, AfterValidator(_check_address), Takes("`HOST:PORT`")] = "127.0.0.1:7070"
    """Where the server listens; port 0 lets the system choose. IPv6: `[::1]:7070`."""
    insecure: bool = False
    """Allow connections without TLS from other machines."""
    tls: TlsSection | None = None
    token_file: PathText | None = None
    """File with a secret that clients must have, too."""
    heartbeat_s: Annotated[float, Field(ge=0.1, le=3600), Takes("number from 0.1 to 3600")] = 5.0
    """Time between heartbeats."""
    rejoin_s: NotNegative = 60.0
    """Time in which a disconnected client may come back before it is lost."""
    wait_for: CountOrAll = "all"
    """Clients that must be connected before round 1; at most `clients`."""
    max_samples: _PartitionOrCount = None
    """The most samples that a client may announce; one that announces more is refused.
    `partition`: as many as the experiment's partition gives it, where no client has data of its
    own; null: any number, and the client has that weight."""
    violations: Count = MOST_VIOLATIONS
    """Protocol violations of a client in a round; with more, it is disconnected."""
    log_lines: Count = LOG_LINES
    """Lines a minute in the server's log about one client or machine; further ones are counted."""
    patience: Positive | None = PATIENCE
    """Gives up a client that does not answer after this many times the median answer time. The
    least limit is 60 s, or 10 s when a third of the round's updates and `min_updates` have arrived.
    Before the first answer of a run, it is an hour. A client that was given up or lost has half
    the multiple until it sends an update. null: never."""
    patience_s: Positive | None = None
    """The same in seconds, instead of `patience`."""
    wait_limit_s: NotNegative | None = None
    """How long a run that has begun waits for enough clients or updates before it ends with an
    error; null: any time."""
    incoming_mib: Count | None = None
    """Memory in MiB for messages that are being received, of all clients together; null: 64, and
    up to a quarter of the memory of the machine, or of its control group, while the clients are
    the bottleneck."""
    metrics: Annotated[str, AfterValidator(_check_address), Takes("`HOST:PORT`")] | None = None
    """Address for [Prometheus and `fedmx status`](deployment.md#metrics-for-prometheus), as
    127.0.0.1:9109; needs the extra `metrics`. One that others can reach needs
    `metrics_token_file`."""
    metrics_token_file: PathText | None = None
    """File with a secret that readers of the metrics must send."""

    @model_validator(mode="after")
    def _check_who_reads_metrics(self) -> NetworkSection:
        if self.metrics and not self.metrics_token_file and not _is_loopback(self.metrics):
            raise ValueError(
                f"metrics: {shown(self.metrics)} can be reached from elsewhere; add "
                "metrics_token_file, or give an address of this machine alone, as 127.0.0.1:9109"
            )
        return self

    @property
    def incoming_bytes(self) -> int | None:
        """`incoming_mib` in bytes."""
        return None if self.incoming_mib is None else self.incoming_mib << 20

    @property
    def host(self) -> str:
        """The host of `address`; an IPv6 address has no brackets here."""
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The port of `address`; 0 lets the system choose one."""
        return int(self.address.rpartition(":")[2])


class KeepSection(Section):
    """Which checkpoints are kept; a count is `last`."""

    short_form: ClassVar[Any] = Count

    last: Count = 5
    """The newest checkpoints to keep; the run can step back to them."""
    every: Count | None = None
    """Also keep the checkpoint of each round that is a multiple of this; a replay begins at the
    nearest one."""

    @model_validator(mode="before")
    @classmethod
    def _expand_number(cls, value: Any) -> Any:
        return {"last": value} if isinstance(value, int) else value


class CheckpointSection(Section):
    """When a checkpoint is written, and which ones are kept."""

    every: Count = 1
    """Rounds from one checkpoint to the next."""
    keep: KeepSection = KeepSection()


class RunSection(Section):
    """What a run writes to disk, and where."""

    folder: PathText = Path("runs")
    """Folder in which each run gets a folder of its own."""
    checkpoint: CheckpointSection = CheckpointSection()
    report_every: Count | None = None
    """Rounds from one writing of `report.html` to the next while the run goes on; null: from the
    second round on, as often as that takes at most a hundredth of the time."""
    fold_memory_mb: Count | None = None
    """Keep updates on disk, and fold them slice by slice in this much memory, in MB of 10^6 bytes,
    besides the result ([more](scale.md#updates-on-disk)); null: in memory, and on a server updates
    above 64 MB on disk, if the aggregator reads slices."""


_PACKAGE = "fedmx.components.executors"  # found, not imported: its modules import simulations
EXECUTORS: Mapping[str, Executor] = {
    one.name: import_module(f"{_PACKAGE}.{one.name}").EXECUTOR
    for one in pkgutil.iter_modules(import_module(_PACKAGE).__path__)
}
"""The executors besides ``serial``, by the names of their modules."""

_S = TypeVar("_S", bound=Section)


def _with_executors(section: type[_S]) -> type[_S]:
    """Return a section with a key for each executor."""
    keys: dict[str, Any] = {
        name: (one.takes | None, Field(None, description=one.text))
        for name, one in EXECUTORS.items()
    }
    made = create_model(section.__name__, __base__=section, __module__=__name__, **keys)
    made.__doc__ = section.__doc__
    return made


@_with_executors
class ExecutorSection(Section):
    """Where a simulation trains its clients: in this process one after the other (`serial`) or many
    at once (`cohort`), in worker processes, or in [Ray](https://docs.ray.io). The result is the
    same bits, but for many at once."""

    short_form: ClassVar[Any] = Literal.__getitem__(("serial", *EXECUTORS))

    @model_validator(mode="before")
    @classmethod
    def _expand_name(cls, value: Any) -> Any:
        if value == "serial":
            return {}
        if isinstance(value, str):
            if value not in EXECUTORS:
                raise ValueError(unknown("executor", value, ("serial", *EXECUTORS)))
            return {value: EXECUTORS[value].default}
        return value

    @model_validator(mode="after")
    def _check_one_kind(self) -> ExecutorSection:
        first, *others = self._given or [""]
        if others:
            raise ValueError(f"has both {first} and {others[0]}; remove one of them")
        return self

    @property
    def _given(self) -> list[str]:
        return [name for name in EXECUTORS if getattr(self, name) is not None]

    @property
    def name(self) -> str:
        """The name of the executor: ``serial``, or a key of `EXECUTORS`."""
        return next(iter(self._given), "serial")

    @property
    def at_once(self) -> int | None:
        """The most clients that train at once in one process; None: one."""
        return getattr(getattr(self, self.name, None), "clients", None)

    def start(self) -> Any:
        """Start the workers, which load while this process loads; return their `Backend`.

        Without workers, return None: the executor works in this process.
        """
        start = EXECUTORS[self.name].start if self.name in EXECUTORS else None
        return None if start is None else start(getattr(self, self.name))
