"""A small run with a hook at which it waits, fails or stops in a debugger, as files say."""

from __future__ import annotations

import json
from pathlib import Path

from tests.fedmx.command_line import lines_of

EXPERIMENT = """
name: small
rounds: 4
clients: 4
compute:
  model: 2nn
  data: digits
  normalise: {scale: 16}
  train: {steps: 2}
logic:
  selector: {name: uniform, fraction: 0.5}
  hooks: ["gate:Gate"]
"""
# In round 3 a client waits until it is let go on: so a test knows what is going on.
GATE = """
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from layers.logic import ClientContext, ClientSide, Hook, Update

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Gate(Hook):
    class Client(ClientSide):
        def send(self, update: Update, context: ClientContext) -> Update:
            if update.round == 3 and (HERE / "debug").exists():
                breakpoint()
            while update.round == 3 and not (HERE / "open").exists():
                (HERE / "waiting").touch()
                time.sleep(0.01)
            if (HERE / "fail").exists():
                raise ZeroDivisionError("on purpose")
            total = update.delta + context.memory.get("residual", np.float32(0))
            context.keep(residual=(total / 2).astype(np.float32))
            return replace(update, delta=(total / 2).astype(np.float32))
"""


def place(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "small.yaml").write_text(EXPERIMENT)
    (folder / "gate.py").write_text(GATE)
    return folder


def run_in(folder: Path) -> Path:
    (run,) = (folder / "runs").iterdir()
    return run


def rounds_of(run: Path) -> list[int]:
    return [json.loads(line)["round"] for line in lines_of("rounds.jsonl", run)]
