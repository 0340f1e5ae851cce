"""The sections about the experiment and about the versions and machines that ran it."""

from __future__ import annotations

from collections.abc import Sequence

from fedmx.report.figures.html import Child, Html, element, table
from fedmx.report.records.settings import table_of
from fedmx.report.records.summary import RunSummary

_NOT_SHOWN = ("network", "run")  # sections of an experiment that do not change its result


def experiment_section(runs: Sequence[RunSummary], labels: Sequence[str]) -> Html:
    """Return the settings: all of one run by section, or those that differ between several."""
    rows = table_of([run.settings for run in runs])
    parts: list[Child] = [element("h2", "Experiment" if len(runs) == 1 else "Experiments")]
    if len(runs) == 1:
        groups: dict[str, list[list[Child]]] = {}
        for path, texts in rows:
            section, dot, rest = path.partition(".")
            groups.setdefault(section if dot else "", []).append([rest or path, *texts])
        shown = [(name, group) for name, group in groups.items() if name not in _NOT_SHOWN]
        parts.append(element("div", *(_group(*pair) for pair in shown), class_="columns"))
    else:
        differing: list[list[Child]] = [
            [path, *texts] for path, texts in rows if len(set(texts)) > 1
        ]
        same: list[list[Child]] = [[path, texts[0]] for path, texts in rows if len(set(texts)) == 1]
        if differing:
            heads: list[Child] = ["differs", *labels]
            parts.append(table(heads, differing, class_="settings differs"))
        elif rows:
            parts.append(element("p", "All settings are the same."))
        if same:
            inner = table(None, same, class_="settings")
            words = f"{len(same)} settings that are the same"
            parts.append(element("details", element("summary", words), inner))
    for run, label in zip(runs, labels, strict=True):
        words = "experiment.yaml" if len(runs) == 1 else f"experiment.yaml of {label}"
        parts.append(
            element("details", element("summary", words), element("pre", run.experiment_yaml))
        )
    return element("section", *parts)


def _group(name: str, rows: list[list[Child]]) -> Html:
    return element("div", element("h3", name or "general"), table(None, rows, class_="settings"))


def facts_section(runs: Sequence[RunSummary], labels: Sequence[str]) -> Html:
    """Return versions, seed, platform and the other facts of each run."""
    rows: list[list[Child]] = [
        [path, *texts] for path, texts in table_of([run.facts for run in runs])
    ]
    head: list[Child] | None = None if len(runs) == 1 else ["", *labels]
    return element("section", element("h2", "Run on"), table(head, rows, class_="settings"))
