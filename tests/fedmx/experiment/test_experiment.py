"""The experiment file: what it refuses and how it says so, and that nothing is lost on the way."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fedmx import Experiment, ExperimentError
from fedmx.components.source import dotted
from fedmx.experiment import Component
from fedmx.experiment.keys import keys_of
from fedmx.experiment.reader import SIZE_LIMIT_BYTES

ROOT = Path(__file__).resolve().parents[3]

WHOLE = """\
name: lenet5-mnist-shards
seed: 1
rounds: 150
clients: 100
stop: {accuracy: 0.98}
compute:
  model: lenet5
  data: mnist
  normalise: {scale: 255, mean: 0.1307, std: 0.3081}
  partition: {name: shards, per_client: 2}
  train:
    epochs: 5
    batch_size: 10
    learning_rate: 2e-2
    schedule: {name: step, every: 10, gamma: 0.5}
  evaluate: {every: 1, batch_size: 500, sample: null}
logic:
  preset: fedavg
  selector: {name: uniform, fraction: 0.1}
  aggregator: mean
  hooks: [clip, {name: "mine.hooks:Noise", deviation: 0.1}]
  min_updates: 1
network:
  address: 127.0.0.1:7070
  wait_for: all
run:
  folder: runs
  checkpoint: {every: 1, keep: 2}
