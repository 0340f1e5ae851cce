"""From names to components: what is found, what is refused, and how settings are checked."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmx import Experiment, ExperimentError, FedmxError
from fedmx.components.build import bind, build, problem_with, resolve
from fedmx.components.component import Component, Source
from layers.compute.data.dataset import Dataset
from layers.logic.errors import LogicError

if TYPE_CHECKING:
    from decimal import Decimal

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Inner:
    depth: int = 1


@dataclass(frozen=True)
class Uniform:
    fraction: float = 0.1
    count: int | None = None
    layers: tuple[int, ...] = ()
    mode: Literal["fast", "exact"] = "fast"
    inner: Inner = field(default_factory=Inner)
    flag: bool = False
    label: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise LogicError(f"fraction must be in (0, 1], not {self.fraction}")


@dataclass(frozen=True)
class Needy:
    path: str
    classes: int
    size: float = 1.0


def model(width: int = 4, *, classes: int = 10) -> tuple[int, int]:
    return width, classes


def zoo(name: str, classes: int = 10, **others: Any) -> tuple[str, int, dict[str, Any]]:
    return name, classes, others


class Odd:
    def __init__(self, size: Decimal, thing: Path, *, even: int = 2, **kwargs: Any) -> None:
        self.values = (size, thing, even, kwargs)


TABLE: dict[str, Any] = {
    "uniform": Uniform,
    "needy": Needy,
    "model": model,
    "zoo:": zoo,
    "odd": Odd,
}


def component(reference: Any, folder: Path | None = None, **source: Any) -> Component:
    where = ("logic", "selector")
    return Component.of(reference, where, Source("exp.yaml", folder, lines={where: 3}, **source))


def refusal(
    reference: Any, folder: Path | None = None, kind: str = "partition", **provided: Any
) -> str:
    with pytest.raises(ExperimentError) as caught:
        build(kind, component(reference, folder), TABLE, **provided)
    assert all(line.isprintable() for line in str(caught.value).split("\n"))
    return str(caught.value)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A user's folder, whose modules are forgotten afterwards."""
    modules, path = set(sys.modules), list(sys.path)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


# --- settings


def test_a_component_is_made_with_its_settings_and_defaults() -> None:
    given = {"name": "uniform", "fraction": "1e-1", "layers": [1, 2], "inner": {"depth": 3}}
    assert build("partition", component("uniform"), TABLE) == Uniform()
    made = build("partition", component(given), TABLE)
    assert made == Uniform(0.1, layers=(1, 2), inner=Inner(3))


def test_arguments_of_fedmx_are_used_unless_the_settings_give_them() -> None:
    assert build("model", component("model"), TABLE, classes=3, shape=(1,)) == (4, 3)
    assert build("model", component({"name": "model", "classes": 7}), TABLE, classes=3) == (4, 7)


def test_binding_checks_now_and_makes_a_new_one_at_each_call() -> None:
    make = bind("partition", component("uniform"), TABLE)
    assert make() == make()
    assert make() is not make()
    with pytest.raises(ExperimentError):
        bind("partition", component({"name": "uniform", "fraction": "x"}), TABLE)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fraction": "x"}, "fraction: must be a number, not 'x'"),
        ({"fraction": True}, "fraction: must be a number, not true"),
        ({"fraction": None}, "fraction: must be a number, not null"),
        ({"fraction": float("nan")}, "fraction: must be a number, not NaN"),
        ({"count": 1.5}, "count: must be a whole number, not 1.5"),
        ({"count": True}, "count: must be a whole number or null, not true"),
        ({"layers": 3}, "layers: must be a list, not 3"),
        ({"layers": [1, "x"]}, "layers: 1: must be a whole number, not 'x'"),
        ({"mode": "slow"}, "mode: must be 'fast' or 'exact', not 'slow'"),
        ({"flag": 3}, "flag: must be true or false, not 3"),
        ({"label": 3}, "label: must be text, not 3"),
        ({"fracton": 1}, "fracton: unknown setting 'fracton'; did you mean 'fraction'? partition"),
    ],
)
def test_a_wrong_setting_is_reported_with_its_path(settings: dict[str, Any], message: str) -> None:
    said = refusal({"name": "uniform", **settings})
    assert said.startswith(f"exp.yaml:3: logic.selector.{message}")
    assert "\n" not in said


