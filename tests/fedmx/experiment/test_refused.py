"""Wrong files are refused in one line with file and line; the limits of all keys."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from fedmx import Experiment, ExperimentError
from fedmx.components import build
from fedmx.components.executors import ray
from fedmx.components.section import Section
from fedmx.experiment import sections
from fedmx.experiment.reader import SIZE_LIMIT_BYTES
from fedmx.experiment.sections import MOST_HOOKS
from tests.fedmx.experiment.texts import LEAST, refused


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
        (f"a: {2**64}", "exp.yaml:1: a whole number has more than 64 bits"),
        (f"a: {-(2**63) - 1}", "exp.yaml:1: a whole number has more than 64 bits"),
        ("[" * 100_000, "exp.yaml:1: nested more than"),
        ("- " * 100_000, "exp.yaml:1: nested more than"),
        ("[" * 32 + "]" * 32, "exp.yaml:1: must be a mapping"),
        ("[" * 33 + "]" * 33, "exp.yaml:1: nested more than 32 deep"),
        ("a: [" + "1," * 30_000, "exp.yaml:1: more than 20000 values"),
        ("a" * (SIZE_LIMIT_BYTES + 1), "exp.yaml: is larger than 1 MiB"),
    ],
)
def test_surprising_yaml_is_refused_in_one_line(text: str, message: str) -> None:
    said = refused(text)
    assert said.startswith(message)
    assert "\n" not in said


@pytest.mark.parametrize("number", [2**64 - 1, -(2**63)])
def test_a_whole_number_may_have_64_bits(number: int) -> None:
    said = refused(f"a: {number}")
    assert "exp.yaml:1: a: unknown key" in said
    assert "64 bits" not in said


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
        ("stop: {metric: 0.5}", "stop.metric: must be a mapping"),
        ("stop: {metric: {rmse: .inf}}", "stop.metric.rmse: must be a finite number"),
        ("stop: {metric: {rmse: true}}", "stop.metric.rmse: must be a"),
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
        ("sed: 1", "unknown key 'sed'; did you mean 'seed'? the keys here are: attack, clients"),
        ("logic: {selct: x}", "logic.selct: unknown key 'selct'; did you mean 'selector'?"),
        ("learning_rate: 0.1", "did you mean compute.train.learning_rate?"),
        ("logic: {hooks: [clip, top_k]}", "logic.hooks.1: unknown hook 'top_k'; did you mean"),
        ("logic: {aggregator: {name: medan}}", "logic.aggregator: unknown aggregator 'medan'"),
    ],
)
def test_a_wrong_value_is_reported_with_its_line_and_path(change: str, message: str) -> None:
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
def test_wrong_training_is_reported_on_its_own_line(change: str, message: str) -> None:
    head = "rounds: 1\nclients: 2\ncompute:\n  model: lenet5\n  data: digits\n  train:\n    "
    assert refused(f"{head}{change}\n").startswith(f"exp.yaml:7: {message}")


def test_normalise_takes_one_number_or_one_per_channel() -> None:
    head = "rounds: 1\nclients: 2\ncompute:\n  model: lenet5\n  data: digits\n  normalise: "
    experiment = Experiment.parse(head + "{scale: 255, mean: [0.5, 0.4], std: 2}")
    assert experiment.compute.normalise.mean == (0.5, 0.4)
    for wrong in ("{mean: [a]}", "{std: [1, 0]}", "{scale: 0}", "{std: x}", "{mean: {a: 1}}"):
        said = refused(head + wrong)
        assert said.startswith("exp.yaml:6: compute.normalise.")
        assert "\n" not in said


def test_all_problems_are_reported_together() -> None:
    said = refused("rounds: 0\nclients: x\nlogik: 1\n", "compute={model: lenet}")
    head, *lines = said.split("\n")
    assert head == "exp.yaml: 5 problems"
    for line, start in zip(
        lines,
        (
            "exp.yaml:1: rounds: must be at least 1, not 0",
            "exp.yaml:2: clients: must be a whole number, not 'x'",
            "--set compute.model: unknown model 'lenet'; did you mean 'lenet5'?",
            "--set compute.data: is missing",
            "exp.yaml:3: logik: unknown key 'logik'; did you mean 'logic'? the keys here are: ",
        ),
        strict=True,
    ):
        assert line.startswith(f"  {start}")


FIVE_MISTAKES = """\
rounds: 0
clients: 2
compute:
  model: lenet5
  data: digits
  partition: {name: dirichlet, alpha: -1}
  train: {learning_rate: x}
logic:
  selector: {name: uniform, fraction: 1.5}
  hooks: [{name: clip, nrm: 1}]
