"""The sections of an experiment and what each key may be: the schema of the experiment file."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from fedmx.components.component import Component, component_at
from fedmx.components.text import in_words, shown, takes_bool, unknown

_MAX_COUNT = 2**31 - 1


def _check_all_or_count(value: Any) -> Any:
    if value == "all":
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MAX_COUNT:
        return value
    raise ValueError(f"must be all or a whole number from 1, not {shown(value)}")


def _check_partition_or_count(value: Any) -> Any:
    if value is None or value == "partition":
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MAX_COUNT:
        return value
    raise ValueError(f"must be partition, null or a whole number from 1, not {shown(value)}")


def _check_path(value: Any) -> Any:
    if isinstance(value, str) and (not value or "\0" in value):
        raise ValueError(f"must be a path, not {shown(value)}")
    return value


def _with_indices(hooks: tuple[Component, ...]) -> tuple[Component, ...]:
    """Return the hooks, each with its index in its place."""
    return tuple(
        dataclasses.replace(hook, where=(*hook.where, index)) for index, hook in enumerate(hooks)
    )


def _check_address(value: str) -> str:
    host, colon, port = value.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    named = bare and bare.isprintable() and not any(c in bare for c in " /[]@")
    if not colon or not named or (":" in bare and bare == host):
        raise ValueError(f"must be HOST:PORT, as 127.0.0.1:7070 or [::1]:7070, not {shown(value)}")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise ValueError(f"the port must be from 0 to 65535, not {shown(port)}")
    return value


def _check_loopback(value: str) -> str:
    bare = _check_address(value).rpartition(":")[0].strip("[]")
    try:
        loopback = bare == "localhost" or ipaddress.ip_address(bare).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise ValueError(
            f"must be an address of this machine alone, as 127.0.0.1:9109, not {shown(value)}; "
            "a tunnel or a proxy with access control can bring it elsewhere"
        )
    return value


Count = Annotated[int, Field(ge=1, le=_MAX_COUNT)]
_NotEmpty = Annotated[str, Field(min_length=1)]
WholeNumber = Annotated[int, Field(ge=0, le=_MAX_COUNT)]
CountOrAll = Annotated[
    int | Literal["all"],
    BeforeValidator(_check_all_or_count, json_schema_input_type=Count | Literal["all"]),
]
_PartitionOrCount = Annotated[
    int | Literal["partition"] | None,
    BeforeValidator(
        _check_partition_or_count, json_schema_input_type=Count | Literal["partition"] | None
    ),
]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
PathText = Annotated[Path, BeforeValidator(_check_path, json_schema_input_type=_NotEmpty)]


class Section(BaseModel):
    """The root of all sections: frozen, without other keys, NaN and infinities."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _check_bool(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool) and info.field_name:
            annotation = cls.model_fields[info.field_name].annotation
            if not takes_bool(annotation):
                raise ValueError(f"must be {in_words(annotation)}, not {shown(value)}")
        return value


class StopSection(Section):
    """When a run ends before its last round: as soon as one of these is reached."""

    accuracy: Annotated[float, Field(gt=0, le=1)] | None = None
    loss: Positive | None = None
    seconds: Positive | None = None
    clock_s: Positive | None = None
    client_accuracy: Annotated[float, Field(gt=0, le=1)] | None = None

    @property
    def is_set(self) -> bool:
        """Whether a run may end before its last round."""
        return any(value is not None for _, value in self)


class NormaliseSection(Section):
    """How a stored value x becomes the model's input: (x / scale - mean) / std, per channel."""

    scale: Positive = 1.0
    mean: float | tuple[float, ...] = 0.0
    std: Positive | tuple[Positive, ...] = 1.0


class TrainSection(Section):
    """The local training of a client in one round."""

    epochs: Count = 1
    steps: WholeNumber | None = None
    batch_size: CountOrAll = 10
    learning_rate: Positive = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: NotNegative = 0.0
    schedule: Annotated[Component, component_at("compute", "train", "schedule")] = Component(
        "constant", where=("compute", "train", "schedule")
    )

    @property
    def batch_samples(self) -> int:
        """The batch size for the compute layer; 0 means all samples in one batch."""
        return 0 if self.batch_size == "all" else self.batch_size


class EvaluateSection(Section):
    """How often, and on how much of the test set, the global model is evaluated."""

    every: Count = 1
    batch_size: Count = 500
    sample: Count | None = None
    per_client: bool = False


