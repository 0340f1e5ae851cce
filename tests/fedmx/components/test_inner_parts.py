"""A part in a setting of another part: in files, overrides and Python, explained and refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from fedmx import Assembly, Experiment, ExperimentError
from fedmx.components.component import Component
from fedmx.components.user_code import named_code
from fedmx.experiment.reader import parse_text
from fedmx.experiment.schema import experiment_schema, explained_key
from fedmx.parts import Bucketing, Krum, Median, NearestNeighbourMixing
from layers.logic.aggregators.mean import Mean
from tests.fedmx.command_line import fedmx

FILE = """
name: inner
rounds: 1
clients: 6
compute: {model: logistic, data: digits, normalise: {scale: 16}, train: {steps: 1}}
logic:
  selector: {name: uniform, fraction: 1.0}
  aggregator:
    name: bucketing
    size: 2
    rule: {name: krum, byzantine: 0}
  min_updates: 5
"""


RULE, MIXING = "logic.aggregator.rule", "{name: nearest-neighbour-mixing, rule: mean}"
MINE = """
from dataclasses import dataclass, replace
from fedmx import Aggregator
from layers.logic.aggregators.median import Median

@dataclass(frozen=True)
class Rule(Median):
    shift: float = 0.0

    def finish(self, total, state):
        after = super().finish(total, state)
        return replace(after, weights=after.weights + self.shift)

@dataclass(frozen=True)
class Wrapper(Aggregator):
    rule: Aggregator
    provides = frozenset()

    def begin(self, state, context):
        return self.rule.begin(state, context)

    def add(self, total, contribution):
        return self.rule.add(total, contribution)

    def finish(self, total, state):
        return self.rule.finish(total, state)
