"""A report shows the records of a run, opens offline, and runs none of their texts."""

from __future__ import annotations

import base64
import hashlib
import io
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from fedmx import RunFolder
from fedmx.errors import FedmxError
from fedmx.quantities import OF_CLASSES
from fedmx.report import Comparison, write_report
from fedmx.report.curves import AXES, draw, measures_of
from fedmx.report.curves_section import curves_section
from fedmx.report.formats import duration, finite, mebibytes, number, percent, plain, target_percent
from fedmx.report.groups import Group, common_target, comparison
from fedmx.report.html import script
from fedmx.report.summary import Curve, RunSummary, read_settings, table_of
from fedmx.run import RunError
from fedmx.run.identity import Identity

MEASURES = measures_of([Curve(metrics=OF_CLASSES)])

EXPERIMENT = """
name: digits
seed: 1
rounds: 5
clients: 20
stop: {accuracy: 0.8}
compute:
  data: digits
  partition: {name: shards, per_client: 2}
  train: {learning_rate: 0.1}
logic: {preset: fedavg, hooks: []}
"""
EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)> & \" ' </style> [bold]\x1b[31m"
VOID = {"meta", "input", "wbr"}
PLAIN = set(
    re.findall(
        r"\w+",
        """html head title meta style script body main header section footer h1 h2 h3 p div span ul
        li pre figure figcaption table thead tbody tr th td details summary
        a strong button input label wbr svg g path defs use text clippath rect circle""",
    )
)


def record(number: int, accuracy: float | None = None, **more: Any) -> dict[str, Any]:
    return {
        "round": number,
        "accuracy": accuracy,
        "loss": None if accuracy is None else 1 - accuracy,
        "train_loss": 1 / number,
        "participants": [1, 2],
        "up_bytes": 2**20,
        "down_bytes": 2**20,
        "control_bytes": 100,
        "seconds": 2.0,
        "elapsed_s": 2.0 * number,
        **more,
    }


def make(
    parent: Path, records: list[dict[str, Any]], experiment: str = EXPERIMENT, name: str = "digits"
) -> RunFolder:
    folder = RunFolder.create(parent, name, experiment, {"seed": 1, "mode": "simulation"})
    for one in records:
        folder.append_round(one)
    return folder


def page_of(*runs: RunFolder, target: float | None = None) -> str:
    path = runs[0].path / "report.html"
    write_report(runs, path, target)
    return path.read_text(encoding="utf-8")


class Reader(HTMLParser):
    """Collects tags, attributes and text, and checks that every tag is closed in order."""

    def __init__(self, page: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def holds_only_a_page(page: str) -> Reader:
    reader = Reader(page)
    assert reader.tags <= PLAIN
    for name, value in reader.attributes:
        assert not name.startswith("on")
        assert name not in ("src", "srcset", "action")
        if name.endswith("href"):
            # A link to a figure as a file loads nothing, and its content is an image.
            assert (value or "").startswith(("#", "data:image/svg+xml;base64,"))
    styles = re.findall(r"<style[^>]*>(.*?)</style>", page, flags=re.DOTALL)
    assert not any("@import" in style or "url(" in style for style in styles)
    assert not re.search(r"https?://(?!www\.w3\.org/(2000/svg|1999/xlink)\")", page)
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    sha256 = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy.partition("; ")[0] == "default-src 'none'"
    assert f"; script-src 'sha256-{sha256}'" in policy, "the browser runs no other script"
    return reader


def test_a_report_is_one_file_that_loads_nothing(tmp_path: Path) -> None:
    page = page_of(make(tmp_path, [record(n, n / 10) for n in range(1, 6)]))
    assert "svg" in holds_only_a_page(page).tags
    assert page.count("<figure>") == 6


def test_the_script_is_short_and_makes_no_elements_from_texts() -> None:
    text = script()
    assert text.count("\n") <= 60
    makers = "innerHTML outerHTML insertAdjacent document.write eval Function("
    others = "fetch XMLHttp WebSocket import location cookie localStorage"
    assert [word for word in f"{makers} {others}".split() if word in text] == []


def test_texts_of_a_run_are_shown_and_never_run(tmp_path: Path) -> None:
    experiment = f"name: {EVIL[:-6]!r}\nrounds: 1\n".replace("\\'", "''").replace('\\"', '"')
    run = make(tmp_path, [record(1, 0.5)], experiment)
    run.facts["platform"] = EVIL
    run.append_clients(
        [
            {"round": 1, "client": EVIL, "status": "lost", "reason": EVIL, "traceback": EVIL},
            {"round": EVIL, "client": 2, "status": EVIL, "reason": EVIL, "samples": EVIL},
        ]
    )
    run.finish("failed", EVIL)
    other = make(tmp_path, [record(1, 0.5)], "rounds: 2\n")
    for page in (page_of(run), page_of(run, other)):
        assert EVIL in holds_only_a_page(page).text
    quoted = make(tmp_path, [record(1, 0.1), record(2, 0.2)], EXPERIMENT, EVIL)
    alike = [Group.alone(RunSummary.of(quoted), EVIL) for _ in range(2)]
    assert "<script" not in curves_section(alike, (None, None), None)


rubbish = (
    st.none()
    | st.booleans()
    | st.floats()
    | st.integers()
    | st.text(max_size=5)
    | st.lists(st.none())
)
FIELDS = ("round", "accuracy", "loss", "train_loss", "up_bytes", "seconds", "elapsed_s")
FIELDS += ("clock_s", "clock_elapsed_s", "virtual", "asked_s", "ended_s")
measured = st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, rubbish))


