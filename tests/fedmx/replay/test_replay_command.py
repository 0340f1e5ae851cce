"""`fedmx replay` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedmx import RunFolder
from tests.fedmx.command_line import fedmx
from tests.fedmx.recorded_runs import run_of


def test_the_steps_of_a_client_fit_in_80_columns(halving: RunFolder, tmp_path: Path) -> None:
    words = ("replay", halving.path, "--own-modules", "--round", "5", "--client", "3")
    said = fedmx(*words, cwd=tmp_path)
    assert said.code == 0, said.err
    assert max(map(len, said.out.splitlines())) < 80
    assert "loss" in said.out


def test_the_debugger_stops_where_told_with_real_values(halving: RunFolder, tmp_path: Path) -> None:
    words = ("replay", halving.path, "--own-modules", "--round", "5", "--client", "3")
    stop = "--break=replayed_halving:Halving.Client.send"
    typed = "p context.round, context.client, update.delta.size\nn\nn\np half.size\nc\n"
    said = fedmx(*words, stop, cwd=tmp_path, typed=typed)
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    assert lines[0].endswith("replayed_halving.py(13)send()")
    assert lines[1] == "-> half = update.delta * np.float32(0.5)"
    assert lines[2] == "(Pdb) (5, 3, 7850)"
    assert sum(line.endswith("replayed_halving.py(13)send()") for line in lines) == 1
    (record,) = [one for one in halving.clients(5) if one["client"] == 3]
    digest = record["update_blake3"][0][:16]
    assert lines[-1] == f"the recorded update, bit for bit: BLAKE3 {digest}"


@pytest.mark.parametrize("client", [None, 3])
def test_the_debugger_does_not_stop_on_the_way_to_the_round(
    halving: RunFolder, tmp_path: Path, client: int | None
) -> None:
    words = ["replay", halving.path, "--own-modules"]
    words += ["--round", "3"]  # from round 1 on: the first checkpoint is of round 4
    words += [] if client is None else ["--client", client]
    typed = "p 'stops in', context.round, context.client\nq\n"
    said = fedmx(*words, "--break", "Halving.receive", cwd=tmp_path, typed=typed)
    assert said.code == 130, said.err
    assert said.err.splitlines()[-1] == "fedmx: interrupted"
    assert f"('stops in', 3, {client or 0})" in said.out


def test_the_debugger_stops_at_each_method_of_a_hook(tmp_path: Path) -> None:
    logic = {"selector": {"name": "uniform", "count": 1}, "hooks": [{"name": "clip", "norm": 1}]}
    run = run_of(tmp_path, rounds=2, logic=logic)
    words = ("replay", run.path, "--round", "2", "--break", "Clip.gradient")
    said = fedmx(*words, cwd=tmp_path, typed="p context.round, weights.shape\nq\n")
    assert said.code == 130, said.err
    assert "(Pdb) (2, (7850,))" in said.out


def test_a_part_is_one_object_for_the_next_program(halving: RunFolder, tmp_path: Path) -> None:
    words = ("replay", halving.path, "--own-modules", "--round", "5", "--client", "3", "--json")
    said = fedmx(*words, cwd=tmp_path)
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["same"] is True
    (part,) = found["parts"]
    assert "version" not in part
    assert part["update_blake3"] == part["recorded_update_blake3"]
    steps = {one["step"]: one for one in part["steps"]}
    assert steps["Halving.send"]["end"] == "client"
    assert steps["training"]["notes"]["steps"] > 0


ENDLESS = """
from dataclasses import replace

import numpy as np

from fedmx import ClientSide, Hook, ServerSide


class Endless(Hook):
    class Client(ClientSide):
        def send(self, update, context):
            context.slot.update(inverse=1 / np.zeros(3, np.float32), size=update.delta.size)
            return replace(update, delta=update.delta[:0])

    class Server(ServerSide):
        def receive(self, update, context):
            return replace(update, delta=np.zeros(context.slot["size"], np.float32))
"""


def no_number(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def test_numbers_that_are_not_finite_are_null_in_the_json(tmp_path: Path) -> None:
    (tmp_path / "replayed_endless.py").write_text(ENDLESS)
    logic = {"selector": {"name": "uniform", "count": 1}, "hooks": ["replayed_endless:Endless"]}
    run = run_of(tmp_path, modules=tmp_path, rounds=1, logic=logic)
    (client,) = (one["client"] for one in run.clients())
    words = ("replay", run.path, "--own-modules", "--round", "1", "--client", client, "--json")
    said = fedmx(*words, cwd=tmp_path)
    assert said.code == 0, said.err
    found = json.loads(said.out, parse_constant=no_number)
    (message,) = (one for one in found["parts"][0]["steps"] if one["step"] == "message")
    assert (message["largest"], message["not_finite"]) == (None, 3)
