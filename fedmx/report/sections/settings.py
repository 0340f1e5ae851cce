"""The sections about the experiment and about the versions and machines that ran it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedmx.report.figures.html import Child, Html, element, table, turned
from fedmx.report.records.groups import Group, seed_of
from fedmx.report.records.quantities import finite, percent
from fedmx.report.records.settings import table_of
from fedmx.report.records.summary import RunSummary

_NOT_SHOWN = ("network", "run")  # sections of an experiment that do not change its result


def experiment_section(
    runs: Sequence[RunSummary], labels: Sequence[str], groups: Sequence[Group]
) -> Html:
    """Return the settings: all of one run by section, or those that differ between several.

    If the groups are fewer than the runs, what differs is that between the groups.
    """
    rows = table_of([run.settings for run in runs])
    parts: list[Child] = [element("h2", "Experiment" if len(runs) == 1 else "Experiments")]
    if len(runs) == 1:
        sections: dict[str, list[list[Child]]] = {}
        for path, texts in rows:
            section, dot, rest = path.partition(".")
            sections.setdefault(section if dot else "", []).append([rest or path, *texts])
        shown = [(name, group) for name, group in sections.items() if name not in _NOT_SHOWN]
        parts.append(element("div", *(_group(*pair) for pair in shown), class_="columns"))
    else:
        differing = [(path, texts) for path, texts in rows if len(set(texts)) > 1]
        same: list[list[Child]] = [[path, texts[0]] for path, texts in rows if len(set(texts)) == 1]
        names: Sequence[Child] = labels
        if len(groups) < len(runs):
            names = [group.name for group in groups]
            paths = dict.fromkeys(path for group in groups for path in group.settings)
            differing = [(path, [group.settings[path] for group in groups]) for path in paths]
            seeds = [", ".join(seed_of(run) for run in group.runs) for group in groups]
            differing.append(("seed", seeds))
        if differing:
            parts.append(turned("differs", names, differing, "settings differs"))
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
    rows = [
        (path, texts)
        for path, texts in table_of([_told(run.facts) for run in runs])
        if path != "fork"  # a section of its own says it
    ]
    if len(runs) > 1:
        rows.insert(0, ("run folder", [run.name for run in runs]))
    parts: list[Child] = [element("h2", "Run on")]
    differing = [row for row in rows if len(runs) > 1 and len(set(row[1])) > 1]
    if differing:
        parts.append(turned("differs", labels, differing, "settings facts"))
    same: list[list[Child]] = [[path, texts[0]] for path, texts in rows if len(set(texts)) == 1]
    if same:
        parts.append(table(None, same, class_="settings"))
    return element("section", *parts)


def _told(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts as a reader wants them: a time without its letters, and no brackets."""
    told = dict(facts)
    started = str(facts.get("started", ""))
    if started.endswith("+00:00"):
        told["started"] = started[:19].replace("T", " ") + " UTC"
    chance = finite(facts.get("chance"))
    if chance is not None:
        told["chance"] = percent(chance)
    builds, code, shape = facts.get("builds"), facts.get("code"), facts.get("shape")
    if isinstance(builds, dict):
        told["builds"] = ", ".join(f"{name} {build}" for name, build in builds.items())
    if isinstance(code, dict):
        told["code"] = ", ".join(f"{file} {str(sha256)[:16]}" for file, sha256 in code.items())
        if not code:
            del told["code"]  # the run had none of the user's own
    if isinstance(shape, list):
        told["shape"] = " x ".join(map(str, shape))
    return told