@pytest.mark.filterwarnings("error")
@settings(deadline=None, max_examples=15)
@given(records=st.lists(measured, max_size=3), experiment=st.text(max_size=40))
def test_any_records_and_any_experiment_text_give_a_page(
    tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, Any]], experiment: str
) -> None:
    run = make(tmp_path_factory.mktemp("any"), records, experiment)
    run.append_clients(records)
    holds_only_a_page(page_of(run))


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_a_run_with_few_rounds_has_a_report(tmp_path: Path, rounds: int) -> None:
    run = make(tmp_path, [record(n) for n in range(1, rounds + 1)])
    evaluated = make(tmp_path, [record(n, 0.5) for n in range(1, rounds + 1)])
    text = holds_only_a_page(page_of(run)).text
    assert f"{rounds} of 5" in text
    assert "interrupted: its process ended before the run did" in text
    holds_only_a_page(page_of(run, evaluated))


def test_the_results_are_totals_of_the_records(tmp_path: Path) -> None:
    accuracies = [0.5, None, 0.85, 0.9, 0.7]
    run = make(tmp_path, [record(n, a) for n, a in enumerate(accuracies, start=1)])
    run.finish("done")
    summary = RunSummary.of(run)
    rows = dict(comparison([summary], common_target([summary])))
    assert rows == {
        "Status": ["done"],
        "Rounds": ["5 of 5"],
        "Final accuracy": ["70.00 %"],
        "Best accuracy": ["90.00 % (round 4)"],
        "Final loss": ["0.3"],
        "Bytes up": ["5.00 MiB"],
        "Bytes down": ["5.00 MiB"],
        "Control bytes": ["0.0005 MiB"],
        "Machine time": ["10.0 s"],
        "To 80 %: rounds": ["3"],
        "To 80 %: bytes up and down": ["6.00 MiB"],
        "To 80 %: machine time": ["6.00 s"],
    }
    best = "Final accuracy70.00 %after round 5Best accuracy90.00 %round 4"
    assert best in Reader(page_of(run)).text


def test_bytes_are_compared_with_float32_in_each_direction(tmp_path: Path) -> None:
    run = make(tmp_path, [record(n, 0.5, tasks=4, updates=3, down_bytes=2**22) for n in (1, 2)])
    run.facts.update(parameters=5 * 2**20, buffers=2**20)  # 24 MiB a message
    old = make(tmp_path, [record(1, 0.5)])
    rows = dict(comparison([RunSummary.of(run), RunSummary.of(old)], None))
    assert rows["Up a round"] == ["1.00 MiB", "–"]
    assert rows["Up a round against float32"] == ["72 x smaller (float32: 72.00 MiB)", "–"]
    assert rows["Down a round"] == ["4.00 MiB", "–"]
    assert rows["Down a round against float32"] == ["24 x smaller (float32: 96.00 MiB)", "–"]


@pytest.mark.parametrize(
    ("up_bytes", "said"),
    [(4000, "as large as float32 ("), (4100, "as large"), (8000, "2 x larger than float32 (")],
)
def test_an_uncompressed_direction_is_marked(tmp_path: Path, up_bytes: int, said: str) -> None:
    run = make(tmp_path, [record(1, up_bytes=up_bytes, updates=1, tasks=1)])
    run.facts.update(parameters=1000, buffers=0)
    assert said in str(RunSummary.of(run).compression["up_bytes"])


