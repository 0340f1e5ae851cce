"""The report's page: the experiment, the results, the costs and the participants."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

from fedmx.output_file import check_output
from fedmx.report.comparison import Comparison
from fedmx.report.figures.html import Html, element, join
from fedmx.report.records.groups import Group
from fedmx.report.records.strata import strata_of
from fedmx.report.records.summary import RunSummary
from fedmx.report.records.timeline import timeline_of
from fedmx.report.records.verdict import verdict
from fedmx.report.sections.curves import curves_section
from fedmx.report.sections.fork import Branches, fork_section
from fedmx.report.sections.participation import participation_section
from fedmx.report.sections.results import cards, side_by_side, verdicts
from fedmx.report.sections.settings import experiment_section, facts_section
from fedmx.report.sections.strata import strata_section
from fedmx.report.sections.timeline import timeline_section
from fedmx.run import RunError, RunFolder
from fedmx.run.durable import write_text_durably
from fedmx.run.errors import cannot_write


def write_report(
    runs: Sequence[RunFolder],
    path: str | Path,
    target_accuracy: float | None = None,
    round: int | None = None,
) -> None:
    """Write one HTML file about one run, or about several side by side.

    The file loads nothing, so that it opens offline, and each text from a run is escaped.

    Args:
        runs: one run or more.
        path: the file to write.
        target_accuracy: the accuracy (0 to 1) to which rounds, bytes and time are counted, on all
            test samples and in the mean over clients. None: the lowest ``stop.accuracy`` and the
            lowest ``stop.client_accuracy`` of the experiments.
        round: the round whose timeline is drawn; None: one of median duration.

    Raises:
        RunError: a run cannot be read, no run has this round, or the file cannot be written.
        FedmxError: the file's name ends otherwise, or fedmx did not write the file that is there.
    """
    check_output(Path(path), "a report is HTML", (".html", ".htm"))
    write_page(Comparison.of(runs, target_accuracy), path, round)


def write_page(compared: Comparison, path: str | Path, round: int | None = None) -> None:
    """Write the page of runs that are compared; see `write_report`."""
    check_output(Path(path), "a report is HTML", (".html", ".htm"))
    details = _details(compared.folders, compared.runs, compared.names, round)
    text = render(compared, details)
    try:
        write_text_durably(Path(path), text)
    except OSError as error:
        raise RunError(cannot_write(Path(path), error, "the report")) from None


def render(compared: Comparison, details: Sequence[Html | None] = ()) -> str:
    """Return the page as text.

    Args:
        compared: one run or more.
        details: the sections about single runs.
    """
    runs, labels, groups = compared.runs, compared.names, compared.groups
    targets = (compared.target, compared.client_target)
    single = len(runs) == 1
    title = labels[0] if single else f"{len(runs)} runs side by side"
    branches = [Branches.of(*pair) for pair in zip(compared.folders, runs, strict=True)]
    sections = [
        _header(runs, title, groups, targets[0]),
        cards(runs[0], targets) if single else side_by_side(groups, targets),
        *(
            fork_section(one, None if single else run.name)
            for one, run in zip(branches, runs, strict=True)
        ),
        curves_section(groups, targets, branches[0] if single else None),
        *details,
        *(
            participation_section(run, None if single else label)
            for run, label in zip(runs, labels, strict=True)
        ),
        experiment_section(runs, labels, groups),
        facts_section(runs, labels),
        element(
            "footer",
            "Written by fedmx. 1 MiB is 1,048,576 bytes; bytes are those of the encoded frames.",
        ),
    ]
    here = files("fedmx.report")
    return Template((here / "page.html").read_text(encoding="utf-8")).substitute(
        title=join(f"fedmx: {title}"),
        style=(here / "style.css").read_text(encoding="utf-8"),
        body="\n".join(section for section in sections if section),
    )


def _details(
    runs: Sequence[RunFolder],
    summaries: Sequence[RunSummary],
    labels: Sequence[str],
    round: int | None,
) -> list[Html | None]:
    """Return the timeline and the clusters of each run, if it has them."""
    details: list[Html | None] = []
    problems: list[RunError] = []
    for run, summary, label in zip(runs, summaries, labels, strict=True):
        heading = label if len(runs) > 1 else None
        try:
            found = timeline_of(run, summary, round)
            if round is None and found is not None and found.one_machine:
                found = None  # times of this machine say nothing of clients
            details.append(timeline_section(found, heading))
        except RunError as error:  # one of several runs may have ended before this round
            problems.append(error)
        details.append(strata_section(strata_of(run, summary), run.experiment_yaml, heading))
    if len(problems) == len(runs):
        raise problems[0]
    return details


def _header(
    runs: Sequence[RunSummary], title: str, groups: Sequence[Group], target: float | None
) -> Html:
    lines = [element("h1", title)]
    if len(runs) == 1:
        run, found = runs[0], verdict(runs[0], target)
        lines.append(element("p", found.words, class_=f"verdict {found.kind}"))
        lines.append(element("p", _experiment_line(run), class_="quiet"))
        reason = f": {run.reason}" if run.reason else ""
        colour = "bad" if found.bad else run.status  # a run that came to nothing is not green
        lines.append(element("p", element("span", run.status, class_=f"status {colour}"), reason))
    else:
        lines.append(verdicts(groups, target))
    lines += [element("p", text, class_="failed") for run in runs for text in run.damage]
    return element("header", *lines)


def _experiment_line(run: RunSummary) -> str:
    """Return the experiment in one line."""
    settings = run.settings
    parts = [
        settings.get("compute.model"),
        settings.get("compute.data"),
        f"partition {settings['compute.partition']}" if "compute.partition" in settings else None,
        settings.get("logic.preset"),
        f"{settings['clients']} clients" if "clients" in settings else None,
        run.facts.get("mode"),
        f"seed {run.facts['seed']}" if "seed" in run.facts else None,
        f"started {str(run.facts.get('started', ''))[:16].replace('T', ' ')}",
    ]
    return " · ".join(str(part) for part in parts if part not in (None, ""))
