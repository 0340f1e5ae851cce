"""The report's page: the experiment, the results, the costs and the participants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

from fedmx.report.figures.curves import AXES, BY_CLIENT, MEASURES, VIRTUAL_TIME, draw
from fedmx.report.figures.html import Child, Html, element, join, table
from fedmx.report.figures.svg import COLOURS
from fedmx.report.records.compression import Compression
from fedmx.report.records.quantities import duration, mebibytes, number, percent, target_percent
from fedmx.report.records.strata import strata_of
from fedmx.report.records.summary import (
    Point,
    RunSummary,
    common_client_target,
    common_target,
    comparison,
    summarise,
)
from fedmx.report.records.timeline import timeline_of
from fedmx.report.sections.participation import participation_section
from fedmx.report.sections.settings import experiment_section, facts_section
from fedmx.report.sections.strata import strata_section
from fedmx.report.sections.timeline import timeline_section
from fedmx.run import RunError, RunFolder
from fedmx.run.durable import write_text_durably

Targets = tuple[float | None, float | None]
"""Two accuracies to which rounds, bytes and time are counted: on all test samples, and the mean
over clients."""


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
    """
    if not runs:
        raise RunError("a report needs at least one run; give the folder of one")
    summaries = [summarise(run) for run in runs]
    if any(number > 1 for number in Counter(run.name for run in runs).values()):
        labels = [str(run.path) for run in runs]
    else:
        labels = [run.name for run in runs]
    targets = (
        common_target(summaries, target_accuracy),
        common_client_target(summaries, target_accuracy),
    )
    text = render(summaries, labels, targets, _details(runs, summaries, labels, round))
    try:
        write_text_durably(Path(path), text)
    except OSError as error:
        raise RunError(f"{path}: cannot write the report ({error.strerror})") from None


