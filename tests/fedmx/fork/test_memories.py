"""What a part keeps goes on with it, ends with it, and is found again at another place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fedmx import Experiment, RunFolder
from fedmx.history import fork
from fedmx.history.fork import Memories
from fedmx.run.checkpoint import read_checkpoint
from layers.logic import Hook, Preset
from layers.logic.aggregators.fedfv import FedFV
from layers.logic.aggregators.mean import Mean
from layers.logic.algorithms.oort import Oort
from layers.logic.algorithms.personal import ApflTrainer, DittoTrainer
from layers.logic.core.trainer import TRAINER
from layers.logic.hooks.compressors import Stc
from layers.logic.hooks.local_gradients import Clip
from layers.logic.hooks.server_optimisers import FedAvgM
from layers.logic.selectors.uniform import Uniform
from tests.fedmx.fork.parents import TREE
from tests.fedmx.recorded_runs import record

LOGIC = {"selector": {"name": "uniform", "count": 2}, "hooks": ["fedavgm", "stc"]}


@dataclass(frozen=True)
class Counting(Hook):
    """A user's hook, whose settings are fields."""

    step: int = 1


class Plain(Hook):
    """A user's hook that is no dataclass."""

    def __init__(self, step: int = 1) -> None:
        self.step = step


def preset(*hooks: Hook) -> Preset:
    return Preset(Uniform(), Mean(), hooks)


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    given = Experiment(**{**TREE, "logic": LOGIC, "rounds": 3})
    return record(given, tmp_path_factory.mktemp("runs"))


def kept(before: Preset, after: Preset) -> dict[str, str]:
    """The keys of hooks whose memory goes on, before and after."""
    return {old: new for old, new in Memories.of(before, after).keys.items() if ":" in old}


def test_a_hook_at_another_place_keeps_its_memory() -> None:
    found = kept(preset(FedAvgM(), Stc()), preset(Clip(norm=1.0), FedAvgM(), Stc()))
    assert found == {"0:FedAvgM": "1:FedAvgM", "1:Stc": "2:Stc"}


def test_the_nth_hook_of_a_class_is_found_again_as_the_nth() -> None:
    before, after = preset(Counting(1), Counting(2)), preset(FedAvgM(), Counting(1), Counting(3))
    assert kept(before, after) == {"0:Counting": "1:Counting"}


def test_a_trainer_with_other_settings_keeps_clients_models_and_another_one_does_not() -> None:
    before = Preset(Uniform(), Mean(), trainer=DittoTrainer(lam=0.1))
    same, other = (replace(before, trainer=one) for one in (DittoTrainer(lam=0.5), ApflTrainer()))
    assert TRAINER in Memories.of(before, same).keys
    found = Memories.of(before, other)
    assert TRAINER not in found.keys
    assert found.new == ("ApflTrainer",)


def test_a_hook_with_other_settings_keeps_its_memory_only_if_it_says_so() -> None:
    assert kept(preset(FedAvgM(momentum=0.9)), preset(FedAvgM(momentum=0.5))) == {
        "0:FedAvgM": "0:FedAvgM"
    }
    assert kept(preset(Stc(p_up=0.1)), preset(Stc(p_up=0.2))) == {}
    assert kept(preset(Plain(1)), preset(Plain(1))) == {"0:Plain": "0:Plain"}
    assert kept(preset(Plain(1)), preset(Plain(2))) == {}


def test_a_selector_and_an_aggregator_keep_their_memory_unless_a_setting_changes() -> None:
    one = Preset(Oort(), FedFV(tau=2))
    assert {"selector", "survey", "aggregator"} <= set(Memories.of(one, one).keys)
    other = Memories.of(one, Preset(Oort(fraction=0.5), FedFV(tau=3)))
    assert not {"selector", "survey", "aggregator"} & set(other.keys)
    assert other.new == ("Oort", "FedFV")


def test_parts_whose_memory_goes_on_or_ends_are_named_wherever_it_is() -> None:
    before = preset(FedAvgM(), Stc(), Counting(), Plain(1))
    memories = Memories.of(before, preset(FedAvgM(), Stc(p_up=0.3), Counting()))
    ledgers = {
        0: {"accepted": None, "pending": {"memory": {"1:Counting": {}}}},
        1: {"accepted": {"memory": {"3:Stc": {}}}, "pending": None},
    }
    checkpoint = {"server": {"memory": {"0:FedAvgM": {}}}, "clients": {"ledgers": ledgers}}
    assert memories.split(checkpoint) == (("FedAvgM", "Counting"), ("Stc",))
    assert memories.new == ("Stc",)


def test_the_server_and_the_clients_begin_with_what_goes_on(parent: RunFolder) -> None:
    changed = [
        "logic.hooks=[{name: clip, norm: 5}, {name: fedavgm, momentum: 0.5}, fedprox, stc]",
        "logic.hooks.2.mu=0.1",
    ]
    made = fork(parent, 2, changed)
    assert (made.origin.kept, made.origin.dropped) == (("FedAvgM", "Stc"), ())
    assert made.origin.empty == ("Clip", "FedProx")
    before = read_checkpoint(parent.checkpoint_path(2)).state
    after = read_checkpoint(made.folder.checkpoint_path(2)).state
    old, new = before["server"]["memory"], after["server"]["memory"]
    assert set(old) == {"0:FedAvgM", "1:Stc"}
    assert set(new) == {"1:FedAvgM", "3:Stc"}
    assert (new["1:FedAvgM"]["velocity"] == old["0:FedAvgM"]["velocity"]).all()
    for client, ledger in before["clients"]["ledgers"].items():
        residual = ledger["pending"]["memory"]["1:Stc"]["residual"]
        kept = after["clients"]["ledgers"][client]["pending"]["memory"]
        assert set(kept) == {"3:Stc"}
        assert (kept["3:Stc"]["residual"] == residual).all()


def test_the_memory_of_a_hook_that_goes_is_dropped_at_both_ends(parent: RunFolder) -> None:
    made = fork(parent, 2, ["logic.hooks=[fedadam]"])
    assert made.origin.dropped == ("FedAvgM", "Stc")
    after = read_checkpoint(made.folder.checkpoint_path(2)).state
    assert after["server"]["memory"] == {}
    for ledger in after["clients"]["ledgers"].values():
        assert ledger["pending"]["memory"] == {}
    text = "\n".join(made.origin.lines())
    assert "with their memory: FedAvgM, Stc." in text
    assert "without a memory: FedAdam." in text


def test_a_removed_client_leaves_no_memory(parent: RunFolder, tmp_path: Path) -> None:
    before = read_checkpoint(parent.checkpoint_path(2)).state
    gone = next(iter(before["clients"]["ledgers"]))
    after = read_checkpoint(fork(parent, 2, without=[gone]).folder.checkpoint_path(2)).state
    assert gone in before["server"]["last_accepted"]
    assert gone not in after["server"]["last_accepted"]
    assert set(after["clients"]["ledgers"]) == set(before["clients"]["ledgers"]) - {gone}
