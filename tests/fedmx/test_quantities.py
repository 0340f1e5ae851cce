"""A quantity is declared once: a recorded value reaches TensorBoard, reports and the page."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fedmx import Experiment, RunFolder
from fedmx.quantities import QUANTITIES
from fedmx.report.groups import rows_of
from fedmx.report.summary import RunSummary
from layers.compute.metrics import METRICS
from tests.fedmx.kinds import TREE
from tests.fedmx.recorded_runs import record

METRICS_OF_CLASSES = [name for name, one in METRICS.items() if "classes" in one.TARGETS]
EVALUATE = {"per_client": True, "personal": True, "metrics": METRICS_OF_CLASSES}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run in which everything is measured that a simulation can measure."""
    compute = {**TREE["compute"], "evaluate": EVALUATE}
    attack = {"name": "back-door", "clients": 0.5}
    logic = {"selector": {"name": "fedsso", "beta": 1.0}, "aggregator": "by-group"}
    tree = {**TREE, "rounds": 2, "compute": compute, "attack": attack, "logic": logic}
    return record(Experiment(**tree), tmp_path_factory.mktemp("runs"))


def test_a_record_has_declared_quantities_alone(run: RunFolder) -> None:
    declared = {one.key for one in QUANTITIES}
    first = run.rounds()[0]
    assert {*first} - declared == {"chain"}
    assert {one.key for one in QUANTITIES if not one.optional} <= {*first}
    others = {name.replace("-", "_") for name in {*METRICS} - {*METRICS_OF_CLASSES}}
    others.add("test")  # of runs with validation, after their last round
    assert {one.key for one in QUANTITIES if one.of is None} - others <= {*first}


def test_a_tag_and_a_label_show_the_recorded_value(run: RunFolder) -> None:
    events = EventAccumulator(str(run.events_path)).Reload()
    summary, last = RunSummary.of(run), run.rounds()[-1]
    rows = {row.label: row.values for row in rows_of([summary], None)}
    for one in QUANTITIES:
        value = last.get(one.key)
        if one.tag and value is not None:
            number = len(value) if isinstance(value, list) else value
            assert events.Scalars(one.tag)[-1].value == pytest.approx(number, rel=1e-6), one.key
        if one.label and one.of is None and one.key in last:
            assert rows[one.label] == [value], one.key


def test_names_are_unique() -> None:
    for names in ([one.key for one in QUANTITIES], [one.tag for one in QUANTITIES if one.tag]):
        assert len({*names}) == len(names)


def test_the_page_of_the_files_has_each(run: RunFolder) -> None:
    page = (Path(__file__).parents[2] / "docs" / "run-folder.md").read_text("utf-8")
    assert [one.key for one in QUANTITIES if f"`{one.key}`" not in page] == []