def render(
    runs: Sequence[RunSummary],
    labels: Sequence[str],
    targets: Targets,
    details: Sequence[Html | None] = (),
) -> str:
    """Return the page as text.

    Args:
        runs: one run or more.
        labels: the name of each run on the page.
        targets: see `Targets`.
        details: the sections about single runs.
    """
    single = len(runs) == 1
    title = labels[0] if single else f"{len(runs)} runs side by side"
    sections = [
        _header(runs, title),
        _cards(runs[0], targets) if single else _side_by_side(runs, labels, targets),
        _figures(runs, labels, targets),
        *details,
        *(
            participation_section(run, None if single else label)
            for run, label in zip(runs, labels, strict=True)
        ),
        experiment_section(runs, labels),
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
            details.append(timeline_section(timeline_of(run, summary, round), heading))
        except RunError as error:  # one of several runs may have ended before this round
            problems.append(error)
        details.append(strata_section(strata_of(run, summary), run.experiment_yaml, heading))
    if len(problems) == len(runs):
        raise problems[0]
    return details


def _header(runs: Sequence[RunSummary], title: str) -> Html:
    lines = [element("h1", title)]
    if len(runs) == 1:
        run = runs[0]
        lines.append(element("p", _experiment_line(run), class_="quiet"))
        reason = f": {run.reason}" if run.reason else ""
        lines.append(
            element("p", element("span", run.status, class_=f"status {run.status}"), reason)
        )
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


def _cards(run: RunSummary, targets: Targets) -> Html:
    final, best, by_client = run.final(), run.best(), run.final_by_client()
    target, client_target = targets
    rows = dict(comparison([run], *targets))
    cards = [
        _card(
            "Final accuracy",
            percent(final.accuracy if final else None),
            f"after round {final.round}" if final else None,
        ),
        _card(
            "Best accuracy",
            percent(best.accuracy if best else None),
            f"round {best.round}" if best else None,
        ),
        _card("Final loss", number(run.final_loss())),
        _card("Rounds", rows["Rounds"][0]),
        _card("Bytes up", mebibytes(run.up_bytes), _direction_text("clients to server", run.up)),
        _card(
            "Bytes down", mebibytes(run.down_bytes), _direction_text("server to clients", run.down)
        ),
        _card("Control bytes", mebibytes(run.control_bytes)),
        _card("Time", duration(run.seconds), _time_per_round(run)),
    ]
    if run.file_bytes:
        cards.insert(7, _card("File bytes", mebibytes(run.file_bytes), "assets, both ways"))
    if run.virtual:
        per_round = duration((run.virtual_s or 0.0) / len(run.points))
        cards.append(_card("Virtual time", duration(run.virtual_s), f"{per_round} a round"))
    if by_client is not None:
        spread = f"mean over clients; variance {number(by_client.client_variance)}"
        card = _card("Final accuracy by client", percent(by_client.client_accuracy), spread)
        cards.insert(2, card)
    if target is not None:
        cards.append(_target_card(f"To {target_percent(target)}", run.reached(target)))
    if client_target is not None:
        label = f"To {target_percent(client_target)}, mean over clients"
        cards.append(_target_card(label, run.reached_by_clients(client_target)))
    return element("section", element("h2", "Results"), element("div", *cards, class_="cards"))


def _target_card(label: str, point: Point | None) -> Html:
    if point is None:
        return _card(label, "not reached")
    time = f"{duration(point.virtual_s)} virtual" if point.virtual else duration(point.time_s)
    used = ", ".join(size.replace(" ", "\u00a0") for size in (mebibytes(point.bytes), time))
    return _card(label, f"round {point.round}", used)


def _direction_text(direction: str, compression: Compression | None) -> str:
    return direction if compression is None else f"{direction}; {compression}"


def _time_per_round(run: RunSummary) -> str | None:
    return f"{duration((run.seconds or 0) / len(run.points))} a round" if run.points else None


def _card(label: str, value: str, more: str | None = None) -> Html:
    return element(
        "div",
        element("div", label, class_="label"),
        element("div", value, class_="value"),
        element("div", more, class_="more") if more else None,
        class_="card",
    )


def _side_by_side(runs: Sequence[RunSummary], labels: Sequence[str], targets: Targets) -> Html:
    head: list[Child] = ["", *(join(_swatch(i), label) for i, label in enumerate(labels))]
    rows: list[list[Child]] = [[label, *cells] for label, cells in comparison(runs, *targets)]
    if any(run.reason for run in runs):
        reasons = [element("div", run.reason, class_="wrap") for run in runs]
        rows.insert(1, ["Why it ended", *reasons])
    return element("section", element("h2", "Results"), table(head, rows, class_="numbers"))


def _swatch(index: int, kind: str = "swatch") -> Html:
    return element("span", class_=kind, style=f"border-color: var(--run-{index % COLOURS})")


def _figures(runs: Sequence[RunSummary], labels: Sequence[str], targets: Targets) -> Html:
    target, client_target = targets
    parts = []
    for axis in (*AXES, VIRTUAL_TIME):
        for measure in (*MEASURES, BY_CLIENT):
            svg = draw(runs, measure, axis, client_target if measure is BY_CLIENT else target)
            if svg is not None:
                caption = element("figcaption", f"{measure.name} against {axis.name}")
                parts.append(element("figure", caption, svg))
    if not parts:
        text = "No round has been evaluated yet, so there is nothing to draw."
        return element("section", element("h2", "Curves"), element("p", text, class_="quiet"))
    if len(runs) > 1:
        keys = [join(_swatch(index), label) for index, label in enumerate(labels)]
    else:
        keys = [join(_swatch(0), "test data")]
    if any(point.train_loss is not None for run in runs for point in run.points):
        keys.append(join(_swatch(0, "swatch faint"), "training loss, mean over participants"))
    if any(run.final_by_client() for run in runs):
        keys.append(join("shaded: one standard deviation over the clients"))
    drawn = dict.fromkeys(target_percent(one) for one in targets if one is not None)
    if drawn:
        keys.append(join(f"dashed: target, {' and '.join(drawn)}"))
    legend = element("ul", *(element("li", key) for key in keys), class_="legend")
    grid = element("div", *parts, class_="figures")
    return element("section", element("h2", "Curves"), legend, grid)
