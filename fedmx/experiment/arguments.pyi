"""The arguments of `Experiment`, written by `make generate`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from typing_extensions import Required, TypedDict

AttackName: TypeAlias = Literal[
    "alie",
    "back-door",
    "fang-krum",
    "fang-trim",
    "free-rider",
    "gaussian",
    "inner-product",
    "label-flipping",
    "mimic",
    "min-max",
    "min-sum",
    "scaling",
    "sign-flip",
]
Attack: TypeAlias = AttackName | Mapping[str, Any] | object

PrivacyName: TypeAlias = Literal[
    "central",
    "dp-ftrl",
    "local",
    "secure-sum",
]
Privacy: TypeAlias = PrivacyName | Mapping[str, Any] | object

ModelName: TypeAlias = Literal[
    "2nn",
    "2nn-mcmahan",
    "logistic",
    "lenet5",
    "cnn3",
    "vgg11s",
    "knapsack-cnn",
    "resnet18-cifar",
    "lstm",
]
Model: TypeAlias = ModelName | Mapping[str, Any] | object

DataSetName: TypeAlias = Literal[
    "mnist",
    "fashion-mnist",
    "cifar-10",
    "svhn",
    "femnist",
    "sentiment140",
    "digits",
    "synthetic",
    "arrays",
    "table",
    "images",
    "huggingface",
    "declared",
    "blobs",
]
DataSet: TypeAlias = DataSetName | Mapping[str, Any] | object

PartitionName: TypeAlias = Literal[
    "biased",
    "by-user",
    "dirichlet",
    "iid",
    "label-quantity",
    "normal-sizes",
    "one-class",
    "quantity",
    "shards",
]
Partition: TypeAlias = PartitionName | Mapping[str, Any] | object

LossName: TypeAlias = Literal[
    "softmax",
    "sigmoid",
    "bce",
    "token-softmax",
    "mse",
    "mae",
    "huber",
    "poisson",
    "label-smoothing",
    "focal",
    "logit-adjustment",
    "distillation",
    "moon",
    "fedproto",
]
Loss: TypeAlias = LossName | Mapping[str, Any] | object

OptimiserName: TypeAlias = Literal[
    "sgd",
    "adam",
    "adamw",
    "adagrad",
    "rmsprop",
]
Optimiser: TypeAlias = OptimiserName | Mapping[str, Any] | object

ScheduleName: TypeAlias = Literal[
    "constant",
    "step",
    "inverse",
    "cosine",
]
Schedule: TypeAlias = ScheduleName | Mapping[str, Any] | object

MetricName: TypeAlias = Literal[
    "accuracy",
    "top-k-accuracy",
    "balanced-accuracy",
    "per-class-accuracy",
    "macro-f1",
    "micro-f1",
    "auc",
    "confusion-matrix",
    "perplexity",
    "exact-match",
    "calibration-error",
    "mse",
    "rmse",
    "mae",
    "r2",
]
Metric: TypeAlias = MetricName | Mapping[str, Any] | object

PresetName: TypeAlias = Literal[
    "apfl",
    "astraea",
    "clustered",
    "csfedavg",
    "dgc",
    "ditto",
    "fedadagrad",
    "fedadam",
    "fedaim",
    "fedasync",
    "fedavg",
    "fedavgm",
    "fedbabu",
    "fedbn",
    "fedbuff",
    "fedcs",
    "fedfv",
    "fednova",
    "fedper",
    "fedprox",
    "fedrep",
    "fedsgd",
    "fedshare",
    "fedsso",
    "fedyogi",
    "fine-tuning",
    "lg-fedavg",
    "offline-kp",
    "online-kp",
    "oort",
    "per-fedavg",
    "pfedme",
    "power-of-choice",
    "projected-stc",
    "q-fedavg",
    "quantised",
    "scaffold",
    "selective-sgd",
    "signsgd",
    "stc",
    "top-k",
]
Preset: TypeAlias = PresetName | Mapping[str, Any] | object

SelectorName: TypeAlias = Literal[
    "astraea",
    "by-size",
    "clustered",
    "concurrent",
    "csfedavg",
    "cyclic",
    "fedaim",
    "fedcs",
    "fedsso",
    "offline-kp",
    "online-kp",
    "oort",
    "poisson",
    "power-of-choice",
    "round-robin",
    "uniform",
]
Selector: TypeAlias = SelectorName | Mapping[str, Any] | object

AggregatorName: TypeAlias = Literal[
    "bucketing",
    "by-group",
    "centered-clipping",
    "fedaim",
    "fedasync",
    "fedbuff",
    "fedfv",
    "fednova",
    "fltrust",
    "geometric-median",
    "krum",
    "majority-vote",
    "mean",
    "median",
    "multi-krum",
    "nearest-neighbour-mixing",
    "norm-clip",
    "q-fedavg",
    "stratified",
    "trimmed-mean",
]
Aggregator: TypeAlias = AggregatorName | Mapping[str, Any] | object

HookName: TypeAlias = Literal[
    "clip",
    "dgc",
    "divergence",
    "fedadagrad",
    "fedadam",
    "fedavgm",
    "fedprox",
    "fedshare",
    "fedyogi",
    "gradient-reply",
    "quantise",
    "rebalance",
    "scaffold",
    "selective-sgd",
    "sign-sgd",
    "stc",
    "stragglers",
    "top-k",
]
Hook: TypeAlias = HookName | Mapping[str, Any] | object

TrainerName: TypeAlias = Literal[
    "local-sgd",
    "apfl",
    "ditto",
    "fedbabu",
    "fedrep",
    "fine-tuning",
    "per-fedavg",
    "pfedme",
]
Trainer: TypeAlias = TrainerName | Mapping[str, Any] | object

DevicesName: TypeAlias = Literal[
    "knapsack",
    "lognormal",
    "tiers",
    "range",
]
Devices: TypeAlias = DevicesName | Mapping[str, Any] | object

UploadsName: TypeAlias = Literal[
    "parallel",
    "serial",
]
Uploads: TypeAlias = UploadsName | Mapping[str, Any] | object

AvailabilityName: TypeAlias = Literal[
    "always",
    "chance",
    "trace",
]
Availability: TypeAlias = AvailabilityName | Mapping[str, Any] | object

class ExperimentKeys(TypedDict, total=False):
    """An experiment, the same for a simulation, a server and its clients."""

    name: str
    """Names the run folder and the report; if a file leaves it out, it is the file's own name,
    without the ending."""
    seed: int
    """Every random draw is derived from it."""
    rounds: Required[int]
    """Rounds to run."""
    clients: Required[int]
    """Clients in the population."""
    without: Sequence[int]
    """Clients to leave out, as if the run had never had them; simulations only."""
    attack: Attack | None
    """Clients that lie, as {name: sign-flip, clients: 0.2}; simulations only. null: none
    does."""
    privacy: Privacy | None
    """Differential privacy, as {name: central, clip: 0.4, delta: 1e-6, epsilon: 2}, or {name:
    secure-sum}. null: none."""
    stop: StopKeys | Mapping[str, Any]
    """Ends a run before its last round, as soon as one of these is reached."""
    compute: Required[ComputeKeys | Mapping[str, Any]]
    """The model, the data, and how a client trains."""
    logic: LogicKeys | Mapping[str, Any]
    """Who takes part, what happens to an update on its way, and how updates become a model."""
    clock: ClockKeys | Mapping[str, Any]
    """How long a round may take, and in a simulation how long each step of a client takes."""
    executor: ExecutorKeys | Mapping[str, Any] | Literal["serial", "cohort", "processes", "ray"]
    """Where a simulation trains its clients: in this process one after the other (serial) or
    many at once (cohort), in worker processes, or in Ray. The result is the same bits, but for
    many at once."""
    network: NetworkKeys | Mapping[str, Any]
    """How the server and its clients reach each other in a deployment."""
    run: RunKeys | Mapping[str, Any]
    """What a run writes to disk, and where."""

class StopKeys(TypedDict, total=False):
    """Ends a run before its last round, as soon as one of these is reached."""

    accuracy: float | None
    """Test accuracy to reach."""
    loss: float | None
    """Test loss to get down to."""
    seconds: float | None
    """Time to spend."""
    clock_s: float | None
    """Time to spend by the clients' clock, which is virtual where devices are simulated."""
    client_accuracy: float | None
    """Mean over the clients of the accuracy on each client's own samples; needs
    compute.evaluate.clients, or in a simulation compute.evaluate.per_client."""
    metric: dict | None
    """Values of metrics to reach, e.g. {rmse: 0.5}: at most this value if lower is better,
    otherwise at least."""
    patience: int | None
    """Rounds without a new best value of the first metric, as of the test accuracy."""