def test_a_missing_setting_is_named_with_its_type() -> None:
    said = refusal("needy", classes=3)
    assert said == "exp.yaml:3: logic.selector.path: is missing; partition needy needs it (text)"


def test_all_wrong_settings_are_reported_together() -> None:
    said = refusal({"name": "needy", "size": "x", "sise": 1})
    assert said.startswith("exp.yaml: 4 problems\n")
    assert [line.split(": ")[1] for line in said.split("\n")[1:]] == [
        "logic.selector.size",
        "logic.selector.sise",
        "logic.selector.path",
        "logic.selector.classes",
    ]


def test_a_components_own_refusal_gets_its_path() -> None:
    said = refusal({"name": "uniform", "fraction": 7})
    assert said == "exp.yaml:3: logic.selector: fraction must be in (0, 1], not 7.0"


def test_a_parameter_of_an_unknown_type_is_passed_on() -> None:
    made = build("thing", component({"name": "odd", "size": "s", "thing": "p", "x": 1}), TABLE)
    assert made.values == ("s", Path("p"), 2, {"x": 1})


# --- names


def test_an_unknown_name_gets_the_nearest_and_all_names() -> None:
    said = refusal("unifrm")
    assert "unknown partition 'unifrm'; did you mean 'uniform'?" in said
    assert "model, needy, odd, uniform, zoo:NAME, or your own" in said


def test_a_family_takes_the_rest_of_the_name() -> None:
    made = build("model", component({"name": "zoo:resnet:18", "depth": 2}), TABLE, classes=3)
    assert made == ("resnet:18", 3, {"depth": 2})


def test_an_entry_is_also_found_by_its_full_name() -> None:
    """So that an object of fedmx's own class, written to a file, needs no permission elsewhere."""
    limited = component(f"{__name__}:Uniform", modules=frozenset())
    assert resolve("selector", limited, TABLE) is Uniform


def test_an_object_is_used_as_it_is() -> None:
    given = Uniform(0.5)
    assert build("partition", component(given), TABLE) is given
    assert build("model", component(model), {}, classes=4) == (4, 4)
    assert build("partition", component(Uniform), {}) == Uniform()


def test_an_object_that_was_lost_in_a_file_is_reported() -> None:
    said = refusal("<object Net>")
    assert "<object Net> was an object of a Python program" in said
    assert said.endswith("run again from that program")


# --- a user's own code


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


OWN = """
from dataclasses import dataclass
from os import system
import json
from fedmx import Hook, Selector

@dataclass(frozen=True)
class Mine(Hook):
    norm: float = 1.0

    def __post_init__(self):
        if self.norm < 0:
            raise ValueError("norm must not be negative")

    class Inner(Hook):
        pass

def broken() -> Hook: return {}["x"]
def helper(command: str): raise AssertionError("was called")
def makes(norm: float = 3.0) -> "Mine": return Mine(norm)

ready = Mine(7.0)
_hidden = Mine
"""


def test_a_module_beside_the_experiment_file_is_found(folder: Path) -> None:
    write(folder, "own_hooks_a.py", OWN)
    path = folder / "exp.yaml"
    path.write_text(
        "rounds: 1\nclients: 2\ncompute: {model: lenet5, data: digits}\n"
        'logic: {hooks: [{name: "own_hooks_a:Mine", norm: 2}]}\n'
    )
    made = build("hook", Experiment.read(path, modules=["own_hooks_a"]).logic.hooks[0], {})
    assert (type(made).__name__, made.norm) == ("Mine", 2.0)