def test_without_the_model_size_there_is_no_comparison_with_float32(tmp_path: Path) -> None:
    facts = {"parameters": 1000, "buffers": 0}
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {"updates": 2, "tasks": 2}),
        (facts, {}),
        (facts, {"updates": 0, "tasks": 0}),
        (facts, {"updates": "many", "tasks": None}),
        ({"parameters": "many", "buffers": 0}, {"updates": 2, "tasks": 2}),
    ]
    for known, counts in cases:
        run = make(tmp_path, [record(1, 0.5, **counts)])
        run.facts.update(known)
        summary = RunSummary.of(run)
        assert summary.compression == {}
        assert not any("float32" in label for label, _ in comparison([summary], None))
    assert "float32 (" not in Reader(page_of(run)).text


def test_seconds_add_up_when_no_elapsed_time_was_recorded(tmp_path: Path) -> None:
    run = make(tmp_path, [record(n, 0.5, elapsed_s=None) for n in (1, 2, 3)])
    assert [point.elapsed_s for point in RunSummary.of(run).points] == [2.0, 4.0, 6.0]


@pytest.mark.parametrize("target", [0.0, 95, -0.5, float("nan")])
def test_a_target_must_be_an_accuracy(tmp_path: Path, target: float) -> None:
    run = RunSummary.of(make(tmp_path, [record(1, 0.5)]))
    with pytest.raises(FedmxError, match="target: "):
        common_target([run], target)


def test_a_given_target_overrides_the_lowest_of_the_experiments(tmp_path: Path) -> None:
    texts = (EXPERIMENT, EXPERIMENT.replace("0.8", "0.6"), "rounds: 3\n")
    runs = [RunSummary.of(make(tmp_path, [record(1, 0.7)], text)) for text in texts]
    assert common_target(runs) == 0.6
    assert common_target(runs, 0.9) == 0.9
    assert common_target(runs[2:]) is None
    assert not any("To " in label for label, _ in comparison(runs[2:], None))
    assert dict(comparison(runs, 0.7))["To 70 %: rounds"] == ["1", "1", "1"]
    assert dict(comparison(runs, 0.9))["To 90 %: rounds"] == ["not yet"] * 3


def test_each_run_has_one_colour_in_all_figures(tmp_path: Path) -> None:
    runs = [make(tmp_path, [record(1, 0.1 * n), record(2, 0.2 * n)]) for n in (1, 2, 3)]
    summaries = [Group.alone(RunSummary.of(run), run.name) for run in runs]
    for measure in MEASURES[:2]:
        for axis in AXES[:3]:
            figure = draw(summaries, measure, axis, measure.level((0.8, None)))
            assert set(re.findall(r"stroke: var\(--run-(\d)\)", figure)) == {"0", "1", "2"}
            assert "#0102" not in figure
    text = Reader(page_of(*runs)).text
    assert all(run.name in text for run in runs)


def test_more_runs_than_colours_differ_in_their_dashes(tmp_path: Path) -> None:
    runs = [make(tmp_path, [record(1, 0.1), record(2, 0.2)]) for _ in range(9)]
    figure = draw([Group.alone(RunSummary.of(run), "") for run in runs], MEASURES[0], AXES[0])
    lines = re.findall(
        r'style="(fill: none; stroke[^"]*var\(--run-0\); stroke-width: 1.6[^"]*)"', figure
    )
    assert len(set(lines)) == 2


def test_exactly_the_settings_that_differ_are_marked(tmp_path: Path) -> None:
    other = EXPERIMENT.replace("learning_rate: 0.1", "learning_rate: 0.2").replace(
        "{name: shards, per_client: 2}", "iid"
    )
    rows = table_of([read_settings(EXPERIMENT), read_settings(other)])
    differing = {path: texts for path, texts in rows if len(set(texts)) > 1}
    assert differing == {
        "compute.partition": ["shards", "iid"],
        "compute.partition.per_client": ["2", "–"],
        "compute.train.learning_rate": ["0.1", "0.2"],
    }
    page = page_of(make(tmp_path, []), make(tmp_path, [], other))
    marked = page[page.index('class="settings differs"') :]
    marked = marked[: marked.index("</table>")]
    assert re.findall(r'<th scope="row">([^<]*)</th>', marked) == list(differing)
    assert "All settings are the same" in page_of(make(tmp_path, []), make(tmp_path, []))