class ComputeKeys(TypedDict, total=False):
    """The model, the data, and how a client trains."""

    model: Required[Model]
    """2nn, lenet5 and others below, gluon:NAME and gluoncv:NAME for the zoos, or your own Gluon
    block."""
    data: Required[DataSet]
    """A data set by name (below), {name: arrays, path: my.npz}, a table, images or a data set
    of Hugging Face, your own function, or your own class of federated data."""
    start: str | Path | None
    """Weights to begin from, instead of random ones: a file of fedmx export, a run folder, or
    its model.safetensors or a checkpoint."""
    normalise: NormaliseKeys | Mapping[str, Any] | Literal["federated"] | None
    """The model's input for a stored value x: (x / scale - mean) / std. 8-bit images need
    it."""
    partition: Partition
    """How the samples are divided among the clients."""
    bits: Literal["native", "portable"]
    """Vector instructions of every process of the run: the CPU's own, or AVX2 everywhere, so
    that machines of different kinds agree."""
    engine: Literal["mxnet", "torch", "numpy"]
    """The library that trains and evaluates the model: mxnet, torch or numpy."""
    device: Literal["cpu", "cuda"]
    """Where every process of the run trains and evaluates: cpu, or cuda for the engine torch,
    which promises no bits."""
    precision: Literal["float32", "bf16"]
    """Numbers of a training step: float32, or bf16 for the engine torch, which casts where
    PyTorch's autocast does. Weights and evaluation are float32."""
    loss: Loss | None
    """What local training minimises; null: the model's own loss, softmax cross-entropy for
    most. Evaluation uses the model's own loss."""
    train: TrainKeys | Mapping[str, Any]
    """The local training of a client in one round."""
    evaluate: EvaluateKeys | Mapping[str, Any]
    """How often, and on how much of the test set, the global model is evaluated."""

