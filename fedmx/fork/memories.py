"""The memories of a run's parts in its fork: what stays keeps them, what goes loses them.

A hook is found again by its class, and its n-th of a class by its number, since its place among the
hooks may be another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmx.server.step_back import StepsBack
from layers.logic import SELECT, SURVEY, Hook, Preset
from layers.logic.core.aggregator import AGGREGATE
from layers.logic.core.declaration import Trait
from layers.logic.core.mask import MASK
from layers.logic.core.state import EXCLUDED
from layers.logic.core.trainer import TRAINER
from layers.logic.round.hook_order import in_order, keyed

_OF_NO_PART = (EXCLUDED, TRAINER, MASK)


@dataclass(frozen=True)
class Memories:
    """Which memories of a run go on in its fork.

    Attributes:
        keys: the key in the fork of each memory that goes on, by its key in the run.
        names: the names of the run's parts, by the key of their memory.
        new: the names of the fork's parts that are not in the run, or not with these settings.
    """

    keys: Mapping[str, str]
    names: Mapping[str, str]
    new: tuple[str, ...]

    @classmethod
    def of(cls, before: Preset, after: Preset) -> Memories:
        """Return what goes on from the parts of a run to the parts of its fork."""
        keys = {key: key for key in _OF_NO_PART}
        names = {SELECT: _name(before.selector), SURVEY: f"answers to {_name(before.selector)}"}
        names[AGGREGATE] = _name(before.aggregator)
        new = []
        if _same(before.selector, after.selector):
            keys |= {SELECT: SELECT, SURVEY: SURVEY}
        else:
            new.append(_name(after.selector))
        if _same(before.aggregator, after.aggregator):
            keys[AGGREGATE] = AGGREGATE
        else:
            new.append(_name(after.aggregator))
        old = {which: (key, hook) for which, key, hook in _numbered(before.hooks)}
        names |= {key: _name(hook) for key, hook in old.values()}
        for which, key, hook in _numbered(after.hooks):
            earlier = old.get(which)
            if earlier is not None and _goes_on(earlier[1], hook):
                keys[earlier[0]] = key
            else:
                new.append(_name(hook))
        return cls(keys, names, tuple(new))

    def carried(self, memory: Mapping[str, Any]) -> dict[str, Any]:
        """Return the memories of one end, by key, that go on."""
        return {self.keys[key]: kept for key, kept in memory.items() if key in self.keys}

    def split(self, checkpoint: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the names of the parts whose memory goes on, and of those whose memory ends."""
        there = {key: None for memory in _memories_in(checkpoint) for key in memory}
        named = [key for key in self.names if key in there]
        kept = [self.names[key] for key in named if key in self.keys]
        return tuple(kept), tuple(self.names[key] for key in named if key not in self.keys)

    def checkpoint(self, before: Mapping[str, Any], without: Sequence[int]) -> dict[str, Any]:
        """Return the checkpoint that a fork begins with.

        Args:
            before: the run's checkpoint of the same round.
            without: the clients whose memory is not needed any more.
        """
        server, clients = before["server"], before["clients"]
        ledgers = {
            client: {name: self._state(state) for name, state in ledger.items()}
            for client, ledger in clients["ledgers"].items()
            if client not in without
        }
        accepted = {
            one: round for one, round in server["last_accepted"].items() if one not in without
        }
        memory = self.carried(server["memory"])
        steps_back = {**before.get("steps_back", StepsBack().tree()), "largest": {}}
        return {
            **before,
            "server": {**server, "memory": memory, "last_accepted": accepted},
            "clients": {**clients, "ledgers": ledgers},
            "reason": "",  # the run may have ended here
            "steps_back": steps_back,  # nor farther than to this state
        }

    def _state(self, state: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Return one of the memories of a client's ledger."""
        return None if state is None else {**state, "memory": self.carried(state["memory"])}


def _memories_in(checkpoint: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield checkpoint["server"]["memory"]
    for ledger in checkpoint["clients"]["ledgers"].values():
        yield from (state["memory"] for state in ledger.values() if state is not None)


def _numbered(hooks: Sequence[Hook]) -> Iterator[tuple[tuple[type, int], str, Hook]]:
    """Yield each hook with its class and its number in it, and the key of its memory."""
    seen: Counter[type] = Counter()
    for key, hook in keyed(in_order(hooks)).items():
        yield (type(hook), seen[type(hook)]), key, hook
        seen[type(hook)] += 1


def _goes_on(before: Hook, after: Hook) -> bool:
    return Trait.MEMORY_FITS in after.provides or _same(before, after)


def _same(before: object, after: object) -> bool:
    """Return whether two parts are of one class and have the same settings."""
    if type(before) is not type(after):
        return False
    return before == after or getattr(before, "__dict__", before) == getattr(after, "__dict__", 0)


def _name(part: object) -> str:
    return type(part).__name__
