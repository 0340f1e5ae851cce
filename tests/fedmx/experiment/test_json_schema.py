"""The JSON schema accepts every experiment file that fedmx accepts, and refuses typos."""

from __future__ import annotations

import copy
import json
from functools import reduce
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fedmx.components.catalogue import KINDS, read_catalogue
from fedmx.errors import ExperimentError
from fedmx.experiment import Experiment
from fedmx.experiment.reader import parse_text
from fedmx.experiment.schema import KEYS, experiment_schema
from tests.fedmx.command_line import fedmx

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted([*(ROOT / "examples").rglob("*.yaml"), *(ROOT / "experiments").glob("*.yaml")])
FILES = [path for path in FILES if "compose" not in path.name]
SMALL = """\
rounds: 1
clients: 20
compute: {model: lenet5, data: digits}
"""


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = experiment_schema()
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


def small(*overrides: tuple[str, object]) -> dict[str, Any]:
    tree, _ = parse_text(SMALL, "small")
    for path, value in overrides:
        *above, last = path.split(".")
        reduce(lambda node, key: node.setdefault(key, {}), above, tree)[last] = value
    return tree


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_takes_every_example_as_written_and_with_defaults(path: Path, validator: Any) -> None:
    tree, _ = parse_text(path.read_text(), path.name)
    validator.validate(tree)
    whole, _ = parse_text(Experiment.read(path, modules=None).to_yaml(), path.name)
    validator.validate(whole)


TAKEN = [
    ("executor", "processes"),
    ("executor", {"processes": "all"}),
    ("run.checkpoint.keep", 3),
    ("run.checkpoint.keep", {"every": 10}),
    ("compute.model", "gluon:resnet18_v1"),
    ("compute.model", "my_models.vision:Net"),
    ("compute.model", {"name": "my_models:Net", "width": 3}),
    ("compute.normalise.mean", [0.1, 0.2, 0.3]),
    ("compute.train.batch_size", "all"),
    ("logic.preset", None),
    ("logic.hooks", [{"name": "clip", "norm": 2}, "stc", {"name": "own:Hook", "any": [1]}]),
    ("logic.max_update", None),
    ("clock.devices", {"name": "range", "samples_per_s": [10, 20]}),
    ("network.wait_for", 3),
    ("network.max_samples", "partition"),
    ("network.max_samples", 3),
    ("network.max_samples", None),
]


@pytest.mark.parametrize("change", TAKEN, ids=lambda change: f"{change[0]}={change[1]}")
def test_it_accepts_what_fedmx_accepts(change: tuple[str, object], validator: Any) -> None:
    tree = small(change)
    validator.validate(tree)
    Experiment.from_dict(tree)


REFUSED = [
    ("round", 3),
    ("rounds", 0),
    ("rounds", "ten"),
    ("rounds", True),
    ("seed", -1),
    ("name", "two words"),
    ("compute.model", 3),
    ("compute.model", "lenet6"),
    ("compute.model", {"hidden": [1]}),
    ("compute.partition", {"name": "dirichlet", "alfa": 0.1}),
    ("compute.partition", {"name": "dirichlet", "alpha": "much"}),
    ("compute.partition", None),
    ("compute.train.learning_rat", 0.1),
    ("compute.train.learning_rate", -1),
    ("compute.train.momentum", 1),
    ("compute.train.batch_size", "some"),
    ("compute.train.batch_size", 0),
    ("compute.normalise.scale", 0),
    ("compute.bits", "foreign"),
    ("logic.selector", {"name": "uniform", "fraktion": 0.1}),
    ("logic.selector", "unifrm"),
    ("logic.hooks", "clip"),
    ("logic.hooks", [{"norm": 1}]),
    ("logic.preset", "fedavgg"),
    ("executor", "threads"),
    ("network.tls", {"ca": "ca.pem"}),
    ("network.heartbeat_s", 0),
    ("run.folder", ""),
]


@pytest.mark.parametrize("change", REFUSED, ids=lambda change: f"{change[0]}={change[1]}")
def test_it_refuses_what_fedmx_refuses(change: tuple[str, object], validator: Any) -> None:
    tree = small(change)
    assert list(validator.iter_errors(tree)) != []
    with pytest.raises(ExperimentError):
        build_all(Experiment.from_dict(copy.deepcopy(tree)))


def build_all(experiment: Experiment) -> None:
    """Make the components, since their settings are not checked before."""
    from fedmx.components.build import build

    for component in experiment.components:
        if component.kind not in ("preset", "model"):
            build(component.kind, component)


def test_it_has_the_settings_of_every_component(validator: Any) -> None:
    for kind in KINDS.values():
        place = kind.place
        for name, entry in read_catalogue()[kind.plural].items():
            if entry.required or name.endswith(":"):
                continue
            value: object = {"name": name, "no-such-setting": 1}
            tree = small((".".join(place), [value] if place[-1] in ("hooks", "metrics") else value))
            assert list(validator.iter_errors(tree)) != [], name
            value = name
            tree = small((".".join(place), [value] if place[-1] in ("hooks", "metrics") else value))
            validator.validate(tree)


def test_the_page_has_each_key_and_each_key_has_a_text() -> None:
    page = (ROOT / "docs" / "experiment-file.md").read_text("utf-8")
    assert [name for name in KEYS if f"\n- `{name}` (" not in page] == []
    assert [name for name, key in KEYS.items() if not key.text] == []


def test_the_arguments_of_an_experiment_have_current_types_with_the_names_of_the_parts() -> None:
    text = (ROOT / "fedmx" / "experiment" / "arguments.pyi").read_text("utf-8")
    assert "    rounds: Required[int]\n" in text
    for kind in KINDS.values():
        assert all(f'"{name}"' in text for name in read_catalogue()[kind.plural] if name[-1] != ":")


def test_the_command_prints_it(tmp_path: Path) -> None:
    result = fedmx("schema", cwd=tmp_path)
    assert result.code == 0
    schema = json.loads(result.out)
    assert schema == experiment_schema()
    rate = schema["properties"]["compute"]["properties"]["train"]["properties"]["learning_rate"]
    assert rate == {
        "type": "number",
        "exclusiveMinimum": 0,
        "description": "Learning rate. Default: 0.1",
    }