class NormaliseKeys(TypedDict, total=False):
    """The model's input for a stored value x: (x / scale - mean) / std. 8-bit images need
    it."""

    federated: bool
    """Mean and std are those of the samples of all clients, which tell them before round 1;
    federated alone says the same."""
    scale: float
    """Divides each value."""
    mean: float | Sequence[float]
    """Is subtracted."""
    std: float | Sequence[float]
    """Divides the rest."""

class TrainKeys(TypedDict, total=False):
    """The local training of a client in one round."""

    epochs: int
    """Passes over the client's samples."""
    steps: int | None
    """Local steps, instead of epochs; 0 returns the model untrained."""
    batch_size: int | Literal["all"]
    """Samples in a step; all is all samples of the client. A last one alone joins the step
    before it if the model has buffers (BatchNorm)."""
    accumulate: int
    """Parts of a step's samples whose gradients are computed one after the other and averaged:
    the step is the same within rounding, and needs less memory. For models without buffers
    (BatchNorm)."""
    learning_rate: float
    """Learning rate."""
    momentum: float
    """Momentum of sgd or rmsprop."""
    weight_decay: float
    """Factor of the weights in the gradient (L2); of adamw, in the step."""
    optimiser: Optimiser
    """How a step follows from the gradient, e.g. {name: adam, beta1: 0.8}."""
    schedule: Schedule
    """Learning rate over the rounds, e.g. {name: step, every: 10, gamma: 0.5}."""

