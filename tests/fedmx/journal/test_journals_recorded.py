"""Runs of every kind go event by event and command by command as they were recorded.

Where a hash changes, journals of that kind replay no longer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from fedmx import Experiment, simulate

TREE: dict[str, Any] = {
    "seed": 7,
    "clients": 8,
    "rounds": 5,
    "compute": {
        "model": "logistic",
        "data": "digits",
        "normalise": {"scale": 16},
        "train": {"steps": 4, "batch_size": 10, "learning_rate": 0.1},
    },
}
CLOCK = {"deadline_s": 30, "devices": "lognormal", "uploads": "serial", "dropout": 0.2}
DROPPING = {"devices": "lognormal", "dropout": 0.1}
RECORDED: dict[str, tuple[dict[str, Any], dict[str, Any] | None, str]] = {
    "fedavg": (
        {"preset": "fedavg", "selector": {"name": "uniform", "fraction": 0.5}},
        DROPPING,
        "50e0e61567408f05",
    ),
    "losses": (
        {
            "preset": "fedavg",
            "selector": {"name": "uniform", "fraction": 0.75},
            "over_select": 1.3,
            "min_updates": 0,
        },
        {**CLOCK, "deadline_s": 4},
        "f0c84d65e3897e99",
    ),
    "offline": ({"preset": "offline-kp", "min_updates": 0}, CLOCK, "e1b202944cdbf8ad"),
    "online": ({"preset": "online-kp", "min_updates": 0}, CLOCK, "cb8ec7218ecd59f6"),
    "fedcs": ({"preset": "fedcs", "min_updates": 0}, CLOCK, "af08f8f2227fc781"),
    "fedaim": (
        {"preset": {"name": "fedaim", "mediators": 2, "threshold": 0.95}},
        DROPPING,
        "b47b2934acfb5d3c",
    ),
    "astraea": (
        {"preset": {"name": "astraea", "gamma": 3, "mediator_epochs": 2}, "min_updates": 0},
        DROPPING,
        "c8afdc266c79e334",
    ),
    "fedbuff": (
        {"preset": {"name": "fedbuff", "concurrency": 4, "buffer": 2}},
        DROPPING,
        "e61ce34076bf5130",
    ),
    "fedasync": (
        {"preset": {"name": "fedasync", "concurrency": 3}},
        {"devices": "lognormal"},
        "61d2aa99947f4287",
    ),
    "refill2": (
        {"preset": {"name": "fedbuff", "concurrency": 4, "buffer": 3, "refill_at": 2}},
        {"devices": "lognormal"},
        "b0be031a17da1239",
    ),
    "oort": ({"preset": "oort", "min_updates": 0}, CLOCK, "a600ebec67afe75b"),
    "choice": (
        {"preset": "power-of-choice", "selector": {"name": "power-of-choice", "count": 3}},
        DROPPING,
        "b6096f038bbad9b8",
    ),
    "csfedavg": (
        {"preset": {"name": "csfedavg", "fraction": 0.5, "held_out": 0.1}},
        DROPPING,
        "d5c805f2297d3b8f",
    ),
    "fedsso": (
        {"preset": {"name": "fedsso", "beta": 0.5}, "over_select": 1.5},
        DROPPING,
        "cd0e960b30014a37",
    ),
    "clustered": ({"preset": {"name": "clustered", "fraction": 0.5}}, DROPPING, "efbc6804b2f8b73d"),
    "poisson": (
        {"selector": {"name": "poisson", "probability": 0.5}, "min_updates": 0},
        DROPPING,
        "f0e39038b0ac02fe",
    ),
    "cyclic": ({"selector": {"name": "cyclic", "period": 3}}, DROPPING, "56934f32bf3f8ed6"),
}
# What depends on the bits of a processor, or on the name of the run.
LEFT_OUT = {"blake3", "measured", "norm", "metrics", "checksum", "upload_s"}


def plain(value: Any) -> Any:
    """A record without the bits of vectors, with rounded numbers."""
    match value:
        case Mapping():
            return {key: plain(one) for key, one in value.items() if key not in LEFT_OUT}
        case list() | tuple():
            return [plain(one) for one in value]
        case float():
            return round(value, 5)
        case _:
            return value


def digest(records: Sequence[Mapping[str, Any]]) -> str:
    text = "\n".join(json.dumps(plain(one["entries"])) for one in records)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@pytest.mark.parametrize("kind", RECORDED)
def test_a_run_goes_as_it_was_recorded(kind: str) -> None:
    logic, clock, recorded = RECORDED[kind]
    given = {**TREE, "logic": logic, **({} if clock is None else {"clock": clock})}
    records, before = [], None
    with simulate(Experiment(**given)) as simulation:
        for one in simulation:
            records.append(json.loads(json.dumps(one.journal.record(before))))
            before = one.journal.population
    assert digest(records) == recorded
