"""Runs that differ in nothing but their seed, as one group with a short name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from fedmx.report.records.settings import ABSENT, as_text
from fedmx.report.records.summary import RunSummary

_OWN = ("name", "seed")
_SAME_RESULT = ("executor", "run")  # sections that do not change a result
_FIRST = "logic"  # what is compared most often comes first in a name
_LONGEST_WORD = 40


@dataclass(frozen=True)
class Group:
    """Runs of one experiment with different seeds, or one run.

    Attributes:
        name: what tells the group from the others.
        runs: at least one.
        settings: those in which the groups differ, by path, as texts.
    """

    name: str
    runs: tuple[RunSummary, ...]
    settings: Mapping[str, str]

    @classmethod
    def alone(cls, run: RunSummary, name: str) -> Group:
        """Return a group of one run."""
        return cls(name, (run,), {})

    @property
    def title(self) -> str:
        """The name, and how many seeds if there are several."""
        return self.name if len(self.runs) == 1 else f"{self.name} ({len(self.runs)} seeds)"

    @property
    def names(self) -> list[str]:
        """A name for each run."""
        if len(self.runs) == 1:
            return [self.name]
        return [f"{self.name}, seed {seed_of(run)}" for run in self.runs]


def grouped(runs: Sequence[RunSummary], labels: Sequence[str]) -> list[Group]:
    """Return the runs by the settings that differ, in the order of the first of each group.

    A name has only what differs. Where one seed was run twice with the same settings, each run
    stands for itself, with its label.

    Args:
        runs: one run or more.
        labels: a name for each, all different.
    """
    together: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for index, run in enumerate(runs):
        together.setdefault(tuple(sorted(_deciding(run).items())), []).append(index)
    parts: list[list[int]] = []
    for members in together.values():
        seeds = [seed_of(runs[index]) for index in members]
        parts += [members] if len(set(seeds)) == len(seeds) else [[index] for index in members]
    differing = _differing([_deciding(runs[part[0]]) for part in parts])
    names = _names(differing, [labels[part[0]] for part in parts])
    return [
        Group(name, tuple(runs[index] for index in part), settings)
        for name, part, settings in zip(names, parts, differing, strict=True)
    ]


def seed_of(run: RunSummary) -> str:
    """Return the seed of a run as a text."""
    return as_text(run.settings.get("seed", run.facts.get("seed", ABSENT)))


def _deciding(run: RunSummary) -> dict[str, str]:
    """Return what decides a result: settings, the user's own code, and that a run is a fork."""
    found = {
        path: as_text(value)
        for path, value in run.settings.items()
        if path not in _OWN and path.partition(".")[0] not in _SAME_RESULT
    }
    if isinstance(run.facts.get("fork"), dict):
        found["fork"] = "fork"  # its first rounds are another run's
    if isinstance(code := run.facts.get("code"), dict):
        found |= {f"code {file}": str(sha256)[:8] for file, sha256 in code.items()}
    return found


def _differing(settings: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Return only the settings that are not the same in all."""
    paths = dict.fromkeys(path for one in settings for path in one)
    paths = {p: None for p in paths if len({one.get(p, ABSENT) for one in settings}) > 1}
    return [{path: one.get(path, ABSENT) for path in paths} for one in settings]


def _names(differing: Sequence[Mapping[str, str]], labels: Sequence[str]) -> list[str]:
    """Return names that are as short as they can be and all different."""
    paths = sorted(differing[0], key=lambda path: path.partition(".")[0] != _FIRST)
    told = _told_apart(differing, [])
    needed: list[str] = []
    for path in paths:
        if _told_apart(differing, [*needed, path]) > told:
            needed.append(path)
            told = _told_apart(differing, needed)
    names = [", ".join(filter(None, (_word(p, one[p]) for p in needed))) for one in differing]
    if not needed:
        return list(labels)
    times = Counter(names)
    return [
        f"{name} ({label})" if name and times[name] > 1 else name or label
        for name, label in zip(names, labels, strict=True)
    ]


def _told_apart(differing: Sequence[Mapping[str, str]], paths: Sequence[str]) -> int:
    return len({tuple(one[path] for path in paths) for one in differing})


def _word(path: str, value: str) -> str:
    """Return one setting in a name: ``fedprox``, ``mu 0.1``; nothing if it is not there."""
    if value == ABSENT:
        return ""
    key = path.rpartition(".")[2]
    if value == "null":
        return f"no {key}"
    if "/" in value:
        value = PurePath(value).name or value
    if len(value) > _LONGEST_WORD:
        value = f"{value[: _LONGEST_WORD // 2]}…{value[-_LONGEST_WORD // 2 :]}"
    plain = value not in ("true", "false") and not _is_number(value)
    return value if plain else f"{key} {value}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