class EvaluateKeys(TypedDict, total=False):
    """How often, and on how much of the test set, the global model is evaluated."""

    every: int
    """Rounds from one evaluation to the next."""
    batch_size: int
    """Samples at a time; changes speed and memory, but no result."""
    sample: int | None
    """Test samples to use; null is all."""
    validation: float | None
    """Share of the training samples that evaluate the rounds instead of the test split: of the
    server's data, or of each client's where clients evaluate. The test split is then evaluated
    once, at the end."""
    clients: ClientsKeys | Mapping[str, Any] | None
    """Clients evaluate the rounds, on their own test or validation samples, and send sums;
    null: the server does, on its test split."""
    per_client: bool
    """Also evaluate the model on each client's own test samples: mean and variance over
    clients; simulations only."""
    metrics: Sequence[Metric]
    """What is measured, e.g. [accuracy, macro-f1]; the first stands for the model wherever one
    number does. Empty: accuracy for classes, macro-f1 and micro-f1 for several labels, rmse and
    r2 for real values, perplexity and accuracy for tokens."""
    personal: bool
    """Also evaluate the model that each client uses itself, and what a client would use that
    never took part, on its own test samples; simulations only."""

class ClientsKeys(TypedDict, total=False):
    """Which clients evaluate, and when."""

    every: int
    """Rounds from one evaluation to the next; the last round is always evaluated."""
    fraction: float
    """Share of the clients that can be asked, at least one; in the last round, all of them."""

class LogicKeys(TypedDict, total=False):
    """Who takes part, what happens to an update on its way, and how updates become a model."""

    preset: Preset | None
    """An algorithm: a selector, an aggregator and hooks. It takes all settings of these."""
    selector: Selector | None
    """Who takes part in a round; null: the preset's."""
    aggregator: Aggregator | None
    """How the updates become the next model; null: the preset's."""
    hooks: Sequence[Hook]
    """Further changes of models and updates, before the preset's hooks."""
    trainer: Trainer | None
    """How a client makes its update from the model that it receives; null: the preset's."""
    own: Sequence[str] | None
    """Tensors and buffers of the model that stay on each client: names with *, or head (the
    last layer), body (all others), norm (layers with buffers); null: the preset's."""
    min_updates: int
    """Fails a round with fewer accepted updates; at most clients. With 0, a round without
    updates keeps the model and the run goes on."""
    over_select: float
    """Asks this many times as many clients as are needed, and accepts the first that answer."""
    max_update: float | None
    """Rejects an update whose norm is more than this many times the norm of the model plus 1,
    and fails a round that moves the model farther; null: no limit."""

class ClockKeys(TypedDict, total=False):
    """How long a round may take, and in a simulation how long each step of a client takes."""

    deadline_s: float | None
    """Time after which a round goes on without the clients that have not answered."""
    devices: Devices | None
    """How fast each client trains, uploads and downloads."""
    uploads: Uploads | None
    """How uploads share the way to the server; null: serial for fedcs, offline-kp and
    online-kp, parallel for all others."""
    availability: Availability
    """When clients are available."""
    dropout: float
    """Probability that a client of a round drops out before its update arrives."""

class ExecutorKeys(TypedDict, total=False):
    """Where a simulation trains its clients: in this process one after the other (`serial`) or
    many at once (`cohort`), in worker processes, or in [Ray](https://docs.ray.io). The result
    is the same bits, but for many at once."""

    cohort: CohortKeys | Mapping[str, Any] | None
    """Many clients at once in this process, for engine: torch on a GPU."""
    processes: int | Literal["all"] | None
    """Worker processes; all: one for each processor."""
    ray: RayKeys | Mapping[str, Any] | None
    """Actors of a Ray cluster, one processor each; needs the extra ray."""

class CohortKeys(TypedDict, total=False):
    """Many clients at once in this process, for `engine: torch` on a GPU
    ([more](scale.md#many-clients-at-once))."""

    clients: int
    """The most clients at once; fewer if the device lacks memory."""