def test_clients_with_most_failures_come_first_with_the_reason(tmp_path: Path) -> None:
    run = make(tmp_path, [record(1, 0.5)])
    accepted = {"status": "accepted", "samples": 60}
    run.append_clients(
        [{"round": n, "client": n % 20, **accepted, "liar": n == 2} for n in range(40)]
    )
    rejected = {"client": 7, "status": "rejected", "reason": "not finite"}
    run.append_clients(
        [{"round": n, **rejected} for n in range(1, 4)]
        + [{"round": 9, "client": 8, "status": "lost", "reason": "gone", "traceback": "at line 3"}]
    )
    people = RunSummary.of(run).participation
    assert [client.client for client in people.clients[:2]] == ["7", "8"]
    assert people.clients[0].times == {"accepted": 2, "rejected": 3, "lost": 0, "declined": 0}
    assert [(f.status, f.reason, f.times, f.round) for f in people.failures] == [
        ("rejected", "not finite", 3, "3"),
        ("lost", "gone", 1, "9"),
    ]
    text = Reader(page_of(run)).text
    for shown in ("not finite", "client 8, round 9", "at line 3"):
        assert shown in text
    assert "20 of 20 clients had accepted updates, 2 each (median 2)" in text
    assert "1 of the clients that were asked is a liar" in text
    assert "aggregator does not say" in text


def test_more_reasons_than_a_page_lists_are_counted_together(tmp_path: Path) -> None:
    run = make(tmp_path, [record(1, 0.5)])
    lost = {"round": 1, "status": "lost"}
    run.append_clients([{**lost, "client": n, "reason": f"reason {n}"} for n in range(60)])
    failures = RunSummary.of(run).participation.failures
    assert len(failures) < 60
    assert failures[0].reason == "other reasons"
    assert sum(one.times for one in failures) == 60


def test_the_same_run_gives_the_same_page(tmp_path: Path) -> None:
    run = make(tmp_path, [record(n, n / 10) for n in range(1, 4)])
    assert page_of(run) == page_of(run)


def test_a_failed_write_is_a_one_line_error(tmp_path: Path) -> None:
    run = make(tmp_path, [])
    with pytest.raises(RunError, match="report") as caught:
        write_report([run], tmp_path / "nowhere" / "report.html")
    assert "\n" not in str(caught.value)
    with pytest.raises(RunError, match="one run"):
        write_report([], tmp_path / "report.html")


def test_the_terminal_shows_the_same_figures_without_control_sequences(tmp_path: Path) -> None:
    run = make(tmp_path, [record(1, 0.5), record(2, 0.9)])
    run.finish("failed", EVIL)
    evil = RunFolder(run.path.rename(tmp_path / "x[bold]\x1b[31my"), EXPERIMENT, Identity({}))
    buffer = io.StringIO()
    Console(file=buffer, width=100, force_terminal=True, color_system=None).print(
        Comparison.of([evil]).text()
    )
    shown = buffer.getvalue()
    assert "x[bold]�[31my" in shown
    assert "\x1b[31m" not in shown
    for figure in ("90.00 % (round 2)", "2 of 5", "2.00 MiB", "4.00 s", "To 80 %: rounds"):
        assert figure in shown


def test_quantities_have_few_digits_and_their_unit() -> None:
    sizes = (0, 0.01, 0.9999, 1, 1.5, 99.99, 100, 150.25, 999.9, 1000, 12345)
    assert " ".join(mebibytes(n * 2**20).removesuffix(" MiB") for n in sizes) == (
        "0 0.0100 0.9999 1.00 1.50 99.99 100.0 150.2 999.9 1,000 12,345"
    )
    times_s = (0.123, 0.9994, 0.9996, 7.46, 9.994, 9.996, 59.9, 59.96, 723, 3599.9, 12000, 4e6)
    assert ", ".join(map(duration, times_s)) == (
        "0.123 s, 0.999 s, 1.00 s, 7.46 s, 9.99 s, 10.0 s, 59.9 s, 1 min 0 s, 12 min 3 s, "
        "1 h 0 min, 3 h 20 min, 1,111 h 7 min"
    )
    percents = (percent(0.98765), target_percent(0.98), target_percent(0.985))
    assert percents == ("98.77 %", "98 %", "98.5 %")
    assert " ".join(map(plain, (8.6667, 999.4, 999.6, 1234.5))) == "8.67 999 1,000 1,234"
    signed = (plain(0.5, 3, "+"), plain(-1234.0, 3, "+"), plain(1234.4, 4))
    assert signed == ("+0.5", "-1,234", "1234")
    assert {percent(None), mebibytes(None), duration(None), number(None)} == {"–"}
    assert [finite(one) for one in (9e99, -9e99, 0)] == [9e99, -9e99, 0.0]
    nothing = (1e100, -1e100, float("nan"), float("inf"), True, "1", None)
    assert {finite(one) for one in nothing} == {None}


