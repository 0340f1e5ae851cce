"""The limits and defaults of an experiment's sections, written out by hand."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from fedmx.experiment import sections

TINY = 5e-324
BELOW_0, BELOW_1, ABOVE_1 = -TINY, math.nextafter(1, 0), math.nextafter(1, 2)
LARGEST = math.nextafter(math.inf, 0)
NOT_FINITE = (math.inf, math.nan)
MOST = 2**31 - 1

COUNT = ((0, -1, MOST + 1, 1.5, True, "x"), (1, MOST))
WHOLE = ((-1, MOST + 1, 0.5, True), (0, MOST))
COUNT_OR_ALL = ((0, -1, MOST + 1, True, "every"), (1, MOST, "all"))
POSITIVE = ((0.0, -1.0, *NOT_FINITE, True), (TINY, LARGEST, 1))
NOT_NEGATIVE = ((BELOW_0, *NOT_FINITE, True), (0.0, LARGEST))
SHARE = ((0.0, ABOVE_1, *NOT_FINITE), (TINY, 1.0))

# By section: the default of each setting, what is refused, and the nearest that is accepted.
LIMITS = {
    "StopSection": {
        "accuracy": (None, *SHARE),
        "loss": (None, *POSITIVE),
        "seconds": (None, *POSITIVE),
        "clock_s": (None, *POSITIVE),
        "client_accuracy": (None, *SHARE),
    },
    "NormaliseSection": {
        "scale": (1.0, *POSITIVE),
        "mean": (0.0, (*NOT_FINITE, True), (-1.0, (0.0, 1.0))),
        "std": (1.0, (*POSITIVE[0], (1.0, 0.0)), (TINY, (1.0, 2.0))),
    },
    "TrainSection": {
        "epochs": (1, *COUNT),
        "steps": (None, *WHOLE),
        "batch_size": (10, *COUNT_OR_ALL),
        "learning_rate": (0.1, *POSITIVE),
        "momentum": (0.0, (BELOW_0, 1.0, *NOT_FINITE), (0.0, BELOW_1)),
        "weight_decay": (0.0, *NOT_NEGATIVE),
    },
    "EvaluateSection": {
        "every": (1, *COUNT),
        "batch_size": (500, *COUNT),
        "sample": (None, *COUNT),
        "per_client": (False, (2, "maybe"), (True, False)),
    },
    "LogicSection": {
        "min_updates": (1, *WHOLE),
        "over_select": (1.0, (BELOW_1, math.nextafter(100, 101), *NOT_FINITE), (1.0, 100.0)),
        "max_update": (1000.0, (0, -1, *NOT_FINITE), (1e-3, 1e30)),
    },
    "ClockSection": {
        "deadline_s": (None, *POSITIVE),
        "dropout": (0.0, (BELOW_0, ABOVE_1, *NOT_FINITE), (0.0, 1.0)),
    },
    "NetworkSection": {
        "address": (
            "127.0.0.1:7070",
            (
                *("", "host", ":7070", "host:", "::1:70", "a b:70", "a/b:70", "u@h:70", "[]:70"),
                *("host:65536", "host:-1", "host:+1", "host:000001", "host:1.0", "host:²"),
            ),
            ("host:0", "host:65535", "[::1]:7070", "host:00001"),
        ),
        "insecure": (False, (2,), (True, False)),
        "heartbeat_s": (
            5.0,
            (math.nextafter(0.1, 0), math.nextafter(3600, 3601), *NOT_FINITE),
            (0.1, 3600.0),
        ),
        "rejoin_s": (60.0, *NOT_NEGATIVE),
        "wait_for": ("all", *COUNT_OR_ALL),
        "max_samples": (None, (0, -1, MOST + 1, 1.5, True, "all"), (1, MOST, "partition", None)),
        "violations": (10, *COUNT),
        "log_lines": (20, *COUNT),
        "patience": (10.0, *POSITIVE),
        "patience_s": (None, *POSITIVE),
        "incoming_mib": (None, *COUNT),
        "token_file": (None, ("", "a\0b"), (Path("token"),)),
    },
    "CheckpointSection": {"every": (1, *COUNT)},
    "KeepSection": {"last": (5, *COUNT), "every": (None, *COUNT)},
    "RunSection": {
        "folder": (Path("runs"), ("", "a\0b"), (Path("elsewhere"),)),
        "fold_memory_mb": (None, *COUNT),
    },
    "RaySection": {"address": (None, (True,), ("auto",)), "workers": (None, *COUNT)},
    "ExecutorSection": {"processes": (None, *COUNT_OR_ALL)},
}
SETTINGS = [
    pytest.param(section, setting, *limits, id=f"{section}-{setting}")
    for section, settings in LIMITS.items()
    for setting, limits in settings.items()
]


@pytest.mark.parametrize(("section", "setting", "default", "refused", "accepted"), SETTINGS)
def test_a_setting_is_refused_beyond_its_limits_and_accepted_at_them(
    section, setting, default, refused, accepted
) -> None:
    make = getattr(sections, section)
    assert getattr(make(), setting) == default
    for value in refused:
        with pytest.raises(ValidationError, match=setting):
            make(**{setting: value})
    for value in accepted:
        assert getattr(make(**{setting: value}), setting) == value


def test_what_a_section_stands_for_in_the_layers() -> None:
    assert sections.TrainSection(batch_size="all").batch_samples == 0
    assert sections.TrainSection(batch_size=7).batch_samples == 7
    network = sections.NetworkSection(address="[::1]:0")
    assert (network.host, network.port) == ("::1", 0)
    network = sections.NetworkSection(address="example.org:65535")
    assert (network.host, network.port) == ("example.org", 65535)


def test_an_executor_is_one_of_three() -> None:
    made = {
        "serial": sections.ExecutorSection(),
        "processes": sections.ExecutorSection(processes=3),
        "ray": sections.ExecutorSection(ray=sections.RaySection()),
    }
    assert {name: executor.name for name, executor in made.items()} == {name: name for name in made}
    assert made["processes"].number == 3
    every = sections.ExecutorSection.model_validate("processes")
    assert every.number == len(os.sched_getaffinity(0))
    assert sections.ExecutorSection.model_validate("ray").name == "ray"
    assert sections.ExecutorSection.model_validate("serial").name == "serial"
    with pytest.raises(ValidationError, match="both processes and ray"):
        sections.ExecutorSection(processes=1, ray=sections.RaySection())
    with pytest.raises(ValidationError, match="did you mean 'processes'"):
        sections.ExecutorSection.model_validate("process")


@pytest.mark.parametrize("section", LIMITS)
def test_a_section_is_frozen_and_takes_no_other_key(section) -> None:
    made = getattr(sections, section)()
    with pytest.raises(ValidationError, match="Extra inputs"):
        type(made)(nonsense=1)
    name = next(iter(LIMITS[section]))
    with pytest.raises(ValidationError, match="frozen"):
        setattr(made, name, getattr(made, name))
