"""The report's page: the experiment, the results, the costs and the participants."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedmx.components.engines import ENGINES
from fedmx.output_file import check_output
from fedmx.report.by_class import classes_section
from fedmx.report.comparison import Comparison
from fedmx.report.curves_section import curves_section
from fedmx.report.differences import differences_section, verdict_on_pairs
from fedmx.report.fork import Branches, fork_section
from fedmx.report.formats import finite, percent
from fedmx.report.grid import grid_section
from fedmx.report.html import Child, Html, document, element, script, table, turned
from fedmx.report.over_clients import over_clients_section
from fedmx.report.participation import participation_section
from fedmx.report.results import cards, side_by_side, verdict, verdicts
from fedmx.report.settings import experiment_section
from fedmx.report.staleness import staleness_section
from fedmx.report.strata import strata_section
from fedmx.report.summary import RunSummary, table_of
from fedmx.report.timeline import timeline_of, timeline_section
from fedmx.run import RunError, RunFolder
from fedmx.run.durable import cannot_write, write_text_durably

RELOADED_S = 10
_MOST_DETAILED = 12  # runs on a page with their timelines and clients; each has a page of its own
_MOST_UNFOLDED = 2  # of a page with more runs, each one's details are folded


def write_report(
    runs: Sequence[RunFolder],
    path: str | Path,
    target: float | None = None,
    round: int | None = None,
) -> None:
    """Write one HTML file about one run, or about several side by side.

    The file loads nothing, so it opens offline. Each text from a run is escaped.

    Args:
        runs: one run or more.
        path: the file to write.
        target: the value to which rounds, bytes and time are counted; see `Comparison.of`.
        round: the round whose timeline is drawn; None: one of median duration.

    Raises:
        RunError: a run cannot be read, no run has this round, or the file cannot be written.
        FedmxError: the name has another ending, or the file exists and is not fedmx's.
    """
    check_output(Path(path), "a report is HTML", (".html", ".htm"))
    write_page(Comparison.of(runs, target), path, round)


def write_page(compared: Comparison, path: str | Path, round: int | None = None) -> None:
    """Write the page of a comparison; see `write_report`.

    The page in the folder of a run that goes on is written again and again, and reloads itself.
    """
    check_output(Path(path), "a report is HTML", (".html", ".htm"))
    run = compared.runs[0]
    live = len(compared.runs) == 1 and run.status == "running"
    live = live and Path(path).absolute() == run.folder.report_path.absolute()
    text = _render(compared, round, live=live)
    try:
        write_text_durably(Path(path), text)
    except OSError as error:
        raise RunError(cannot_write(Path(path), error, "the report")) from None


def _render(compared: Comparison, round: int | None, *, live: bool) -> str:
    runs, labels, groups = compared.runs, compared.names, compared.groups
    targets = (compared.target, compared.client_target)
    single = len(runs) == 1
    title = compared.title or (labels[0] if single else f"{len(runs)} runs side by side")
    detailed = len(runs) <= _MOST_DETAILED
    branches = [Branches.of(run) for run in runs]
    sections = [
        _header(compared, title),
        element("p", _live_line(), class_="quiet") if live else None,
        grid_section(compared.grid),
        cards(runs[0], targets) if single else side_by_side(groups, targets),
        differences_section(groups, compared.pairs, targets[0]),
        *(
            fork_section(one, None if single else run.folder.name)
            for one, run in zip(branches, runs, strict=True)
        ),
        curves_section(groups, targets, branches[0] if single else None),
        *(_of_each(runs, labels, round) if detailed or round is not None else ()),
        experiment_section(runs, labels, groups, files=detailed),
        facts_section(runs, labels),
        element(
            "footer",
            "Written by fedmx. 1 MiB is 1,048,576 bytes; bytes are those of the encoded frames.",
        ),
    ]
    body = "\n".join(section for section in sections if section)
    return document(title, body, RELOADED_S if live else None, script())


def _of_each(runs: Sequence[RunSummary], labels: Sequence[str], round: int | None) -> list[Html]:
    """Return the timeline, the classes, the clients and so on of each run, if it has them.

    Those of many runs are folded.
    """
    # Not at the top: a command without figures does not need matplotlib.
    from fedmx.report.partition_figure import partition_section

    found: list[Html] = []
    problems: list[RunError] = []
    several, unfolded = len(runs) > 1, len(runs) <= _MOST_UNFOLDED or round is not None
    for run, label in zip(runs, labels, strict=True):
        heading = label if several else None
        parts: list[Html | None] = []
        try:
            parts.append(timeline_section(timeline_of(run, round), heading))
        except RunError as error:  # one of several runs may have ended before this round
            problems.append(error)
        parts += [classes_section(run, heading), over_clients_section(run, heading)]
        parts += [staleness_section(run, heading), strata_section(run, heading)]
        if not several:
            parts.append(partition_section(run))
        if len(runs) <= _MOST_DETAILED:
            clients = run.settings.get("clients")
            parts.append(participation_section(run.participation, clients, heading))
        if not several:
            found += filter(None, parts)
        elif any(parts):
            open_ = "" if unfolded else None
            found.append(element("details", element("summary", label), *parts, open=open_))
    if len(problems) == len(runs):
        raise problems[0]
    return [element("section", element("h2", "Run by run"), *found)] if several and found else found


def _header(compared: Comparison, title: str) -> Html:
    runs, target = compared.runs, compared.target
    lines: list[Child] = [element("h1", title)]
    if len(runs) == 1:
        run, found = runs[0], verdict(runs[0], target)
        lines.append(element("p", found.words, class_=f"verdict {found.kind}"))
        lines.append(element("p", _experiment_line(run), class_="quiet"))
        reason = f": {run.reason}" if run.reason else ""
        colour = "bad" if found.bad else run.status  # a useless model is not green
        lines.append(element("p", element("span", run.status, class_=f"status {colour}"), reason))
    else:
        lines.append(verdict_on_pairs(compared.pairs, runs[0].metric))
        lines += [element("p", f"{text[:1].upper()}{text[1:]}.") for text in compared.notes]
        lines.append(verdicts(compared.groups, target))
    lines += [element("p", text, class_="failed") for run in runs for text in run.folder.damage]
    return element("header", *lines)


def _live_line() -> str:
    now = datetime.datetime.now(datetime.timezone.utc)
    return (
        f"Written at {now:%Y-%m-%d %H:%M:%S} UTC. "
        f"This page reloads itself every {RELOADED_S} s until the run ends."
    )


def _experiment_line(run: RunSummary) -> str:
    """Return the experiment in one line."""
    settings, facts = run.settings, run.folder.facts
    named = (
        "logic.selector",
        "logic.aggregator",
        "logic.trainer",
        "compute.loss",
        "attack",
        "privacy",
    )
    parts = [
        settings.get("compute.model"),
        settings.get("compute.data"),
        f"partition {settings['compute.partition']}" if "compute.partition" in settings else None,
        settings.get("logic.preset"),
        *(f"{path.split('.')[-1]} {one}" for path in named if (one := settings.get(path))),
        f"{settings['clients']} clients" if "clients" in settings else None,
        facts.get("mode"),
        f"seed {facts['seed']}" if "seed" in facts else None,
        f"started {str(facts.get('started', ''))[:16].replace('T', ' ')}",
    ]
    return " · ".join(str(part) for part in parts if part not in (None, ""))


def facts_section(runs: Sequence[RunSummary], labels: Sequence[str]) -> Html:
    """Return versions, seed, platform and the other facts of each run."""
    rows = [
        (path, texts)
        for path, texts in table_of([_fact_texts(run.folder.facts) for run in runs])
        if path != "fork"  # it has its own section
    ]
    if len(runs) > 1:
        rows.insert(0, ("run folder", [run.folder.name for run in runs]))
    parts: list[Child] = [element("h2", "Run on")]
    differing = [row for row in rows if len(runs) > 1 and len(set(row[1])) > 1]
    if differing:
        parts.append(turned("differs", labels, differing, "settings facts"))
    same: list[list[Child]] = [[path, texts[0]] for path, texts in rows if len(set(texts)) == 1]
    if same:
        copy = element("button", "copy", type="button", class_="copy", hidden="")
        parts.append(
            element(
                "details",
                element("summary", _versions(dict(rows))),
                copy,
                table(None, same, class_="settings"),
            )
        )
    return element("section", *parts)


def _versions(rows: Mapping[str, Sequence[str]]) -> str:
    """Return the versions that all runs share, and how many facts there are."""
    names = ("fedmx", *ENGINES, "python", "cpu")
    shared = [f"{name} {rows[name][0]}" for name in names if len(set(rows.get(name, ()))) == 1]
    return ", ".join([*shared, f"{len(rows)} facts"])


def _fact_texts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts for readers: no random id, no letters in a time, no brackets."""
    texts = {key: value for key, value in facts.items() if key != "run"}
    started = str(facts.get("started", ""))
    if started.endswith("+00:00"):
        texts["started"] = started[:19].replace("T", " ") + " UTC"
    chance = finite(facts.get("chance"))
    if chance is not None:
        texts["chance"] = percent(chance)
    builds, code, shape = facts.get("builds"), facts.get("code"), facts.get("shape")
    if isinstance(builds, dict):
        texts["builds"] = ", ".join(f"{name} {build}" for name, build in builds.items())
    variables = facts.get("variables")
    if isinstance(variables, dict):
        texts["variables"] = ", ".join(f"{name} {value}" for name, value in variables.items())
    if isinstance(code, dict):
        texts["code"] = ", ".join(f"{file} {str(sha256)[:16]}" for file, sha256 in code.items())
        if not code:
            del texts["code"]  # the run used no code of the user
    if isinstance(shape, list):
        texts["shape"] = " x ".join(map(str, shape))
    return texts
