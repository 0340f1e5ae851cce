"""A simulation that is killed in the middle of a round with offers open, and resumed.

The hook is in a user's own file. Where a file called `armed` is beside it, it kills its process
when the round's third client is about to train: earlier ones have offered by then.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedmx import RunFolder
from tests.fedmx.deployment.test_deployment import simulated
from tests.fedmx.processes import Process

pytestmark = pytest.mark.timeout(300)  # many processes on a busy machine

HOOK = '''
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from layers.logic import ClientSide, Hook

BEGUN = []


@dataclass(frozen=True)
class Deadly(Hook):
    """Kills the process in a round, once."""

    armed: str = ""
    round: int = 1

    class Client(ClientSide):
        def receive(self, task, context):
            BEGUN.append(task.round)
            armed = Path(self.hook.armed)
            if BEGUN.count(self.hook.round) == 3 and armed.exists():
                armed.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
            return task
'''
EXPERIMENT = """
name: killed
seed: 5
rounds: 5
clients: 12
compute:
  model: 2nn
  data: digits
  normalise: {{scale: 16}}
  train: {{steps: 3, batch_size: 10, learning_rate: 0.05}}
logic:
  preset: {preset}
  min_updates: 0
  hooks:
    - {{name: "{module}:Deadly", armed: "{armed}", round: 3}}
clock:
  deadline_s: 900
  devices: knapsack
  uploads: serial
  availability: {{name: chance, share: 0.8, span_s: 700}}
  dropout: 0.1
run: {{checkpoint: {{every: {every}}}}}
"""
REAL = ("seconds", "elapsed_s")  # what this machine took


def seen(run: RunFolder) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rounds' and the clients' records, the clients' times by the clock included."""
    rounds = [{k: v for k, v in record.items() if k not in REAL} for record in run.rounds()]
    return rounds, list(run.clients())


@pytest.mark.parametrize(("preset", "every"), [("online-kp", 1), ("offline-kp", 2)])
def test_a_run_that_was_killed_with_offers_open_goes_on_as_if_it_had_not_been(
    preset, every, tmp_path: Path
) -> None:
    module = "deadly_" + preset.replace("-", "_")  # a process knows one module of a name
    (tmp_path / f"{module}.py").write_text(HOOK)
    armed = tmp_path / "armed"
    file = tmp_path / "experiment.yaml"
    file.write_text(EXPERIMENT.format(module=module, preset=preset, armed=armed, every=every))
    undisturbed = simulated(tmp_path / "undisturbed", file)

    armed.touch()
    killed = Process(tmp_path, "killed", "run", str(file), "--own-modules")
    assert killed.code() == -9, killed.output
    (facts,) = (tmp_path / "runs").glob("*/run.json")
    run = RunFolder.open(facts.parent)
    assert [record["round"] for record in run.rounds()] == [1, 2]
    resumed = Process(tmp_path, "resumed", "resume", str(run.path), "--own-modules")
    assert resumed.code() == 0, resumed.output

    assert run.model_path.read_bytes() == undisturbed.model_path.read_bytes()
    rounds, clients = seen(run)
    assert (rounds, clients) == seen(undisturbed)
    assert [record["round"] for record in rounds] == [1, 2, 3, 4, 5]
    assert {"accepted", "declined", "lost"} <= {record["status"] for record in clients}
    offered = [record for record in clients if record["round"] == 3 and "norm" in record]
    assert len(offered) > 3, "the third to train was killed with more to come"
    ends_s = [record["clock_elapsed_s"] for record in rounds]
    assert ends_s == sorted(ends_s)
    assert all(record["virtual"] for record in rounds)
