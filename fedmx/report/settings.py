"""The section of the page with the settings: those that a file gave first, defaults folded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from fedmx.components.component import Component
from fedmx.components.section import Section
from fedmx.components.text import dotted
from fedmx.experiment import Experiment
from fedmx.experiment.keys import keys_of
from fedmx.report.groups import Group
from fedmx.report.html import Child, Html, element, join, table, turned
from fedmx.report.summary import RunSummary, as_text, table_of

_NOT_SHOWN = ("network", "run")  # sections of an experiment that do not change its result
Row = tuple[str, str]
"""The path of a setting, and its text."""


@cache
def defaults() -> Mapping[str, str]:
    """Return the text of each setting that a file can leave out, by its path."""
    found = {}
    for place, key in keys_of(Experiment):
        value = None if key.field.is_required() else key.field.get_default()
        if key.field.is_required() or isinstance(value, Section):
            continue
        if isinstance(value, Component):
            value = value.name
        found[dotted(place)] = "none" if value == () else as_text(value)
    return found


def experiment_section(
    runs: Sequence[RunSummary],
    labels: Sequence[str],
    groups: Sequence[Group],
    *,
    files: bool = True,
) -> Html:
    """Return the settings of runs: those that differ, those that are not defaults, and the others.

    If there are fewer groups than runs, the groups are compared.

    Args:
        runs: the runs.
        labels: their names.
        groups: the groups of the runs.
        files: whether the files of the experiments are there, too.
    """
    rows = table_of([run.settings for run in runs])
    single = len(runs) == 1
    parts: list[Child] = [element("h2", "Experiment" if single else "Experiments")]
    same = [(path, texts[0]) for path, texts in rows if len(set(texts)) == 1]
    if not single:
        differing = [(path, texts) for path, texts in rows if len(set(texts)) > 1]
        names: Sequence[Child] = labels
        if len(groups) < len(runs):
            names = [group.name for group in groups]
            paths = dict.fromkeys(path for group in groups for path in group.settings)
            differing = [(path, [group.settings[path] for group in groups]) for path in paths]
            seeds = [", ".join(run.seed for run in group.runs) for group in groups]
            differing.append(("seed", seeds))
        if differing:
            parts.append(turned("differs", names, differing, "settings differs"))
        elif rows:
            parts.append(element("p", "All settings are the same."))
    shown = [row for row in same if row[0].partition(".")[0] not in _NOT_SHOWN]
    given = [(path, text) for path, text in shown if defaults().get(path) != text]
    left = [row for row in shown if row not in given]
    if given:
        parts.append(None if single else element("h3", "The same in all"))
        rows_given: list[list[Child]] = [[_breakable(path), text] for path, text in given]
        parts.append(table(None, rows_given, class_="settings"))
    if left:
        words = f"{len(left)} settings with their default values"
        if len(left) == 1:
            words = "1 setting with its default value"
        inner = element("div", *_by_section(left), class_="columns")
        parts.append(element("details", element("summary", words), inner))
    for run, label in zip(runs, labels, strict=True) if files else ():
        words = "experiment.yaml" if single else f"experiment.yaml of {label}"
        parts.append(
            element(
                "details", element("summary", words), element("pre", run.folder.experiment_yaml)
            )
        )
    return element("section", *parts)


def _breakable(path: str) -> Html:
    """Return a path that a narrow page breaks after its points."""
    first, *others = path.split(".")
    return join(first, *(join(".", element("wbr"), part) for part in others))


def _by_section(rows: Sequence[Row]) -> list[Html]:
    """Return a table for each section of an experiment."""
    sections: dict[str, list[list[Child]]] = {}
    for path, text in rows:
        section, dot, rest = path.partition(".")
        sections.setdefault(section if dot else "general", []).append([rest or path, text])
    return [
        element("div", element("h3", name), table(None, given, class_="settings"))
        for name, given in sections.items()
    ]