"""
LEAST = "rounds: 5\nclients: 20\ncompute: {model: lenet5, data: digits}\n"


def refused(text: str, *overrides: str) -> str:
    with pytest.raises(ExperimentError) as caught:
        Experiment.parse(text, "exp.yaml", overrides)
    message = str(caught.value)
    assert all(line.isprintable() for line in message.split("\n"))
    return message


@dataclass(frozen=True)
class Noise:
    deviation: float = 0.1
    layers: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class Named:
    name: str = "x"


class Plain:
    pass


# --- what a file may say


def test_a_file_becomes_typed_values(tmp_path: Path) -> None:
    path = tmp_path / "exp.yaml"
    path.write_text(WHOLE)
    experiment = Experiment.read(path)
    assert (experiment.rounds, experiment.clients, experiment.seed) == (150, 100, 1)
    assert experiment.stop.accuracy == 0.98
    assert experiment.compute.train.learning_rate == 0.02
    assert experiment.compute.partition == Component("shards", {"per_client": 2})
    assert [hook.name for hook in experiment.logic.hooks] == ["clip", "mine.hooks:Noise"]
    assert experiment.run.folder == Path("runs")


def test_three_keys_are_enough() -> None:
    experiment = Experiment.parse(LEAST)
    assert experiment.logic.preset == Component("fedavg")
    assert experiment.compute.partition == Component("iid")
    assert experiment.compute.train.schedule == Component("constant")
    assert experiment.clients_awaited == 20


def test_an_experiment_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Experiment.parse(LEAST).rounds = 6  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1.5E+2", 150.0),
        ("-7", -7),
        (".inf", float("inf")),
        ("yes", "yes"),
        ("on", "on"),
        ("010", "010"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("1_000", "1_000"),
        ("0x10", "0x10"),
        ("~", None),
        ("null", None),
        ("True", True),
        ("'5'", "5"),
        ("<<", "<<"),
        ("=", "="),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    experiment = Experiment.parse(LEAST + f"logic: {{preset: {{name: p, x: {text}}}}}")
    assert experiment.logic.preset is not None
    assert experiment.logic.preset.settings == {"x": value}


def test_all_means_every_sample_and_every_client() -> None:
    experiment = Experiment.parse(LEAST, "exp.yaml", ["compute.train.batch_size=all"])
    assert experiment.compute.train.batch_samples == 0
    assert experiment.network.wait_for == "all"
    some = experiment.with_overrides(["network.wait_for=7", "compute.train.batch_size=32"])
    assert (some.clients_awaited, some.compute.train.batch_samples) == (7, 32)


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("127.0.0.1:7070", "127.0.0.1", 7070),
        ("[::1]:0", "::1", 0),
        ("a.org:80", "a.org", 80),
    ],
)
def test_an_address_is_a_host_and_a_port(address: str, host: str, port: int) -> None:
    network = Experiment.parse(LEAST + f"network: {{address: '{address}'}}").network
    assert (network.host, network.port) == (host, port)


@pytest.mark.parametrize(
    "address", ["", "7070", "host", "::1:70", "h:99999", "h:-1", "a b:1", ":1"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    message = refused(LEAST + f"network: {{address: '{address}'}}")
    assert message.startswith("exp.yaml:4: network.address: ")


# --- what a file may not say


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "exp.yaml: is empty"),
        ("# nothing\n", "exp.yaml: is empty"),
        ("- 1\n", "exp.yaml:1: must be a mapping"),
        ("just text", "exp.yaml:1: must be a mapping"),
        ("a: 1\nb: {c: 1,\n c: 2}\n", "exp.yaml:3: the key 'c' occurs twice in b"),
        ("seed: 1\nrounds: 2\nseed: 1\n", "exp.yaml:3: the key 'seed' occurs twice"),
        ("a: &x 1\nb: *x\n", "exp.yaml:1: anchors and aliases"),
        ("a: 1\nb: *x\n", "exp.yaml:2: anchors and aliases"),
        ("a: !!python/object/apply:os.system [ls]\n", "exp.yaml:1: the tag '!!python/object"),
        ("a: 1\nb: !mine {}\n", "exp.yaml:2: the tag '!mine' is not allowed"),
        ("a: 1\n\tb: 2\n", "exp.yaml:2: is indented with a tab"),
        ("a: 1\n---\nb: 2\n", "exp.yaml:2: holds more than one document"),
        ("a: {b: 1\n", "exp.yaml:2: is not YAML"),
        ("a: 1\nb: \x00\n", "exp.yaml:2: holds the character '\\x00'"),
        ('a: "\\ud800"\n', "exp.yaml:1: text holds half of a surrogate pair"),
        ("a: \ud800\n", "exp.yaml:1: holds the character '\\ud800'"),
        ("1: 2\n", "exp.yaml:1: a key must be text, not 1"),
        ("? [a, b]\n: 2\n", "exp.yaml:1: a key must be text"),
        ("a: .nan\n", "exp.yaml:1: .nan is not a setting"),
        ("a: " + "9" * 30, "exp.yaml:1: a whole number has more than 64 bits"),
        ("[" * 100_000, "exp.yaml:1: nested more than"),
        ("- " * 100_000, "exp.yaml:1: nested more than"),
        ("a: [" + "1," * 30_000, "exp.yaml:1: more than 20000 values"),
        ("a" * (SIZE_LIMIT_BYTES + 1), "exp.yaml: is larger than 1 MiB"),
    ],
)
def test_surprising_yaml_is_refused_in_one_line(text: str, message: str) -> None:
    said = refused(text)
    assert said.startswith(message)
    assert "\n" not in said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("seed: true", "seed: must be a whole number, not true"),
        ("seed: -1", "seed: must be at least 0, not -1"),
        ("seed: 1.5", "seed: must be a whole number, not 1.5"),
        ("name: a/b", "name: must be letters, digits and"),
        ("name: ../x", "name: must be letters, digits and"),
        ("stop: {accuracy: 98}", "stop.accuracy: must be at most 1"),
        ("stop: {loss: .inf}", "stop.loss: must be a finite number"),
        ("logic: {min_updates: -1}", "logic.min_updates: must be at least 0, not -1"),
        ("logic: {min_updates: 21}", "logic.min_updates: must be at most clients (20), not 21"),
        ("network: {wait_for: 21}", "network.wait_for: must be at most clients (20), not 21"),
        ("network: {wait_for: some}", "network.wait_for: must be all or a whole number from 1"),
        ("network: {wait_for: true}", "network.wait_for: must be"),
        ("network: {insecure: 3}", "network.insecure: must be true or false, not 3"),
        ("network: {tls: {ca: x, key: y}}", "network.tls.certificate: is missing"),
        ("network: {tls: [a]}", "network.tls: must be"),
        ("network: {token_file: ''}", "network.token_file: must be a path, not ''"),
        ("run: {checkpoint: {every: 0}}", "run.checkpoint.every: must be at least 1, not 0"),
        ("logic: {hooks: clip}", "logic.hooks: must be a list, not 'clip'"),
        ("logic: {hooks: [clip, 3]}", "logic.hooks.1: must be a name or a mapping with a name"),
        ("logic: {selector: {fraction: 1}}", "logic.selector: must say its name"),
        ("logic: {selector: {name: 3}}", "logic.selector: the name must be text"),
        ("logic: {selector: [uniform]}", "logic.selector: must be a name or a mapping"),
        ("logic: yes", "logic: must be a mapping (key: value), not 'yes'"),
        ("sed: 1", "unknown key 'sed'; did you mean 'seed'? the keys here are: clients, clock"),
        ("logic: {selct: x}", "logic.selct: unknown key 'selct'; did you mean 'selector'?"),
        (
            "learning_rate: 0.1",
            "learning_rate: is not a key here; did you mean compute.train.learning_rate?",
        ),
    ],
)
def test_a_wrong_value_is_told_with_its_line_and_path(change: str, message: str) -> None:
    said = refused(LEAST + change + "\n")
    assert said.startswith("exp.yaml:4: ")
    assert message in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("learning_rate: 0", "compute.train.learning_rate: must be greater than 0"),
        ("momentum: 1", "compute.train.momentum: must be less than 1"),
        ("batch_size: 0", "compute.train.batch_size: must be all or a whole number from 1, not 0"),
        ("epochs: 0", "compute.train.epochs: must be at least 1, not 0"),
        ("weight_decay: -1", "compute.train.weight_decay: must be at least 0"),
        ("schedule: null", "compute.train.schedule: must be a name or a mapping with a name"),
    ],
)
def test_wrong_training_is_told_on_its_own_line(change: str, message: str) -> None:
    text = f"rounds: 1\nclients: 2\ncompute:\n  model: m\n  data: d\n  train:\n    {change}\n"
    assert refused(text).startswith(f"exp.yaml:7: {message}")


def test_normalise_takes_one_number_or_one_per_channel() -> None:
    head = "rounds: 1\nclients: 2\ncompute:\n  model: m\n  data: d\n  normalise: "
    experiment = Experiment.parse(head + "{scale: 255, mean: [0.5, 0.4], std: 2}")
    assert experiment.compute.normalise is not None
    assert experiment.compute.normalise.mean == (0.5, 0.4)
    for wrong in ("{mean: [a]}", "{std: [1, 0]}", "{scale: 0}", "{std: x}", "{mean: {a: 1}}"):
        said = refused(head + wrong)
        assert said.startswith("exp.yaml:6: compute.normalise.")
        assert "\n" not in said


def test_all_problems_are_told_together() -> None:
    said = refused("rounds: 0\nclients: x\nlogik: 1\n", "compute={model: a}")
    assert said.split("\n") == [
        "exp.yaml: 4 problems",
        "  exp.yaml:1: rounds: must be at least 1, not 0",
        "  exp.yaml:2: clients: must be a whole number, not 'x'",
        "  --set compute.data: is missing; add it",
        "  exp.yaml:3: logik: unknown key 'logik'; did you mean 'logic'? "
        "the keys here are: clients, clock, compute, executor, logic, name, network, rounds, run, "
        "seed, stop, without",
    ]


def test_a_thousand_problems_do_not_fill_the_screen() -> None:
    said = refused("".join(f"key{i}: 1\n" for i in range(1000)))
    assert len(said.split("\n")) < 30


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"name: caf\xe9\n"])
def test_what_is_not_utf_8_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "exp.yaml"
    path.write_bytes(b"a: 1\n" + content)
    with pytest.raises(ExperimentError, match=r"exp.yaml:2: is not UTF-8 text"):
        Experiment.read(path)


def test_a_path_that_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match="there is no such file"):
        Experiment.read(tmp_path / "none.yaml")
    with pytest.raises(ExperimentError, match="is a folder"):
        Experiment.read(tmp_path)
    with pytest.raises(ExperimentError, match="cannot be read: embedded null byte"):
        Experiment.read("a\0b")
    (tmp_path / "file").touch()
    with pytest.raises(ExperimentError, match=r"cannot be read: Not a directory$"):
        Experiment.read(tmp_path / "file" / "x.yaml")
    big = tmp_path / "big.yaml"
    big.write_bytes(b"#" * (SIZE_LIMIT_BYTES + 1))
    with pytest.raises(ExperimentError, match="larger than 1 MiB"):
        Experiment.read(big)


def test_a_byte_order_mark_is_no_character(tmp_path: Path) -> None:
    path = tmp_path / "exp.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + LEAST.encode())
    assert Experiment.read(path) == Experiment.parse(LEAST)


# --- overrides


def test_an_override_reaches_into_a_component() -> None:
    experiment = Experiment.parse(
        LEAST,
        "exp.yaml",
        [
            "logic.selector=uniform",
            "logic.selector.fraction=0.2",
            "logic.hooks.0=clip",
            "logic.hooks.0.norm=2",
            "logic.hooks.1={name: noise, deviation: 1e-3}",
            "compute.partition.alpha=1",
            "compute.normalise.mean=[0.1, 0.2]",
            "compute.normalise.mean.1=0.3",
            "network.tls.ca=a",
            "network.tls={ca: a, certificate: b, key: c}",
            "network.tls.key=k",
        ],
    )
    assert experiment.logic.selector == Component("uniform", {"fraction": 0.2})
    assert experiment.logic.hooks == (
        Component("clip", {"norm": 2}),
        Component("noise", {"deviation": 0.001}),
    )
    assert experiment.compute.partition == Component("iid", {"alpha": 1})
    assert experiment.compute.normalise is not None
    assert experiment.compute.normalise.mean == (0.1, 0.3)
    assert experiment.network.tls is not None
    assert experiment.network.tls.key == Path("k")


def test_an_override_leaves_the_mapping_that_it_was_given_alone() -> None:
    tree = yaml.safe_load(WHOLE)
    before = copy.deepcopy(tree)
    Experiment.from_dict(tree, ["logic.selector.fraction=1", "logic.hooks.1.deviation=3", "seed=4"])
    assert tree == before


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed", "--set 'seed': must be PATH=VALUE"),
        ("=1", "--set '=1': must be PATH=VALUE"),
        ("a..b=1", "--set 'a..b=1': must be PATH=VALUE"),
        ("sed=1", "--set sed: unknown key 'sed'; did you mean 'seed'?"),
        ("logic.selct.x=1", "--set logic.selct: unknown key 'selct'; did you mean 'selector'?"),
        ("fraction=1", "--set fraction: unknown key 'fraction'; the keys here are"),
        (
            "learning_rate=1",
            "--set learning_rate: is not a key here; did you mean compute.train.learning_rate?",
        ),
        ("rounds.x=1", "--set rounds.x: rounds is a single value and has no keys"),
        (
            "logic.selector.x=1",
            "--set logic.selector.x: no component is named yet; set logic.selector=",
        ),
        ("logic.hooks.1=x", "--set logic.hooks.1: logic.hooks has no items; 0 appends one"),
        ("logic.hooks.a=x", "--set logic.hooks.a: logic.hooks has no items; 0 appends one"),
        ("seed=*x", "--set seed: anchors and aliases"),
        ("seed={a: 1", "--set seed: is not YAML"),
        ("seed=-1", "--set seed: must be at least 0, not -1"),
        ("seed=", "--set seed: must be a whole number, not null"),
    ],
)
def test_a_wrong_override_is_told_in_one_line(override: str, message: str) -> None:
    said = refused(LEAST, override)
    assert said.startswith(message)
    assert "\n" not in said


# --- out and in again


def test_what_is_written_reads_back_equal() -> None:
    for text in (WHOLE, LEAST):
        experiment = Experiment.parse(text)
        again = Experiment.parse(experiment.to_yaml())
        assert again == experiment
        assert again.to_yaml() == experiment.to_yaml()
        assert again.digest() == experiment.digest()
        assert Experiment.from_dict(experiment.tree()) == experiment


def test_every_key_is_written_so_that_a_run_hides_no_default() -> None:
    sections = ["network.tls={ca: a, certificate: b, key: c}", "compute.normalise.scale=2"]
    sections.append("executor.ray={workers: 2}")
    written = yaml.safe_load(Experiment.parse(LEAST, "exp.yaml", sections).to_yaml())
    for place in keys_of(Experiment):
        node = written
        for part in place:
            node = node[part]


def test_an_experiment_can_be_copied_and_sent_to_a_worker_process() -> None:
    experiment = Experiment.parse(WHOLE)
    assert pickle.loads(pickle.dumps(experiment)) == experiment  # noqa: S301 - our own bytes
    assert copy.deepcopy(experiment) == experiment


def test_the_digest_is_of_what_determines_the_result() -> None:
    digest = Experiment.parse(WHOLE).digest()
    assert len(digest) == 64
    same = ["name=x", "network.address=a:1", "run.folder=elsewhere", "run.checkpoint.keep=9"]
    assert Experiment.parse(WHOLE, "other.yaml", same).digest() == digest
    others = {
        Experiment.parse(WHOLE, "exp.yaml", [change]).digest()
        for change in (
            "seed=2",
            "rounds=149",
            "clients=99",
            "compute.train.learning_rate=0.03",
            "logic.selector.fraction=0.2",
            "logic.hooks=[]",
            "compute.model=2nn",
        )
    }
    assert len(others - {digest}) == 7


def test_the_digest_is_the_same_in_another_process() -> None:
    code = (
        "import sys; from fedmx.experiment import Experiment\n"
        "print(Experiment.parse(sys.stdin.read()).digest())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=WHOLE,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    assert done.stdout.strip() == Experiment.parse(WHOLE).digest()


# --- from Python


def test_an_experiment_is_made_from_python_as_from_a_file() -> None:
    made = Experiment(rounds=5, clients=20, compute={"model": "lenet5", "data": "digits"})
    assert made == Experiment.parse(LEAST)
    with pytest.raises(ExperimentError, match=r"^rounds: must be at least 1, not 0$"):
        Experiment(rounds=0, clients=20, compute={"model": "lenet5", "data": "digits"})


def test_a_dataclass_given_as_an_object_is_written_by_its_name_and_fields() -> None:
    experiment = Experiment.from_dict(
        {
            "rounds": 1,
            "clients": 2,
            "compute": {"model": Plain, "data": "digits"},
            "logic": {"hooks": [Noise(0.5), "clip"]},
        }
    )
    noise = experiment.logic.hooks[0]
    assert noise.object == Noise(0.5)
    assert noise.reference() == {"name": f"{__name__}:Noise", "deviation": 0.5, "layers": [1, 2]}
    assert experiment.portable
    experiment.require_portable()
    again = Experiment.parse(experiment.to_yaml())
    assert again.compute.model == Component(f"{__name__}:Plain")
    assert again.digest() == experiment.digest()
    changed = experiment.with_overrides(["rounds=3"])
    assert changed.logic.hooks[0].object is noise.object


def test_what_a_file_cannot_hold_is_noted_and_refused_for_a_deployment() -> None:
    class Local:
        pass

    experiment = Experiment.from_dict(
        {
            "rounds": 1,
            "clients": 2,
            "compute": {"model": Local, "data": Plain()},
            "logic": {"hooks": [Named(), Noise(layers=(object(),)), "clip"]},  # type: ignore[arg-type]
        }
    )
    assert not experiment.portable
    with pytest.raises(ExperimentError) as caught:
        experiment.require_portable()
    assert [line.split(": ")[0] for line in caught.value.problems] == [
        "compute.model",
        "compute.data",
        "logic.hooks.0",
        "logic.hooks.1",
    ]
    written = experiment.to_yaml()
    assert "portable: false" in written
    assert f"data: <object {__name__}:Plain>" in written
    again = Experiment.parse(written)
    assert not again.portable
    assert again.digest() == experiment.digest()
    assert Experiment.parse(again.to_yaml()) == again


def test_reading_an_experiment_imports_no_mxnet() -> None:
    code = "import sys, fedmx.experiment; print(sorted({'mxnet', 'matplotlib'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.strip() == "[]"


# --- any text


def check_parsed(text: str, *overrides: str) -> None:
    """The text is an experiment that can be written and read, or an error in whole lines."""
    problem, experiment = "", None
    try:
        experiment = Experiment.parse(text, "exp.yaml", overrides)
    except ExperimentError as error:
        problem = str(error)
    assert all(line.isprintable() for line in problem.split("\n"))
    assert (experiment is None) == bool(problem)
    if experiment is not None:
        assert Experiment.parse(experiment.to_yaml()) == experiment


@given(st.text(max_size=200))
def test_any_text_is_an_experiment_or_an_experiment_error(text: str) -> None:
    check_parsed(text)
    check_parsed(LEAST + text)
    check_parsed(LEAST.replace("digits", text))


PIECES = [
    "a",
    "rounds",
    "compute",
    "name",
    "&",
    "*",
    "!t",
    "'",
    '"',
    "|",
    ">",
    "?",
    "1",
    "1e3",
    "null",
    "true",
    "#",
    "<<",
    "=",
    "~",
    "\\",
    "@",
    "`",
    ".inf",
    "-",
    "+",
    ".",
    ",",
    "{",
    "}",
    "[",
    "]",
    ":",
    "---",
    "...",
    "%YAML",
    "%TAG",
]
SPACES = [" ", "  ", "\n", "\n  ", ": ", "- ", "\t", "\r", "\x85", "\u2028", "\ufeff", "\0"]


@given(st.lists(st.sampled_from(PIECES + SPACES), max_size=40).map("".join))
def test_any_pieces_of_yaml_are_an_experiment_or_an_experiment_error(text: str) -> None:
    check_parsed(text)
    check_parsed(LEAST + text)


paths = st.lists(
    st.sampled_from([dotted(place) for place in keys_of(Experiment)])
    | st.sampled_from(["0", "1", "9", "name", "x", "", "settings", "portable"])
    | st.text(max_size=5),
    max_size=4,
).map(".".join)
values = st.sampled_from(
    ["1", "0.5", "a", "[]", "{}", "{name: a}", "[a, {name: b}]", "", "null", "all"]
)


@given(st.lists(st.builds("{}={}".format, paths, values | st.text(max_size=10)), max_size=4))
def test_any_overrides_are_an_experiment_or_an_experiment_error(overrides: list[str]) -> None:
    check_parsed(LEAST, *overrides)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | texts
)
settings = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
)
names = st.from_regex(r"[a-z][a-z0-9_:.-]{0,10}", fullmatch=True)
components = st.builds(
    lambda name, given: {**given, "name": name}, names, st.dictionaries(texts, settings, max_size=3)
)


@given(
    st.lists(components, max_size=3),
    components,
    st.floats(1e-300, 1e300),
    st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True),
)
def test_any_experiment_that_is_written_reads_back_equal(
    hooks: list[object], data: object, learning_rate: float, name: str
) -> None:
    experiment = Experiment.from_dict(
        {
            "name": name,
            "rounds": 1,
            "clients": 2,
            "compute": {"model": "m", "data": data, "train": {"learning_rate": learning_rate}},
            "logic": {"hooks": hooks},
        }
    )
    again = Experiment.parse(experiment.to_yaml())
    assert again == experiment
    assert again.digest() == experiment.digest()


def test_the_documentation_names_every_key() -> None:
    page = (ROOT / "docs" / "experiment-file.md").read_text()
    missing = [dotted(place) for place in keys_of(Experiment) if f"`{dotted(place)}`" not in page]
    assert missing == []


# --- a run without clients


def test_the_clients_that_a_run_is_without_are_told_once_and_ascending() -> None:
    experiment = Experiment.parse(LEAST + "without: [7, 3, 7]\n")
    assert experiment.without == (3, 7)
    assert experiment.clients_awaited == 18
    assert Experiment.parse(experiment.to_yaml()) == experiment
    assert "at most clients (20) less those of without (1), not 20" in refused(
        LEAST, "without=[3]", "logic.min_updates=20"
    )


def test_who_is_left_out_decides_the_result_and_nobody_is_as_before_there_was_the_key() -> None:
    one, other = Experiment.parse(LEAST), Experiment.parse(LEAST + "without: [3]\n")
    assert one.digest() == "56ecacc4318fdabd3af249bdac0205ae7e83edde3111dc14b7d91b8200b62a72"
    assert other.digest() != one.digest()