def test_a_module_in_the_working_directory_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, "own_b/__init__.py", "")
    write(folder, "own_b/hooks.py", OWN)
    monkeypatch.chdir(folder)
    assert build("hook", component("own_b.hooks:ready"), {}).norm == 7.0
    assert resolve("hook", component("own_b.hooks:Mine.Inner"), {}).__name__ == "Inner"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_c:Mne", "unknown name 'Mne'; did you mean 'Mine'? its own are: Mine, broken, "),
        ("own_c:json", "is a module; name a class or function in it"),
        ("own_c:json.loads", "only a class can have names inside it"),
        ("own_c:system", "is a part of Python itself"),
        ("own_c:_hidden", "is not of the form package.module:Name"),
        ("own_c:Mine.__init__", "is not of the form package.module:Name"),
        ("own_c:", "is not of the form package.module:Name"),
        (":Mine", "is not of the form package.module:Name"),
        ("own c:Mine", "is not of the form package.module:Name"),
        ("own_c.x:Mine", "there is no module 'own_c.x'"),
        ("own_missing:Mine", "there is no module 'own_missing'; looked among the installed ones"),
        ("os:system", "is a part of Python itself"),
        ("builtins:print", "is a part of Python itself"),
        ("subprocess:Popen", "is a part of Python itself"),
        ("__main__:Mine", "is not of the form package.module:Name"),
        ("own_c:broken", "own_c:broken failed: KeyError: 'x'"),
    ],
)
def test_a_wrong_reference_is_reported_in_one_line(folder: Path, name: str, message: str) -> None:
    write(folder, "own_c.py", OWN)
    said = refusal(name, folder, "hook")
    assert said.startswith("exp.yaml:3: logic.selector: ")
    assert message in said
    assert "\n" not in said


def test_a_refusal_by_a_users_class_names_the_line(folder: Path) -> None:
    write(folder, "own_d.py", OWN)
    said = refusal({"name": "own_d:Mine", "norm": -1}, folder, "hook")
    line = OWN.split("norm must")[0].count("\n") + 1
    assert said.endswith(f"norm must not be negative ({folder}/own_d.py:{line})")


def test_an_error_that_a_users_class_wrote_for_users_stays_as_it_is(folder: Path) -> None:
    raises = 'raise FedmxError("in my own words")'
    text = OWN.replace("import Hook,", "import FedmxError, Hook,")
    write(folder, "own_j.py", text.replace('raise ValueError("norm must not be negative")', raises))
    with pytest.raises(FedmxError, match=r"^in my own words$"):
        build("hook", component({"name": "own_j:Mine", "norm": -1}, folder), {})


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("x = 1\nx = = 2\n", "SyntaxError: invalid syntax", 2),
        ("import not_there_at_all\n", "ModuleNotFoundError: No module named 'not_there", 1),
        ("\n\ndef f():\n    raise RuntimeError('a\\nb')\nf()\n", "RuntimeError: a", 4),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3", 2),
        ("import json\njson.loads('x')\n", "JSONDecodeError: Expecting value", 2),
    ],
)
def test_a_failing_module_is_told_by_line(folder: Path, text: str, message: str, line: int) -> None:
    write(folder, "own_e.py", text)
    said = refusal("own_e:Mine", folder)
    assert f"'own_e:Mine' cannot be imported: {message}" in said
    assert said.endswith(f"({folder}/own_e.py:{line})")
    assert "\n" not in said


def test_another_experiments_module_of_the_same_name_is_never_taken(folder: Path) -> None:
    for name in ("one", "two"):
        write(folder, f"{name}/own_f.py", OWN)
    assert build("hook", component("own_f:Mine", folder / "one"), {}).norm == 1.0
    said = refusal("own_f:Mine", folder / "two")
    assert f"from {folder}/one/own_f.py, not from {folder}/two/own_f.py" in said


def test_a_module_of_the_working_directory_is_taken_if_the_experiment_has_none_of_its_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mine", "other"):
        write(folder, f"{name}/own_i.py", OWN)
    (folder / "experiments").mkdir()
    reference = component("own_i:Mine", folder / "experiments")
    monkeypatch.chdir(folder / "mine")
    assert build("hook", reference, {}).norm == 1.0
    monkeypatch.chdir(folder / "other")
    with pytest.raises(ExperimentError) as caught:
        build("hook", reference, {})
    assert f"from {folder}/mine/own_i.py, not from {folder}/other/own_i.py" in str(caught.value)