def run_with_facts(parent: Path, seed: int = 1) -> RunFolder:
    facts = {"seed": seed, "mode": "simulation", "started": "2026-11-22T12:52:14+00:00"}
    folder = RunFolder.create(parent, "digits", EXPERIMENT, facts)
    folder.append_round(record(1, 0.5))
    return folder


def test_the_head_of_the_page_names_the_parts_that_replace_those_of_the_preset(tmp_path) -> None:
    text = """
logic: {preset: fedavg, aggregator: {name: krum, byzantine: 1}, trainer: ditto}
compute: {model: 2nn, loss: {name: focal}}
attack: {name: sign-flip, clients: 0.2}
"""
    folder = RunFolder.create(tmp_path, "parts", text, {"seed": 1})
    folder.append_round(record(1, 0.5))
    words = "fedavg · aggregator krum · trainer ditto · loss focal · attack sign-flip"
    assert words in page_of(folder)


def test_many_runs_have_a_row_each_with_facts(tmp_path: Path) -> None:
    page = page_of(*(run_with_facts(tmp_path / str(seed), seed) for seed in range(1, 7)))
    facts = page[page.index("<h2>Run on</h2>") :]
    assert facts[: facts.index("</thead>")].count(">run<") == 1
    assert ">differs<" not in facts


def test_what_a_run_ran_on_is_folded_with_a_button_that_only_a_script_shows(tmp_path: Path) -> None:
    page = page_of(run_with_facts(tmp_path))
    facts = page[page.index("<h2>Run on</h2>") :]
    folded = facts[: facts.index("</details>")]
    assert folded.startswith("<h2>Run on</h2><details><summary>")
    assert '<button type="button" class="copy" hidden="">' in folded
    assert ">mode</th><td>simulation<" in folded


@pytest.mark.parametrize(
    ("accuracies", "chances", "drawn"),
    [
        ((0.2, 0.9), [0.1], True),
        ((0.2, 0.9), [0.1, 0.1], True),
        ((0.2, 0.9), [0.1, 0.2], False),  # not of the same data
        ((0.8, 0.9), [0.1], False),  # so low that the curve would become flat
        ((0.2, 0.9), [None], False),
    ],
)
def test_chance_is_drawn_where_the_axis_nearly_reaches_it(
    tmp_path: Path, accuracies: tuple[float, ...], chances: list[float | None], drawn: bool
) -> None:
    runs = [make(tmp_path, [record(n, a) for n, a in enumerate(accuracies, 1)]) for _ in chances]
    for run, chance in zip(runs, chances, strict=True):
        run.facts["chance"] = chance
    groups = [Group.alone(RunSummary.of(run), "") for run in runs]
    assert ("chance, 10 %" in draw(groups, MEASURES[0], AXES[0])) == drawn
    assert "chance" not in draw(groups, MEASURES[1], AXES[0])


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            [(1, 1, "accepted"), (2, 0, "accepted"), (3, 1, "accepted"), (1, 5, "lost")],
            "2 of 20 clients had accepted updates, between 1 and 2 each (median 1.5)",
        ),
        ([(1, 3, "accepted")], "No update was rejected and no client was lost."),
        ([(1, 3, "rejected")], "clients had an accepted update."),
    ],
)
def test_a_page_says_how_many_updates_clients_had_and_whether_any_was_lost(
    tmp_path: Path, rows: list[tuple[int, int, str]], said: str
) -> None:
    folder = run_with_facts(tmp_path)
    folder.append_clients(
        {"round": round, "client": client, "status": status, "reason": "gone"}
        for round, client, status in rows
    )
    page = page_of(folder)
    assert said in page
    assert ("no client was lost" in page) == (len(rows) == 1 and rows[0][2] == "accepted")
    assert "between 0 and 0" not in page
