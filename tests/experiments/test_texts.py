"""Figures in the page's texts come from the records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.experiments.made_records import record


@pytest.fixture(autouse=True)
def _kept(monkeypatch: pytest.MonkeyPatch) -> None:
    import texts

    ended = "accuracy 0.99 reached 0.97"
    kept = {
        "B10-s1": record(accuracy=[0.25, 0.75, 0.5, 0.97]),
        "B10-s2": record(accuracy=[0.25, 0.98]),
        "B10-s3": record(accuracy=[0.125]),
        "B50-s1": replace(record(accuracy=[0.5, 0.99]), reason=ended),
    }
    monkeypatch.setattr(texts, "load", lambda group: kept if group == "thesis-2nn-draws" else {})


@pytest.mark.parametrize(
    ("figure", "text"),
    [
        ("{B10 best accuracy %}", "97.00"),  # the median
        ("{B10 best accuracy %:0}", "97"),
        ("{each B10 best accuracy %:1}", "97.0, 98.0 and 12.5"),
        ("{range B10 best accuracy %:1}", "12.5 to 98.0"),
        ("{least B10 best accuracy %:1}", "12.5"),
        ("{greatest B10 best accuracy %:1}", "98.0"),
        ("{range B50 best accuracy %}", "99.00"),
        ("{each B50 best accuracy %}", "99.00"),
        ("{each B10 first accuracy rounds 97}", "4 and 2"),  # those that reach it
        ("{B10 first accuracy rounds 99}", "not reached"),
        ("{B10-s2 first accuracy epochs*0.05:2 97}", "0.10"),
        ("{B10-s1 first accuracy steps*6000 97}", "24,000"),
        ("{B10-s1 last@2 accuracy %}, {B10-s1 least@-2 accuracy %}", "75.00, 50.00"),
        ("{B10-s1 best_at accuracy rounds}", "4"),
        ("{B10-s1 rounds} rounds", "4 rounds"),
        ("{range B*0 first accuracy rounds 97}", "2 to 4"),
        ("{thesis-2nn-draws/B10-s3 last accuracy %}", "12.50"),
        ("{thesis-2nn-cohorts/B10-C0 last accuracy %}", "not run"),
        ("no figure", "no figure"),
    ],
)
def test_a_figure_in_braces_is_computed(figure: str, text: str) -> None:
    from texts import Figures

    assert Figures("thesis-2nn-draws").fill(figure) == text


def test_a_figure_that_may_change_says_how_far_its_run_is() -> None:
    from texts import Figures

    figures = Figures("thesis-2nn-draws", progress=True)
    text = figures.fill(
        "{B10-s1 last accuracy %}, {B10-s1 last@4 accuracy %}, {B50 last accuracy %}"
    )
    planned = next(iter(figures.runs)).experiment().rounds
    assert text == f"97.00 (in 4 of {planned:,} rounds), 97.00, 99.00"
    names = [(cell.name, kept is not None) for cell, kept in figures.runs.items()]
    assert names[:2] == [("B10-s1", True), ("B50-s1", True)]
    assert not any(is_kept for _, is_kept in names[2:])


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("it has {B20 best accuracy %}", "has no cell B20"),
        ("it has {B10 best}", r"no figure: \{B10 best\}"),
        ("it has {B10 best accuracy", "no figure"),
    ],
)
def test_a_brace_that_is_no_figure_is_refused(text: str, what: str) -> None:
    from texts import Figures

    with pytest.raises(AssertionError, match=what):
        Figures("thesis-2nn-draws").fill(text)


@pytest.mark.parametrize("pattern", ["scaffold", "scaffold-s1"])
def test_a_cell_is_not_taken_for_one_whose_name_begins_alike(pattern: str) -> None:
    from cells import matching

    names = [cell.name for cell in matching("fedaim-fashion", pattern)]
    assert names == ["scaffold-s1"]  # not those of scaffold-step