"""


def test_wrong_parts_of_a_file_and_wrong_overrides_are_reported_together(tmp_path: Path) -> None:
    file = tmp_path / "five.yaml"
    file.write_text(FIVE_MISTAKES)
    with pytest.raises(ExperimentError) as caught:
        Experiment.read(file, ["round=3", "nonsense", "seed=-1"])
    places = [one.removeprefix(f"{file}:").split(": ")[:2] for one in caught.value.problems]
    assert places == [
        ["--set round", "unknown key 'round'; did you mean 'rounds'? the keys here are"],
        ["--set 'nonsense'", "must be PATH=VALUE, as logic.selector.fraction=0.2"],
        ["--set seed", "must be at least 0, not -1"],
        ["1", "rounds"],
        ["6", "compute.partition.alpha"],
        ["7", "compute.train.learning_rate"],
        ["9", "logic.selector.fraction"],
        ["10", "logic.hooks.0.nrm"],
    ]


def test_values_that_depend_on_others_are_reported_together() -> None:
    said = refused(
        "rounds: 1\nclients: 2\nlogic: {min_updates: 3}\nclock: {dropout: 0.5}\n"
        "stop: {client_accuracy: 0.9}\ncompute: {model: lenet5, data: digits}\n"
    )
    assert [line.split(": ")[1] for line in said.split("\n")[1:]] == [
        "logic.min_updates",
        "clock.dropout",
        "stop.client_accuracy",
    ]


def test_of_15000_hooks_none_is_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built: list[str] = []
    monkeypatch.setattr(build, "build", lambda kind, one: built.append(kind))
    text = LEAST + f"logic: {{hooks: [{', '.join(['stc'] * 15_000)}]}}\n"
    assert f"hooks: must have at most {MOST_HOOKS} items" in refused(text)
    assert "hook" not in built


def test_a_thousand_problems_do_not_fill_the_screen() -> None:
    assert len(refused("".join(f"key{i}: 1\n" for i in range(1000))).split("\n")) < 30


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"name: caf\xe9\n"])
def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "exp.yaml"
    path.write_bytes(b"a: 1\n" + content)
    with pytest.raises(ExperimentError, match=r"exp.yaml:2: is not UTF-8 text"):
        Experiment.read(path)


def test_a_pipe_is_refused_before_anything_is_read_from_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    for path in (pipe, Path(os.devnull)):
        with pytest.raises(ExperimentError, match=f"{path}: is not a regular file"):
            Experiment.read(path)


def test_a_path_without_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match="there is no such file"):
        Experiment.read(tmp_path / "none.yaml")
    with pytest.raises(ExperimentError, match="is a folder"):
        Experiment.read(tmp_path)
    with pytest.raises(ExperimentError, match=r"cannot be read: .*embedded null"):
        Experiment.read("a\0b")
    (tmp_path / "file").touch()
    with pytest.raises(ExperimentError, match=r"cannot be read: Not a directory$"):
        Experiment.read(tmp_path / "file" / "x.yaml")
    big = tmp_path / "big.yaml"
    big.write_bytes(b"#" * (SIZE_LIMIT_BYTES + 1))
    with pytest.raises(ExperimentError, match="larger than 1 MiB"):
        Experiment.read(big)


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "exp.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + LEAST.encode())
    assert Experiment.read(path) == Experiment.parse(LEAST, path.name)


TINY = 5e-324
BELOW_0, BELOW_1, ABOVE_1 = -TINY, math.nextafter(1, 0), math.nextafter(1, 2)
LARGEST = math.nextafter(math.inf, 0)
NOT_FINITE = (math.inf, math.nan)
MOST = 2**31 - 1

COUNT = ((0, -1, MOST + 1, 1.5, True, "x"), (1, MOST))
WHOLE = ((-1, MOST + 1, 0.5, True), (0, MOST))
COUNT_OR_ALL = ((0, -1, MOST + 1, True, "every"), (1, MOST, "all"))
POSITIVE = ((0.0, -1.0, *NOT_FINITE, True), (TINY, LARGEST, 1))
NOT_NEGATIVE = ((BELOW_0, *NOT_FINITE, True), (0.0, LARGEST))
SHARE = ((0.0, ABOVE_1, *NOT_FINITE), (TINY, 1.0))

# By section: the default of each setting, what is refused, and the nearest that is accepted.
LIMITS = {
    "StopSection": {
        "accuracy": (None, *SHARE),
        "loss": (None, *POSITIVE),
        "seconds": (None, *POSITIVE),
        "clock_s": (None, *POSITIVE),
        "client_accuracy": (None, *SHARE),
    },
    "NormaliseSection": {
        "scale": (1.0, *POSITIVE),
        "mean": (0.0, (*NOT_FINITE, True), (-1.0, (0.0, 1.0))),
        "std": (1.0, (*POSITIVE[0], (1.0, 0.0)), (TINY, (1.0, 2.0))),
    },
    "TrainSection": {
        "epochs": (1, *COUNT),
        "steps": (None, *WHOLE),
        "batch_size": (10, *COUNT_OR_ALL),
        "learning_rate": (0.1, *POSITIVE),
        "momentum": (0.0, (BELOW_0, 1.0, *NOT_FINITE), (0.0, BELOW_1)),
        "weight_decay": (0.0, *NOT_NEGATIVE),
    },
    "EvaluateSection": {
        "every": (1, *COUNT),
        "batch_size": (500, *COUNT),
        "sample": (None, *COUNT),
        "per_client": (False, (2, "maybe"), (True, False)),
    },
    "LogicSection": {
        "min_updates": (1, *WHOLE),
        "over_select": (1.0, (BELOW_1, math.nextafter(100, 101), *NOT_FINITE), (1.0, 100.0)),
        "max_update": (1000.0, (0, -1, *NOT_FINITE), (1e-3, 1e30)),
    },
    "ClockSection": {
        "deadline_s": (None, *POSITIVE),
        "dropout": (0.0, (BELOW_0, ABOVE_1, *NOT_FINITE), (0.0, 1.0)),
    },
    "NetworkSection": {
        "address": (
            "127.0.0.1:7070",
            (
                *("", "host", ":7070", "host:", "::1:70", "a b:70", "a/b:70", "u@h:70", "[]:70"),
                *("host:65536", "host:-1", "host:+1", "host:000001", "host:1.0", "host:²"),
            ),
            ("host:0", "host:65535", "[::1]:7070", "host:00001"),
        ),
        "insecure": (False, (2,), (True, False)),
        "heartbeat_s": (
            5.0,
            (math.nextafter(0.1, 0), math.nextafter(3600, 3601), *NOT_FINITE),
            (0.1, 3600.0),
        ),
        "rejoin_s": (60.0, *NOT_NEGATIVE),
        "wait_for": ("all", *COUNT_OR_ALL),
        "max_samples": (None, (0, -1, MOST + 1, 1.5, True, "all"), (1, MOST, "partition", None)),
        "violations": (10, *COUNT),
        "log_lines": (20, *COUNT),
        "patience": (10.0, *POSITIVE),
        "patience_s": (None, *POSITIVE),
        "incoming_mib": (None, *COUNT),
        "token_file": (None, ("", "a\0b"), (Path("token"),)),
    },
    "CheckpointSection": {"every": (1, *COUNT)},
    "KeepSection": {"last": (5, *COUNT), "every": (None, *COUNT)},
    "RunSection": {
        "folder": (Path("runs"), ("", "a\0b"), (Path("elsewhere"),)),
        "fold_memory_mb": (None, *COUNT),
    },
    "RaySection": {"address": (None, (True,), ("auto",)), "workers": (None, *COUNT)},
    "ExecutorSection": {"processes": (None, *COUNT_OR_ALL)},
}


def section_named(name: str) -> type[Section]:
    return getattr(ray if name == "RaySection" else sections, name)


SETTINGS = [
    pytest.param(section, setting, *limits, id=f"{section}-{setting}")
    for section, settings in LIMITS.items()
    for setting, limits in settings.items()
]


@pytest.mark.parametrize(("section", "setting", "default", "refused", "accepted"), SETTINGS)
def test_a_setting_is_refused_beyond_its_limits_and_accepted_at_them(
    section, setting, default, refused, accepted
) -> None:
    make = section_named(section)
    assert getattr(make(), setting) == default
    for value in refused:
        with pytest.raises(ValidationError, match=setting):
            make(**{setting: value})
    for value in accepted:
        assert getattr(make(**{setting: value}), setting) == value


def test_an_executor_is_one_of_three() -> None:
    made = {
        "serial": sections.ExecutorSection(),
        "processes": sections.ExecutorSection(processes=3),
        "ray": sections.ExecutorSection(ray=ray.RaySection()),
    }
    assert {name: executor.name for name, executor in made.items()} == {name: name for name in made}
    every = sections.ExecutorSection.model_validate("processes")
    assert every == sections.ExecutorSection(processes="all")
    assert sections.ExecutorSection.model_validate("ray").name == "ray"
    assert sections.ExecutorSection.model_validate("serial").name == "serial"
    with pytest.raises(ValidationError, match="both processes and ray"):
        sections.ExecutorSection(processes=1, ray=ray.RaySection())
    with pytest.raises(ValidationError, match="did you mean 'processes'"):
        sections.ExecutorSection.model_validate("process")


@pytest.mark.parametrize("section", LIMITS)
def test_a_section_is_frozen_and_takes_no_other_key(section) -> None:
    made = section_named(section)()
    with pytest.raises(ValidationError, match="Extra inputs"):
        type(made)(nonsense=1)
    name = next(iter(LIMITS[section]))
    with pytest.raises(ValidationError, match="frozen"):
        setattr(made, name, getattr(made, name))
