"""Data sets, partitions, schedules and losses: their defaults, and the limits of each setting."""

from __future__ import annotations

import math
from dataclasses import MISSING, fields

import pytest

from layers.compute.data.dataset import Normalise
from layers.compute.data.datasets import DATASETS
from layers.compute.data.partitions import PARTITIONS
from layers.compute.engines.mxnet.training import LOSSES
from layers.compute.errors import ComputeError, DataError, PartitionError, unknown
from layers.compute.schedule import SCHEDULES

TINY = 5e-324
BELOW_0, BELOW_1, ABOVE_1 = -TINY, math.nextafter(1, 0), math.nextafter(1, 2)
LARGEST = math.nextafter(math.inf, 0)
NAN, INF = math.nan, math.inf
ALPHA = 0.5, (math.nextafter(1e-3, 0), math.nextafter(1e6, INF), NAN), (1e-3, 1e6)

# By name: the default of each setting, what is refused, and the nearest that is accepted.
DATA = {
    "mnist": {},
    "fashion-mnist": {},
    "cifar-10": {},
    "svhn": {"hold_out": (0.0, (BELOW_0, 1.0, NAN), (0.0, BELOW_1))},
    "femnist": {},
    "sentiment140": {
        "tokens": (25, (0,), (1,)),
        "vocabulary": (10_000, (2,), (3,)),
        "min_tweets": (1, (0,), (1,)),
        "hold_out": (0.0, (BELOW_0, 1.0, NAN), (0.0, BELOW_1)),
    },
    "digits": {},
    "synthetic": {
        "alpha": (1.0, (BELOW_0, INF, NAN), (0.0, LARGEST)),
        "beta": (1.0, (BELOW_0, INF, NAN), (0.0, LARGEST)),
        "iid": (False, (), (True,)),
        "clients": (30, (0,), (1,)),
        "seed": (0, (-1,), (0,)),
    },
}
PARTS = {
    "iid": {},
    "shards": {"per_client": (2, (0,), (1,))},
    "one-class": {},
    "label-quantity": {"per_client": (2, (0,), (1,))},
    "dirichlet": {
        "alpha": ALPHA,
        "min_samples": (1, (-1,), (0,)),
        "self_balancing": (False, (), (True,)),
    },
    "quantity": {"alpha": ALPHA, "min_samples": (1, (-1,), (0,))},
    "by-user": {},
    "biased": {
        "share": (0.4, (BELOW_0, ABOVE_1, NAN), (0.0, 1.0)),
        "threshold": (None, (0.0, INF, NAN), (TINY, LARGEST)),
        "distance": ("emd", ("l2", ""), ("emd", "l1")),
    },
    "normal-sizes": {
        "mean": (None, (BELOW_1, INF, NAN), (1.0, LARGEST)),
        "spread": (0.25, (BELOW_0, INF, NAN), (0.0, LARGEST)),
        "least": (1, (-1,), (0,)),
    },
}
RATES = {
    "constant": {},
    "step": {"every": (100, (0,), (1,)), "gamma": (0.1, (0.0, INF, NAN), (TINY, LARGEST))},
    "inverse": {"start": (0, (-1,), (0,))},
    "cosine": {"floor": (0.0, (BELOW_0, ABOVE_1, NAN), (0.0, 1.0))},
}
LOSS = {"softmax": {"classes": (10, (1,), (2,))}, "sigmoid": {"classes": (2, (0, 3), (1, 2))}}
NORMALISE = {
    "normalise": {
        "scale": (1.0, (0.0, -1.0, INF, NAN), (TINY, LARGEST)),
        "mean": (0.0, (INF, NAN, (), (0.0, NAN)), (LARGEST, (0.0, 1.0))),
        "std": (1.0, (0.0, -1.0, INF, NAN, (), (1.0, 0.0)), (TINY, (1.0, 2.0))),
    }
}
KINDS = [
    (DATA, DATASETS, DataError),
    (PARTS, PARTITIONS, PartitionError),
    (RATES, SCHEDULES, ComputeError),
    (NORMALISE, {"normalise": Normalise}, Exception),
]
SETTINGS = [
    pytest.param(known[name], setting, *limits, error, id=f"{name}-{setting}")
    for table, known, error in KINDS
    for name, settings in table.items()
    for setting, limits in settings.items()
]


def test_every_setting_stands_in_the_tables() -> None:
    for table, known, _ in KINDS:
        for name, make in known.items():
            if name != "arrays":  # its path has no default, and any text is one
                assert sorted(table[name]) == sorted(one.name for one in fields(make) if one.init)


@pytest.mark.parametrize(("make", "setting", "default", "refused", "accepted", "error"), SETTINGS)
def test_a_setting_is_refused_beyond_its_limits_and_accepted_at_them(
    make, setting, default, refused, accepted, error
) -> None:
    assert getattr(make(), setting) == default
    for value in refused:
        with pytest.raises(error, match=setting):
            make(**{setting: value})
    for value in accepted:
        assert getattr(make(**{setting: value}), setting) == value


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_for_as_many_classes_as_it_can_tell_apart(name) -> None:
    _, refused, accepted = LOSS[name]["classes"]
    for classes in refused:
        with pytest.raises(ComputeError, match="classes"):
            LOSSES[name](classes)
    for classes in accepted:
        LOSSES[name](classes)


def test_an_unknown_name_lists_those_that_there_are_and_how_many_more() -> None:
    names = ["a", "b", "c"]
    assert unknown("model", "zz", names) == "unknown model 'zz'; there are: a, b, c"
    assert unknown("model", "zz", names, shown=3).endswith("a, b, c")
    assert unknown("model", "zz", names, shown=2).endswith("a, b and 1 more")
    many = [f"{number:02}" for number in range(41)]
    assert unknown("model", "zz", many).endswith("39 and 1 more")
    assert "did you mean 'lenet5' or 'lenet'" in unknown("model", "lenet5x", ["lenet", "lenet5"])


def test_no_default_hides_in_a_factory() -> None:
    for _, known, _ in KINDS:
        for make in known.values():
            assert all(one.default_factory is MISSING for one in fields(make))
