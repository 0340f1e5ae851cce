"""The page over all runs: the same facts as `fedmx runs`, whatever lies in the folder."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fedmx import Experiment, FedmxError, RunFolder
from fedmx.listing import page as listing
from fedmx.listing.page import renew_index, write_index
from fedmx.listing.rows import listed
from fedmx.report.html import policy
from fedmx.run.durable import write_document
from fedmx.run.identity import FORMAT
from tests.fedmx.command_line import fedmx
from tests.fedmx.recorded_runs import run_of

TREE = {
    "name": "small",
    "rounds": 3,
    "clients": 3,
    "compute": {"model": "2nn", "data": "digits", "normalise": {"scale": 16}},
}
EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)> & \" ' </style>"


def run(parent: Path, number: int, preset: str = "fedavg", **facts: object) -> RunFolder:
    """Return a run of three rounds; a later one has begun later."""
    tree = {**TREE, "seed": number, "logic": {"preset": preset}}
    started = f"2026-01-31T09:{number:02}:00+00:00"
    text = Experiment.from_dict(tree).to_yaml()
    made = RunFolder.create(parent, "small", text, {"started": started, **facts})
    made = RunFolder.open(made.path.rename(parent / f"run-{number}"))
    for round in (1, 2, 3):
        made.append_round({"round": round, "accuracy": 0.1 * number + 0.1 * round, "loss": 1.0})
    return made


class Cells(HTMLParser):
    """The texts of the cells of a page, row by row, and where its links lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)
        self.rows = [row for row in self.rows if row]

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append("")
        elif tag == "a":
            self.links.append(dict(attributes)["href"] or "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self.rows.append([])

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


def cells(folder: Path, output: Path | None = None) -> Cells:
    return Cells(write_index(folder, output).read_text("utf-8"))


def test_the_page_has_the_facts_that_the_command_prints(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    run(runs, 1).finish("done", "all 3 rounds were run")
    run(runs, 2, "fedprox").finish("failed", "the disk is full")
    run(runs, 3)
    said = json.loads(fedmx("runs", "runs", "--json", cwd=tmp_path).out)
    printed = fedmx("report", "--index", "runs", cwd=tmp_path)
    assert printed.out == "report: runs/index.html\n"
    head, *rows = Cells((runs / "index.html").read_text("utf-8")).rows[:4]
    for row, one in zip(rows, reversed(said), strict=True):  # the newest first
        found = dict(zip(head, row, strict=True))
        settings = {path.rpartition(".")[2]: text for path, text in one["settings"].items()}
        assert found["run"] == Path(one["run"]).name
        assert found["state"] == one["state"]
        assert found["round"] == f"{one['rounds_done']}/{one['rounds']}"
        assert found["best"] == f"{100 * one['best']:.2f} %"
        assert settings.items() <= found.items()
        assert found["why it ended"] == ("" if one["state"] == "done" else one["reason"])
    assert (runs / "index.html").read_text("utf-8").count("<path") == 3


def damaged(path: Path) -> None:
    (path / "run.json").write_text("{")


def foreign(path: Path) -> None:
    (path / "run.json").write_text('{"name": "of another program"}')


def without_experiment(path: Path) -> None:
    (path / "experiment.yaml").unlink()


def half_written(path: Path) -> None:
    (path / "rounds.jsonl").write_bytes((path / "rounds.jsonl").read_bytes()[:-20])


def hostile_facts(path: Path) -> None:
    facts = {"metrics": [{"key": "a", "colour": 1}], "started": ["x"], "seed": {}}
    write_document(path / "run.json", {"format": FORMAT, "facts": facts, "files": {}})


def half_of_a_pair(path: Path) -> None:
    facts = json.loads((path / "run.json").read_text())["facts"]
    document = {"format": FORMAT, "facts": {**facts, "started": "\ud800"}, "files": {}}
    write_document(path / "run.json", document)


def endless(path: Path) -> None:
    (path / "rounds.jsonl").unlink()
    (path / "rounds.jsonl").symlink_to("/dev/zero")


def no_sweep(path: Path) -> None:
    (path / "run.json").unlink()
    (path / "sweep.json").write_text("[]")


def binary(path: Path) -> None:
    for file in path.glob("*.json*"):
        file.write_bytes(bytes(range(256)))


@pytest.mark.parametrize(
    "spoil",
    [
        *(damaged, foreign, without_experiment, half_written, hostile_facts, no_sweep, binary),
        *(half_of_a_pair, endless),
    ],
)
def test_a_spoilt_folder_costs_one_row_and_not_the_page(
    spoil: Callable[[Path], None], tmp_path: Path
) -> None:
    whole, spoilt = run(tmp_path, 1), run(tmp_path, 2)
    whole.finish("done")
    spoil(spoilt.path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes.txt").touch()
    rows = {row[0]: row for row in cells(tmp_path).rows[1:]}
    assert rows.keys() == {"run-1", "run-2"}
    assert rows["run-1"][1] == "done"
    found = {one.path.name: one.row for one in listed(tmp_path)}["run-2"]
    assert rows["run-2"][1] == found["state"]
    assert "\n" not in str(found["reason"])


def test_a_name_that_is_not_utf8_is_in_the_page_and_its_link_leads_there(tmp_path: Path) -> None:
    folder = run(tmp_path, 1)
    evil = Path(os.fsdecode(os.fsencode(tmp_path) + b"/run-\xff"))
    folder.path.rename(evil)
    (evil / "report.html").touch()
    assert "run-%FF/report.html" in write_index(tmp_path).read_text("utf-8")


def test_a_pipe_at_the_place_of_the_page_is_refused(tmp_path: Path) -> None:
    run(tmp_path, 1)
    os.mkfifo(tmp_path / "index.html")
    with pytest.raises(FedmxError, match=r"index\.html"):
        write_index(tmp_path)


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    text = json.dumps({**TREE, "name": EVIL, "logic": {"preset": EVIL}})
    evil = RunFolder.create(tmp_path, "evil", text, {"started": EVIL, "mode": EVIL})
    evil.finish("failed", EVIL)
    name = tmp_path / "javascript:alert(1) <b> %2e &"
    evil.path.rename(name)
    (name / "report.html").touch()
    run(tmp_path, 1, "fedprox").path.rename(tmp_path / "small")
    page = write_index(tmp_path).read_text("utf-8")
    found = Cells(page)
    assert not found.tags & {"img", "b"}
    assert page.count("<script") == 1, "its own"
    assert EVIL in {cell for row in found.rows for cell in row}
    (link,) = found.links
    assert ":" not in link
    assert re.fullmatch(r"[\w./%-]+", link)
    assert name.name in {row[0] for row in found.rows}


def test_links_are_relative_to_the_page(tmp_path: Path) -> None:
    (run(tmp_path / "runs", 1).path / "report.html").touch()
    run(tmp_path / "runs", 2)
    (tmp_path / "pages").mkdir()
    assert cells(tmp_path / "runs").links == ["run-1/report.html"]
    (link,) = cells(tmp_path / "runs", tmp_path / "pages" / "all.html").links
    assert (tmp_path / "pages" / link).samefile(tmp_path / "runs" / "run-1" / "report.html")


def test_only_the_script_of_the_page_may_run(tmp_path: Path) -> None:
    run(tmp_path, 1)
    page = write_index(tmp_path).read_text("utf-8")
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    (allowed,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert unescape(allowed) == policy(script)
    assert len(script.splitlines()) <= 60
    makers = "innerHTML outerHTML insertAdjacent document.write eval Function("
    others = "fetch XMLHttp WebSocket import location cookie localStorage"
    assert [word for word in f"{makers} {others}".split() if word in script] == []
    assert "hidden" not in page[page.index("<tbody>") : page.index("</tbody>")], (
        "all rows are there"
    )


def test_a_run_that_ends_renews_the_page_if_there_is_one(tmp_path: Path) -> None:
    run_of(tmp_path / "none", rounds=1)
    assert not (tmp_path / "none" / "index.html").exists()
    first = run_of(tmp_path / "runs", rounds=1)
    write_index(tmp_path / "runs")
    second = run_of(tmp_path / "runs", rounds=1, seed=2)
    rows = Cells((tmp_path / "runs" / "index.html").read_text("utf-8")).rows[1:]
    assert {(row[0], row[1]) for row in rows} == {(one.name, "done") for one in (first, second)}


def test_a_page_that_cannot_be_renewed_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "index.html").write_text("a page of somebody else")
    renew_index(tmp_path)
    assert (tmp_path / "index.html").read_text() == "a page of somebody else"
    monkeypatch.setattr(listing, "write_index", lambda folder: os.stat(tmp_path / "none"))
    renew_index(tmp_path)
    assert [record.event for record in caplog.records] == ["index_not_written"] * 2  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("runs/run-1",), "run-1"),
        (("runs", "--target", "0.5"), "--target"),
        (("runs", "--csv", "a.csv"), "--csv"),
        (("runs", "other"), "other"),
        (("missing",), "missing"),
        (("runs", "-o", "a.txt"), "a.txt"),
    ],
)
def test_what_the_page_is_not_about_is_refused(
    words: tuple[str, ...], named: str, tmp_path: Path
) -> None:
    run(tmp_path / "runs", 1)
    result = fedmx("report", "--index", *words, cwd=tmp_path)
    assert result.code == 2
    assert named in result.error_text
    assert not list(tmp_path.rglob("index.html"))
