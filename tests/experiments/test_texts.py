"""Numbers in the page's texts come from the records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.experiments.made_records import record


@pytest.fixture(autouse=True)
def _kept(monkeypatch: pytest.MonkeyPatch) -> None:
    import texts

    ended = "accuracy 0.989 reached 0.97"
    kept = {
        "B10-s1": record(accuracy=[0.25, 0.75, 0.5, 0.97]),
        "B10-s2": record(accuracy=[0.25, 0.98]),
        "B10-s3": record(accuracy=[0.125]),
        "B50-s1": replace(record(accuracy=[0.5, 0.989]), reason=ended),
    }
    monkeypatch.setattr(texts, "load", lambda group: kept if group == "thesis-2nn-draws" else {})


@pytest.mark.parametrize(
    ("number", "text"),
    [
        ("{B10 best accuracy %}", "97.00"),  # the median
        ("{B10 best accuracy %:0}", "97"),
        ("{each B10 best accuracy %:1}", "97.0, 98.0 and 12.5"),
        ("{range B10 best accuracy %:1}", "12.5 to 98.0"),
        ("{least B10 best accuracy %:1}", "12.5"),
        ("{greatest B10 best accuracy %:1}", "98.0"),
        ("{range B50 best accuracy %}", "98.90"),
        ("{each B50 best accuracy %}", "98.90"),
        ("{each B10 first accuracy rounds 97}", "4 and 2 (2 of 3 seeds)"),
        ("{B10 first accuracy rounds 97}", "3 (2 of 3 seeds)"),
        ("{B10 first accuracy rounds 99}", "not reached"),
        ("{B10-s2 first accuracy epochs*0.05:2 97}", "0.10"),
        ("{B10-s1 first accuracy steps*6000 97}", "24,000"),
        ("{B10-s1 last@2 accuracy %}, {B10-s1 least@-2 accuracy %}", "75.00, 50.00"),
        ("{B10-s1 best_at accuracy rounds}", "4"),
        ("{B10-s1 rounds} rounds", "4 rounds"),
        ("{range B*0 first accuracy rounds 97}", "2 to 4 (3 of 4 seeds)"),
        (
            "{B50 first accuracy rounds 98.9}",
            "2",
        ),  # not more than 0.989
        ("{B10-s1 last@5 accuracy %}", "not run so far"),
        ("{B50 last@5 accuracy %}", "98.90"),  # it has ended
        ("{thesis-2nn-draws/B10-s3 last accuracy %}", "12.50"),
        ("{thesis-2nn-cohorts/B10-C0 last accuracy %}", "not run"),
        ("no number", "no number"),
    ],
)
def test_a_number_in_braces_is_computed(number: str, text: str) -> None:
    from texts import Numbers

    assert Numbers("thesis-2nn-draws").fill(number) == text


def test_a_number_that_may_change_says_how_far_its_run_is() -> None:
    from texts import Numbers

    numbers = Numbers("thesis-2nn-draws", progress=True)
    texts = {
        "{B10-s1 last accuracy %}": "97.00 (in 4 of 4,000 rounds)",
        "{B10-s1 last@-2 accuracy %}": "97.00 (in 4 of 4,000 rounds)",
        "{B10-s1 last@4 accuracy %}": "97.00",
        "{B10-s1 first accuracy rounds 70}": "2",  # a target that was reached stays reached
        "{B50 last accuracy %}": "98.90",
    }
    for text, filled in texts.items():
        assert numbers.fill(text) == filled
    names = [(cell.name, kept is not None) for cell, kept in numbers.runs.items()]
    assert names[:2] == [("B10-s1", True), ("B50-s1", True)]
    assert not any(is_kept for _, is_kept in names[2:])


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("it has {B20 best accuracy %}", "there is no cell thesis-2nn-draws/B20"),
        ("it has {B10 best}", r"no number: \{B10 best\}"),
        ("it has {B10 best accuracy", "no number"),
        ("it has {B10 bset accuracy %}", "bset is none of first, "),
        ("it has {B10 best acuracy %}", "acuracy is none of accuracy, loss, "),
        ("it has {B10 best accuracy percent}", "percent is none of rounds, epochs, "),
        ("it has {B10 first accuracy rounds}", "with a target, or without"),
        ("it has {B10 best accuracy % 97}", "with a target, or without"),
    ],
)
def test_a_brace_that_is_no_number_is_refused(text: str, what: str) -> None:
    from texts import Numbers

    with pytest.raises(AssertionError, match=what):
        Numbers("thesis-2nn-draws").fill(text)


def test_notes_reasons_and_main_claims_have_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    import prices
    import summaries
    import tables

    far = {"document": "d", "name": "n", "group": "thesis-2nn-draws", "what": "w"}
    far |= {"note": "best {B50 best accuracy %}", "paper": {"B50": 9}, "measure": {"target": 0.97}}
    reason = {"text": "the seed, {B50 first accuracy rounds 97}.", "shown_by": ["thesis-2nn-draws"]}
    monkeypatch.setattr(tables, "load", lambda group: {"B50-s1": record(accuracy=[0.5, 0.989])})
    table = tables.Table.parse({**far, "reasons": {"B50": reason}})
    assert "best 98.90" in tables._section_of_rows(table)
    assert "Outside, B50: the seed, 2." in tables._section(table, "rows")
    assert "B50: shown by" in tables._section_of_rows(table)

    paced = {"B10-s1": record(accuracy=[0.97] * 4)}  # an hour for eight rounds
    monkeypatch.setattr(prices, "load", lambda group: paced)
    claim = summaries.Claim("d", "it learns", "{thesis-2nn-draws/B10-s1 last accuracy %}")
    last = "{thesis-2nn-draws/B10-s1 last@4 accuracy %}"
    for holds, rows, answer in (
        ((), "", "open"),
        ((f"{last} > 96",), "", "yes"),
        ((f"{last} > 96", f"{last} > 98"), "", "in part"),
        ((f"{last} > 98",), "", "no"),
        (
            (f"{last} > 98", "{thesis-2nn-draws/B10-s1 last accuracy %} > 0"),
            "",
            "open, up to 500 h",
        ),
        ((), "figure 2", "in part"),
    ):
        made = [replace(claim, holds=holds, rows=rows)]
        monkeypatch.setattr(summaries, "claims", lambda made=made: made)
        *_, line = summaries.summary({("d", "figure 2"): [True, False]})
        assert line == f"| d | it learns | 97.00 (in 4 of 4,000 rounds) | {answer} |\n"


@pytest.mark.parametrize("pattern", ["scaffold", "scaffold-s1"])
def test_a_cell_is_not_taken_for_one_whose_name_begins_alike(pattern: str) -> None:
    from cells import matching

    names = [cell.name for cell in matching("fedaim-fashion", pattern)]
    assert names == ["scaffold-s1"]  # not those of scaffold-step


def test_a_price_is_that_of_the_rounds_left_at_the_pace_of_the_nearest_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import prices
    from cells import cells

    five, ten, other = cells(
        [
            f"thesis-2nn-epochs/{name}-s1"
            for name in ("B10-lr0.01-E5", "B10-lr0.01-E10", "B100-lr0.04-E20")
        ]
    )
    rounds = five.experiment().rounds
    kept = {five.name: record(accuracy=[0.5] * 10), other.name: record(accuracy=[0.5] * 99)}
    monkeypatch.setattr(prices, "load", lambda group: kept)
    assert prices.hours_left([five]) == pytest.approx(0.05 * (rounds - 10))
    assert prices.hours_left([ten]) == pytest.approx(2 * 0.05 * rounds), "twice the epochs"
    assert prices.hours_left([five, ten]) == pytest.approx(0.05 * (3 * rounds - 10))
    kept[five.name] = replace(kept[five.name], reason="all rounds were run")
    assert prices.hours_left([five]) == 0
    kept.clear()
    assert prices.hours_left([five]) is None