"""


def rule_of(experiment: Experiment) -> object:
    return Assembly(experiment).preset.aggregator


def parsed(*overrides: str, text: str = FILE, **how) -> Experiment:
    return Experiment.parse(text, overrides=overrides, **how)


def test_a_file_gives_an_inner_part_by_its_name_and_settings() -> None:
    assert rule_of(parsed()) == Bucketing(2, Krum(0))
    by_name = parsed(text=FILE.replace("{name: krum, byzantine: 0}", "median"))
    assert rule_of(by_name) == Bucketing(2, Median())


@pytest.mark.parametrize(
    ("overrides", "rule"),
    [
        (["{RULE}={name: krum, byzantine: 1}"], Bucketing(2, Krum(1))),
        (["{RULE}.byzantine=1"], Bucketing(2, Krum(1))),
        (["{RULE}=median"], Bucketing(2, Median())),
        (["{RULE}=median", "{RULE}.sparse=true"], Bucketing(2, Median(sparse=True))),
        (["{RULE}={MIXING}"], Bucketing(2, NearestNeighbourMixing(1, Mean()))),
    ],
)
def test_an_override_changes_an_inner_part_and_its_settings(overrides, rule) -> None:
    overrides = [one.replace("{RULE}", RULE).replace("{MIXING}", MIXING) for one in overrides]
    assert rule_of(parsed(*overrides)) == rule
    assert rule_of(parsed().with_overrides(overrides)) == rule


def test_python_gives_the_same_part_as_an_object_and_a_file_can_hold_it() -> None:
    values = parsed().with_overrides([]).tree()
    values["logic"] = {**values["logic"], "aggregator": Bucketing(2, Krum(0))}
    experiment = Experiment.from_dict(values)
    assert experiment.portable
    again = Experiment.parse(experiment.to_yaml())
    assert rule_of(experiment) == rule_of(again) == Bucketing(2, Krum(0))
    assert experiment.digest() == again.digest()
    mixed = {"name": "bucketing", "size": 2, "rule": Krum(0)}
    values["logic"] = {**values["logic"], "aggregator": mixed}
    assert rule_of(Experiment.from_dict(values)) == Bucketing(2, Krum(0))


def test_the_digest_has_the_settings_of_inner_parts() -> None:
    assert parsed().digest() == Experiment.parse(parsed().to_yaml()).digest()
    assert parsed().digest() != parsed("logic.aggregator.rule.byzantine=1").digest()


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (".byzantine=many", ".byzantine"),
        (".byzantine=-1", ".byzantine"),
        (".bizantine=1", ".bizantine"),
        ("=krumm", ""),
        ("=3", ""),
        ("=null", ""),
        ("=[krum, median]", ""),
        ("={byzantine: 1}", ""),
        ("={name: bucketing, rule: {name: krum, byzantine: x}}", ".rule.byzantine"),
    ],
)
def test_an_error_in_an_inner_part_names_the_whole_key(tmp_path, override, words) -> None:
    (tmp_path / "inner.yaml").write_text(FILE)
    with pytest.raises(ExperimentError) as error:
        Experiment.read(tmp_path / "inner.yaml", [RULE + override])
    (problem,) = error.value.problems
    assert problem.startswith(f"--set {RULE}{words}: ") or f" {RULE}{words}: " in problem, problem


def test_an_error_in_a_file_names_its_line(tmp_path) -> None:
    (tmp_path / "inner.yaml").write_text(FILE.replace("byzantine: 0", "byzantine: -2"))
    with pytest.raises(ExperimentError, match=rf"inner.yaml:11: {RULE}.byzantine: .*-2"):
        Experiment.read(tmp_path / "inner.yaml")


def test_explain_and_the_schema_know_inner_parts() -> None:
    inside = explained_key("logic.aggregator.rule.rule.byzantine")
    assert any(line.startswith("krum: byzantine") for line in inside)
    rules = explained_key("logic.aggregator.rule")
    assert any("rule = median: an aggregator" in one for one in rules)
    validator = jsonschema.Draft7Validator(experiment_schema())
    validator.validate(parsed_tree())
    wrong = parsed_tree()
    wrong["logic"]["aggregator"]["rule"]["bizantine"] = 1
    assert not validator.is_valid(wrong)


def parsed_tree() -> dict:
    return parse_text(FILE, "inner")[0]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "inner_mine.py").write_text(MINE)
    path = list(sys.path)
    yield tmp_path
    sys.path[:] = path
    sys.modules.pop("inner_mine", None)


@pytest.mark.parametrize("outer", ["bucketing", "inner_mine:Wrapper"])
def test_own_code_inside_runs_only_if_it_is_allowed(folder: Path, outer: str) -> None:
    aggregator = f"{{name: '{outer}', rule: {{name: 'inner_mine:Rule', shift: 1.0}}}}"
    text = FILE[: FILE.index("  aggregator")] + f"  aggregator: {aggregator}\n  min_updates: 5\n"
    (folder / "small.yaml").write_text(text)
    experiment = Experiment.read(folder / "small.yaml")
    named = {(one.where, one.name) for one in named_code(experiment.components)}
    assert (("logic", "aggregator", "rule"), "inner_mine:Rule") in named
    assert "inner_mine" not in sys.modules
    with pytest.raises(ExperimentError, match=r"logic\.aggregator.*inner_mine.*not allowed"):
        rule_of(experiment)
    rule = rule_of(experiment.allowing(["inner_mine"]))
    assert type(rule.rule).__name__ == "Rule"
    assert rule.rule.shift == 1.0
    result = fedmx("run", "small.yaml", "--set", "logic.aggregator.rule.shift=0.5", cwd=folder)
    assert "inner_mine:Rule is not fedmx's code" in result.err
    assert "logic.aggregator.rule" in result.err


def test_own_code_that_python_names_inside_runs_only_if_it_is_allowed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)  # where the module is found
    tree = parsed_tree()
    tree["logic"]["aggregator"]["rule"] = Component("inner_mine:Rule", {"shift": 1.0})
    experiment = Experiment.from_dict(tree)
    with pytest.raises(ExperimentError, match=r"logic\.aggregator\.rule.*inner_mine.*not allowed"):
        rule_of(experiment.allowing(["another"]))
    assert "inner_mine" not in sys.modules
    assert rule_of(experiment.allowing(["inner_mine"])).rule.shift == 1.0


def test_own_code_inside_runs_in_worker_processes_with_the_same_bits(folder: Path) -> None:
    own = FILE.replace("{name: krum, byzantine: 0}", "{name: 'inner_mine:Rule', shift: 0.25}")
    (folder / "own.yaml").write_text(own)
    for executor in ("serial", "processes:2"):
        result = fedmx("run", "own.yaml", "--own-modules", "--executor", executor, cwd=folder)
        assert result.code == 0, result.err
    runs = sorted((folder / "runs").iterdir())
    lines = [json.loads((run / "rounds.jsonl").read_text()) for run in runs]
    assert len(lines) == 2
    assert lines[0]["chain"] == lines[1]["chain"]


def test_all_parts_inside_of_a_part_are_known_before_anything_is_imported() -> None:
    inside = {"name": "nearest-neighbour-mixing", "byzantine": 1, "rule": "own:Rule"}
    rules = {"first": {"name": "own:A"}, "wrong": {"name": 3}, "last": {"name": "own:B"}}
    change = {
        "logic.aggregator": {"name": "bucketing", "size": 2, "rule": inside},
        "logic.hooks": [{"name": "own:Mine", "text": "x", "fedmx": {"name": "krum"}, **rules}],
    }
    given = parsed(*(f"{key}={json.dumps(value)}" for key, value in change.items()), modules=None)
    found = [one.name for one in given.components if one.kind in ("aggregator", "hook")]
    mixing = ["bucketing", "nearest-neighbour-mixing", "own:Rule"]
    assert found == [*mixing, "own:Mine", "own:A", "own:B"]
