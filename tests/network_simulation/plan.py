"""The plan of a seed, drawn before the run: the deployment, its network, and its faults."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fedmx.experiment.sections import NetworkSection
from layers.logic.round.patience import Patience
from tests.network_simulation.experiment import ALGORITHMS, LARGE, LOSSES, SMALL, Experiment

HORIZON_S = 60.0  # no fault starts after this time
KINDS = (
    "cut",
    "cut",
    "cut at a byte",
    "outage",
    "slow line",
    "stall",
    "kill",
    "kill",
    "power",
    "wall clock",
    "full disk",
)
BEHAVIOURS = ("silent", "vanishing", "flapping", "contested")  # of clients
TROUBLES = ("pause", "clock jump")  # of the server
DRAWN = (*BEHAVIOURS, *TROUBLES)  # by `troubled`


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        at_s: when.
        kind: one of `KINDS` or `TROUBLES`.
        target: the process it happens to.
        amount: how bad it is, from 0 to 1.
    """

    at_s: float
    kind: str
    target: str
    amount: float


@dataclass(frozen=True)
class Plan:
    """Everything drawn before a run.

    Attributes:
        experiment: what is run.
        heartbeat_s: of the listener.
        delay_s: of a packet, at most.
        train_s: of a client's training, at most.
        rejoin_s: how long the server waits for a client that has left.
        remembers: whether clients keep their memory on disk.
        repeats: how often a client that is back sends its last update again.
        breaks: how often a connection is cut within a second after an update was sent on it.
        dies: how often a client is killed within a second after it sent an update.
        faults: in the order of time.
        behaviours: one of `BEHAVIOURS` for each client that is not honest.
        patience: how long a client may take to answer; None: any time.
    """

    experiment: Experiment
    heartbeat_s: float
    delay_s: float
    train_s: float
    rejoin_s: float
    remembers: bool
    repeats: float
    breaks: float
    dies: float
    faults: tuple[Fault, ...]
    behaviours: Mapping[str, str] = field(default_factory=dict, hash=False)
    patience: Patience | None = None

    @property
    def large(self) -> bool:
        """Whether the model is large."""
        return self.experiment.size == LARGE

    @property
    def troubles(self) -> str:
        """Who troubles the rounds, and how, as text."""
        faults = [f"{fault.target}: {fault.kind}" for fault in self.faults]
        return ", ".join([*faults, *(f"{who}: {how}" for who, how in self.behaviours.items())])

    @property
    def limit_s(self) -> float:
        """Virtual seconds after which a run has failed."""
        return 4000.0 + 4.0 * self.experiment.rounds * self.train_s

    @property
    def may_lose(self) -> bool:
        """Whether an update may be lost for good; the recorded run is then replayed instead."""
        full = any(fault.kind == "full disk" and fault.target != "server" for fault in self.faults)
        return (
            self.experiment.deadline_s is not None
            or self.rejoin_s < 1e6
            or not self.remembers
            or full
            or bool(self.behaviours)
        )


def drawn(seed: int, quiet: bool = False) -> Plan:
    """Return the plan of a seed; `quiet`: without faults."""
    draw = random.Random(f"{seed}/plan")
    losing = draw.random() < 0.25 and not quiet
    algorithm = draw.choice(LOSSES if losing else ALGORITHMS)
    clients = draw.choice((1, 2, 2, 3, 3, 3, 4, 4, 5, 6, 8))
    if draw.random() < 0.02:
        clients = draw.randint(20, 50)
    experiment = Experiment(
        algorithm,
        clients,
        rounds=draw.randint(2, 5),
        fraction=draw.choice((1.0, 1.0, 0.5)),
        deadline_s=draw.choice((None, 3.0, 20.0)) if losing else None,
        seed=draw.randint(0, 3),
        size=LARGE if clients < 4 and draw.random() < 0.04 else SMALL,
    )
    if experiment.size == LARGE and experiment.deadline_s is not None:
        experiment = replace(experiment, deadline_s=120.0)  # its updates need more than seconds
    names = ["server", *(f"client-{number}" for number in range(clients))]
    faults = []
    for _ in range(0 if quiet else draw.choice((0, 1, 2, 3, 4, 6, 8, 12))):
        target = "server" if draw.random() < 0.35 else draw.choice(names)
        kind = draw.choice(KINDS)
        if kind == "full disk" and target != "server" and not losing:
            target = "server"
        at_s = draw.choice((0.5, 2.0, 8.0, HORIZON_S)) * draw.random()
        faults.append(Fault(at_s, kind, target, draw.random()))
    return Plan(
        experiment,
        heartbeat_s=draw.choice((0.5, 2.0, 5.0)),
        delay_s=draw.choice((0.001, 0.02, 0.3)),
        train_s=draw.choice((0.01, 0.3, 3.0, 15.0)),
        rejoin_s=draw.choice((1e9, 5.0, 30.0)) if losing else 1e9,
        remembers=not losing or draw.random() < 0.5,
        repeats=0.0 if quiet or algorithm == "offers" else draw.choice((0.0, 0.5, 1.0)),
        breaks=0.0 if quiet else draw.choice((0.0, 0.0, 0.3)),
        dies=0.0 if quiet else draw.choice((0.0, 0.0, 0.2)),
        faults=tuple(sorted(faults, key=lambda fault: fault.at_s)),
    )


def troubled(seed: int, trouble: str | None = None) -> Plan:
    """Return a plan with default settings, honest clients, and troubles; None: drawn ones.

    There are as many honest clients as a round needs updates. The rounds are long and many, so that
    a share of their rate means something.
    """
    draw = random.Random(f"{seed}/troubles")
    default = NetworkSection()
    honest = draw.randint(3, 6)
    others = draw.randint(1, honest // 2)
    troubles = [trouble or draw.choice(DRAWN) for _ in range(others)]
    experiment = Experiment(
        "plain", honest + others, rounds=20, min_updates=honest, seed=draw.randint(0, 3)
    )
    return Plan(
        experiment,
        heartbeat_s=default.heartbeat_s,
        delay_s=draw.choice((0.001, 0.02, 0.3)),
        train_s=draw.choice((20.0, 60.0)),
        rejoin_s=default.rejoin_s,
        remembers=True,
        repeats=0.0,
        breaks=0.0,
        dies=0.0,
        faults=tuple(
            Fault(draw.random() * 600.0, kind, "server", draw.random())
            for kind in troubles
            if kind in TROUBLES
        ),
        behaviours={
            f"client-{honest + number}": kind
            for number, kind in enumerate(troubles)
            if kind in BEHAVIOURS
        },
        patience=Patience(default.patience, default.patience_s),
    )