class ComputeSection(Section):
    """The model, the data, and how a client trains."""

    model: Annotated[Component, component_at("compute", "model")]
    data: Annotated[Component, component_at("compute", "data")]
    start: PathText | None = None
    normalise: NormaliseSection | None = None
    partition: Annotated[Component, component_at("compute", "partition")] = Component(
        "iid", where=("compute", "partition")
    )
    bits: Literal["native", "portable"] = "native"
    train: TrainSection = TrainSection()
    evaluate: EvaluateSection = EvaluateSection()


class LogicSection(Section):
    """Who takes part, what happens to an update on its way, and how updates become a model."""

    preset: Annotated[Component | None, component_at("logic", "preset", optional=True)] = Component(
        "fedavg", where=("logic", "preset")
    )
    selector: Annotated[Component | None, component_at("logic", "selector", optional=True)] = None
    aggregator: Annotated[Component | None, component_at("logic", "aggregator", optional=True)] = (
        None
    )
    hooks: Annotated[
        tuple[Annotated[Component, component_at("logic", "hooks")], ...],
        AfterValidator(_with_indices),
    ] = ()
    min_updates: WholeNumber = 1
    over_select: Annotated[float, Field(ge=1, le=100)] = 1.0
    max_update: Positive | None = 1000.0


class ClockSection(Section):
    """How long a round may take, and in a simulation how long each step of a client takes."""

    deadline_s: Positive | None = None
    devices: Annotated[Component | None, component_at("clock", "devices", optional=True)] = None
    uploads: Annotated[Component | None, component_at("clock", "uploads", optional=True)] = None
    availability: Annotated[Component, component_at("clock", "availability")] = Component(
        "always", where=("clock", "availability")
    )
    dropout: Annotated[float, Field(ge=0, le=1)] = 0.0


class TlsSection(Section):
    """The files (PEM) of one end of a mutual TLS connection."""

    ca: PathText
    certificate: PathText
    key: PathText
    crl: PathText | None = None


MOST_VIOLATIONS = 10  # of one client in a round, before its connection is closed
LOG_LINES = 20  # a minute about one client
PATIENCE = 10.0  # times what an answer takes


class NetworkSection(Section):
    """How the server and its clients reach each other in a deployment."""

    address: Annotated[str, AfterValidator(_check_address)] = "127.0.0.1:7070"
    insecure: bool = False
    tls: TlsSection | None = None
    token_file: PathText | None = None
    heartbeat_s: Annotated[float, Field(ge=0.1, le=3600)] = 5.0
    rejoin_s: NotNegative = 60.0
    wait_for: CountOrAll = "all"
    max_samples: _PartitionOrCount = None
    violations: Count = MOST_VIOLATIONS
    log_lines: Count = LOG_LINES
    patience: Positive | None = PATIENCE
    patience_s: Positive | None = None
    incoming_mib: Count | None = None
    metrics: Annotated[str, AfterValidator(_check_loopback)] | None = None

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
    """Which checkpoints are kept: the newest ones, and those of every so many rounds."""

    last: Count = 5
    every: Count | None = None

    @model_validator(mode="before")
    @classmethod
    def _expand_number(cls, value: Any) -> Any:
        return {"last": value} if isinstance(value, int) else value


class CheckpointSection(Section):
    """After how many rounds a checkpoint is written, and which of them are kept."""

    every: Count = 1
    keep: KeepSection = KeepSection()


class RunSection(Section):
    """What a run writes to disk, and where."""

    folder: PathText = Path("runs")
    checkpoint: CheckpointSection = CheckpointSection()
    fold_memory_mb: Count | None = None


class RaySection(Section):
    """A Ray cluster: at an address, or started on this machine."""

    address: str | None = None
    workers: Count | None = None


class ExecutorSection(Section):
    """Which processes do the clients' work in a simulation; the result is the same bits."""

    processes: CountOrAll | None = None
    ray: RaySection | None = None

    @model_validator(mode="before")
    @classmethod
    def _expand_name(cls, value: Any) -> Any:
        if isinstance(value, str):
            if value not in EXECUTORS:
                raise ValueError(unknown("executor", value, EXECUTORS))
            return EXECUTORS[value]
        return value

    @model_validator(mode="after")
    def _check_one_kind(self) -> ExecutorSection:
        if self.processes is not None and self.ray is not None:
            raise ValueError("has both processes and ray; remove one of them")
        return self

    @property
    def name(self) -> str:
        """The name: serial, processes or ray."""
        if self.processes is not None:
            return "processes"
        return "serial" if self.ray is None else "ray"

    @property
    def number(self) -> int:
        """The number of processes; ``all`` is one for each processor that this one may use."""
        if isinstance(self.processes, int):
            return self.processes
        return len(os.sched_getaffinity(0))


EXECUTORS: dict[str, dict[str, Any]] = {
    "serial": {},
    "processes": {"processes": "all"},
    "ray": {"ray": {}},
}
