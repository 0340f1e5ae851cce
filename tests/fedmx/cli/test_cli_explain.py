"""`fedmx explain` says what a name stands for, and spells a preset out as it really is."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pty
import re
import sys
from pathlib import Path

import pytest
import yaml

from fedmx.cli.names import explanation, preset_section
from fedmx.cli.output import show_text
from fedmx.components.build import build
from fedmx.components.catalogue import components
from fedmx.components.component import Component
from fedmx.components.settings import signature_of
from layers.compute.engines.mxnet.engine import MXNetEngine
from layers.compute.engines.mxnet.models import build_model
from layers.logic import PRESETS
from tests.fedmx.command_line import fedmx

NAMES = sorted({name for entries in components().values() for name in entries if name[-1] != ":"})


def told(name: str) -> str:
    return "\n".join(explanation(name))


def test_a_preset_is_explained_by_its_parts_with_the_values_that_it_gives_them() -> None:
    text = told("projected-stc")
    for part in ("selector uniform", "aggregator fedfv", "hook stc"):
        assert f"\n{part}\n" in text
    for result in (
        "fraction = null: a number from 0 to 1",
        "p_up = 0.1: a number above 0 to 1 or null",
        "share of an update's values that are sent",
        "(Sattler et al. 2019)",
        "The server keeps each client's last update",
        "on the client: receive, send",
        "encodes the model",
    ):
        assert result in text
    assert "weights = 'uniform'" in told("stc"), "the preset's value, not the aggregator's default"


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_the_lines_spelled_out_by_hand_make_the_very_preset(name: str) -> None:
    _, _, told_lines = told(name).partition("by hand:\n")
    preset = PRESETS[name]()
    section = yaml.safe_load(told_lines.partition(": hook\n")[0])["logic"]
    assert section == yaml.safe_load(yaml.safe_dump(preset_section(preset)))
    selector = build("selector", Component.of(section["selector"]))
    aggregator = build("aggregator", Component.of(section["aggregator"]))
    hooks = tuple(build("hook", Component.of(hook)) for hook in section.get("hooks", []))
    assert dataclasses.replace(preset, selector=selector, aggregator=aggregator, hooks=hooks) == (
        preset
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_explained_with_each_of_its_settings(name: str) -> None:
    text = told(name)
    for entries in [entries for entries in components().values() if name in entries]:
        for setting in signature_of(entries[name]).settings.values():
            assert f"  {setting.name} = " in text or f"  {setting.name}: " in text
    assert "Args:" not in text
    assert "Attributes:" not in text


def test_a_member_of_a_family_is_explained_as_the_family() -> None:
    assert told("gluon:resnet18_v1").startswith("gluon:resnet18_v1: model\n\nA model of ")


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("compute.train.learning_rate", ["compute.train.learning_rate: key", "default: 0.1"]),
        ("learning_rate", ["compute.train.learning_rate: key"]),
        ("compute.train", ["compute.train: section", "compute.train.epochs: count (default: 1)"]),
        ("stop", ["stop: section", "    Test loss to get down to."]),
        ("every", ["compute.evaluate.every: key", "run.checkpoint.every: key"]),
        ("logic.hooks.0.mu", ["logic.hooks.0.mu: setting of these hooks"]),
        ("logic.hooks.0.mu", ["fedprox: mu = 0.01: a number from 0"]),
    ],
)
def test_a_key_is_explained(name: str, lines: list[str]) -> None:
    assert set(lines) <= set(explanation(name))


def test_a_paragraph_is_one_line_so_that_any_width_is_filled() -> None:
    lines = [line.strip() for line in explanation("scaffold")]
    (paragraph,) = [line for line in lines if line.startswith("Sums are float64")]
    assert paragraph.endswith("however many updates there are.")
    (setting,) = [line for line in lines if line.startswith("whether the variates")]
    assert setting.endswith("the two are refused together.")
    assert "v = rho v + g + c - c_i, y -= eta v. c_i estimates a gradient." in lines


def test_a_narrow_terminal_breaks_texts_between_words_and_a_pipe_not_at_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [line for line in explanation("fedprox") if len(line) > 60][:8]
    assert len(lines) == 8
    path = "/srv" + "/runs" * 14  # longer than a line, and to be copied whole
    lines += ["if you trust it, run it with the option of fedmx: --own-modules", f"see {path}"]
    monkeypatch.setenv("COLUMNS", "60")
    show_text(lines)
    assert capsys.readouterr().out.splitlines() == lines
    master, slave = pty.openpty()
    with open(slave, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", terminal)
        show_text(lines)
    received = b""
    with contextlib.suppress(OSError):  # the terminal's other end is closed, and all was read
        while part := os.read(master, 1 << 16):
            received += part
    os.close(master)
    shown = received.decode().splitlines()
    assert max(len(line) for line in shown if line != path) <= 60
    assert " ".join(shown).split() == " ".join(lines).split()
    assert len(shown) > len(lines)


@pytest.mark.parametrize(
    ("name", "data", "buffers"), [("2nn", "digits", 0), ("resnet18-cifar", "cifar-10", 40)]
)
def test_a_model_is_explained_with_its_tensors_names(name: str, data: str, buffers: int) -> None:
    shape = {"digits": (1, 28, 28), "cifar-10": (3, 32, 32)}[data]
    engine = MXNetEngine(build_model(name), shape, 10)
    tensors, _, rest = told(name).partition("tensors (")[2].partition("buffers (")
    for layout, text in ((engine.layout, tensors), (engine.buffers_layout, rest)):
        named = re.findall(r"^  (\S+) +(.+)$", text, re.MULTILINE)
        assert [one for one, _ in named] == [tensor.name for tensor in layout]
        for tensor, (_, dimensions) in zip(layout, named, strict=True):
            sizes = dimensions.split(" x ")
            assert len(sizes) == len(tensor.shape)
            assert all(size in ("?", str(n)) for size, n in zip(sizes, tensor.shape, strict=True))
    assert len(engine.buffers_layout) == buffers


def test_a_model_of_a_zoo_has_tensors_and_an_unknown_one_is_one_line(tmp_path: Path) -> None:
    assert "features.0.weight" in told("gluon:resnet18_v1")
    result = fedmx("explain", "gluon:resnet18_v9", cwd=tmp_path)
    assert result.code == 2
    assert "resnet18_v9" in result.err
    assert result.err.count("\n") == 1
