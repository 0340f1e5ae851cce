"""What an experiment file may not say is refused in one line, with its place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fedmx import Experiment, ExperimentError
from fedmx.experiment.reader import SIZE_LIMIT_BYTES
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
    head = "rounds: 1\nclients: 2\ncompute:\n  model: lenet5\n  data: digits\n  train:\n    "
    assert refused(f"{head}{change}\n").startswith(f"exp.yaml:7: {message}")


def test_normalise_takes_one_number_or_one_per_channel() -> None:
    head = "rounds: 1\nclients: 2\ncompute:\n  model: lenet5\n  data: digits\n  normalise: "
    experiment = Experiment.parse(head + "{scale: 255, mean: [0.5, 0.4], std: 2}")
    assert experiment.compute.normalise is not None
    assert experiment.compute.normalise.mean == (0.5, 0.4)
    for wrong in ("{mean: [a]}", "{std: [1, 0]}", "{scale: 0}", "{std: x}", "{mean: {a: 1}}"):
        said = refused(head + wrong)
        assert said.startswith("exp.yaml:6: compute.normalise.")
        assert "\n" not in said


def test_all_problems_are_told_together() -> None:
    said = refused("rounds: 0\nclients: x\nlogik: 1\n", "compute={model: lenet}")
    lines = said.split("\n")
    assert lines.pop(3).startswith(
        "  --set compute.model: unknown model 'lenet'; did you mean 'lenet5'"
    )
    assert lines == [
        "exp.yaml: 5 problems",
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


def test_a_pipe_is_refused_before_anything_is_read_from_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    for path in (pipe, Path(os.devnull)):
        with pytest.raises(ExperimentError) as caught:
            Experiment.read(path)
        assert str(caught.value) == (
            f"{path}: is no regular file, and an experiment is read more than once; write it to a "
            "file, and name that"
        )


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