def test_an_experiment_from_elsewhere_imports_only_what_is_allowed(folder: Path) -> None:
    write(folder, "own_g.py", "raise AssertionError('was imported')")
    write(folder, "own_h.py", OWN)
    text = (
        "rounds: 1\nclients: 2\ncompute: {model: lenet5, data: digits}\n"
        'logic: {hooks: ["own_g:Mine", "own_h:Mine"]}\n'
    )
    hooks = Experiment.parse(text, "server", folder=folder, modules=["own_h"]).logic.hooks
    with pytest.raises(ExperimentError, match=r"server:4: logic\.hooks\.0.* --module own_g\b"):
        build("hook", hooks[0], TABLE)
    assert "own_g" not in sys.modules
    assert build("hook", hooks[1], TABLE).norm == 1.0


def test_a_users_file_comes_after_what_is_installed(folder: Path) -> None:
    write(folder, "yaml.py", "raise AssertionError('was imported')")
    code = (
        "from pathlib import Path\n"
        "from fedmx.components.component import Component, Source\n"
        "from fedmx.components.build import resolve\n"
        f"source = Source('f', Path({str(folder)!r}))\n"
        "try: resolve('hook', Component.of('yaml:SafeLoader', (), source), {})\n"
        "except Exception as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=folder.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert "subclass of Hook" in done.stdout


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("selector", "own_i:Mine", "must be a subclass of Selector"),
        ("selector", "own_i:ready", "must be a subclass of Selector, or an object of one"),
        ("hook", "own_i:helper", "return annotation .* -> Hook"),
        ("model", "own_i:helper", "-> Block"),
        ("model", "own_i:Mine", "must be a subclass of Gluon's Block"),
        ("data set", "own_i:helper", "-> Dataset, or -> dict or -> tuple"),
        ("partition", "own_i:Mine", "must be a class with the method split"),
        ("model", "yaml:unsafe_load", "return annotation .* -> Block"),
    ],
)
def test_a_name_leads_only_to_what_its_key_wants(
    folder: Path, kind: str, name: str, message: str
) -> None:
    write(folder, "own_i.py", OWN)
    said = refusal({"name": name, "command": "touch trace"}, folder, kind)
    assert re.search(message, said)
    assert "\n" not in said


@pytest.mark.parametrize("made", [tuple, tuple[int, int], dict, dict[str, int], Dataset])
def test_a_function_of_data_may_return_arrays_in_a_tuple_or_a_dict(made: Any) -> None:
    def arrays() -> Any: ...

    arrays.__annotations__["return"] = made
    assert problem_with("data set", arrays) is None
    assert problem_with("model", arrays)


def test_a_function_that_says_what_it_makes_is_a_component(folder: Path) -> None:
    write(folder, "own_j.py", OWN)
    assert build("hook", component({"name": "own_j:makes", "norm": 4}, folder), {}).norm == 4.0


# --- any reference

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
keys = st.sampled_from([one.name for one in dataclasses.fields(Uniform)]) | st.text(max_size=5)
some_names = st.sampled_from([*TABLE, "zoo:x", "a:b", "os:system"]) | st.text(max_size=8)


@given(some_names, st.dictionaries(keys, plain, max_size=4))
def test_any_reference_is_built_or_refused(name: str, settings: dict[str, Any]) -> None:
    problem, made = "", None
    try:
        reference = Component.of({**settings, "name": name}, ("logic", "selector"))
        made = build("partition", reference, TABLE)
    except (ExperimentError, ValueError) as error:
        problem = str(error)
    assert all(line.isprintable() for line in problem.split("\n"))
    assert (made is None) == bool(problem)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("x" * 201, "longer than 200 characters"),
        ("", "must be text without spaces around it"),
        (" a", "must be text without spaces around it"),
        ("a ", "must be text without spaces around it"),
        ("a\nb", "must be text without spaces around it"),
        ({"name": 7}, "must be text without spaces around it"),
        ({"p": 1}, "must say its name"),
        ({"name": "a", 7: 1}, "the name of a setting must be text, not 7"),
        (None, "must be a name or a mapping with a name"),
        (True, "must be a name or a mapping with a name"),
        (["a"], "must be a name or a mapping with a name"),
    ],
)
def test_what_is_not_a_component_is_refused(value: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Component.of(value)