class RayKeys(TypedDict, total=False):
    """Actors of a Ray cluster, one processor each; needs the extra `ray`."""

    address: str | None
    """Address of a cluster; null starts one on this machine."""
    workers: int | None
    """Actors; null: one for each processor."""
    clients: int | None
    """Clients that an actor trains at once, as cohort does; null: one."""
    gpus: float
    """GPUs of each actor."""

class NetworkKeys(TypedDict, total=False):
    """How the server and its clients reach each other in a deployment."""

    address: str
    """Where the server listens; port 0 lets the system choose. IPv6: [::1]:7070."""
    insecure: bool
    """Allow connections without TLS from other machines."""
    tls: TlsKeys | Mapping[str, Any] | None
    """The server's files (PEM) for mutual TLS, which fedmx certs makes."""
    token_file: str | Path | None
    """File with a secret that clients must have, too."""
    heartbeat_s: float
    """Time between heartbeats."""
    rejoin_s: float
    """Time in which a disconnected client may come back before it is lost."""
    wait_for: int | Literal["all"]
    """Clients that must be connected before round 1; at most clients."""
    max_samples: int | Literal["partition"] | None
    """The most samples that a client may announce; one that announces more is refused.
    partition: as many as the experiment's partition gives it, where no client has data of its
    own; null: any number, and the client has that weight."""
    violations: int
    """Protocol violations of a client in a round; with more, it is disconnected."""
    log_lines: int
    """Lines a minute in the server's log about one client or machine; further ones are
    counted."""
    patience: float | None
    """Gives up a client that does not answer after this many times the median answer time. The
    least limit is 60 s, or 10 s when a third of the round's updates and min_updates have
    arrived. Before the first answer of a run, it is an hour. A client that was given up or lost
    has half the multiple until it sends an update. null: never."""
    patience_s: float | None
    """The same in seconds, instead of patience."""
    wait_limit_s: float | None
    """How long a run that has begun waits for enough clients or updates before it ends with an
    error; null: any time."""
    incoming_mib: int | None
    """Memory in MiB for messages that are being received, of all clients together; null: 64,
    and up to a quarter of the memory of the machine, or of its control group, while the clients
    are the bottleneck."""
    metrics: str | None
    """Address for Prometheus and fedmx status, as 127.0.0.1:9109; needs the extra metrics. One
    that others can reach needs metrics_token_file."""
    metrics_token_file: str | Path | None
    """File with a secret that readers of the metrics must send."""

class TlsKeys(TypedDict, total=False):
    """The server's files (PEM) for mutual TLS, which `fedmx certs` makes."""

    ca: Required[str | Path]
    """Certificate of the authority that signed both ends."""
    certificate: Required[str | Path]
    """Certificate of this end."""
    key: Required[str | Path]
    """Private key of this end."""
    crl: str | Path | None
    """The authority's list of revoked certificates (fedmx certs revoke)."""

class RunKeys(TypedDict, total=False):
    """What a run writes to disk, and where."""

    folder: str | Path
    """Folder in which each run gets a folder of its own."""
    checkpoint: CheckpointKeys | Mapping[str, Any]
    """When a checkpoint is written, and which ones are kept."""
    report_every: int | None
    """Rounds from one writing of report.html to the next while the run goes on; null: from the
    second round on, as often as that takes at most a hundredth of the time."""
    fold_memory_mb: int | None
    """Keep updates on disk, and fold them slice by slice in this much memory, in MB of 10^6
    bytes, besides the result; null: in memory, and on a server updates above 64 MB on disk, if
    the aggregator reads slices."""

class CheckpointKeys(TypedDict, total=False):
    """When a checkpoint is written, and which ones are kept."""

    every: int
    """Rounds from one checkpoint to the next."""
    keep: KeepKeys | Mapping[str, Any] | int
    """Which checkpoints are kept; a count is last."""

class KeepKeys(TypedDict, total=False):
    """Which checkpoints are kept; a count is `last`."""

    last: int
    """The newest checkpoints to keep; the run can step back to them."""
    every: int | None
    """Also keep the checkpoint of each round that is a multiple of this; a replay begins at the
    nearest one."""
