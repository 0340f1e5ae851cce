"""OnlineKP-FL over mutual TLS, when some clients are slow and some vanish after their offer.

Hook and selector are in a user's own file. The hook keeps some clients at work until the test lets
them go on; the selector is the algorithm's, but for that it kills some clients when their offers
have come, so that their grants come too late for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fedmx.processes import Deployment, until
from tests.network.conftest import Certificates

pytestmark = pytest.mark.timeout(300)  # many processes on a busy machine

CLIENTS = 8
SLOWED = (1, 5)
VANISHING = (3,)
OTHERS = sorted(set(range(CLIENTS)) - {*SLOWED, *VANISHING})
DEADLINE_S = 8.0
OWN = '''
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from layers.logic import ClientSide, Hook, Offer
from layers.logic.algorithms.knapsack import OnlineKP


@dataclass(frozen=True)
class Hindered(Hook):
    """Slowed clients go on with a task when there is a file called `open`."""

    folder: str = ""
    slowed: tuple[int, ...] = ()

    class Client(ClientSide):
        def receive(self, task, context):
            folder = Path(self.hook.folder)
            (folder / f"pid-{task.client}").write_text(str(os.getpid()))
            ends = time.monotonic() + 240
            while task.client in self.hook.slowed and time.monotonic() < ends:
                if (folder / "open").exists():
                    break
                time.sleep(0.02)
            return task


@dataclass(frozen=True)
class Deadly(OnlineKP):
    """OnlineKP-FL that kills some clients when they have offered."""

    folder: str = ""
    vanishing: tuple[int, ...] = ()

    def run(self, round):
        steps = super().run(round)
        wait = next(steps)
        while True:
            event = yield wait
            if isinstance(event, Offer):
                self._kill(event.client)
                round.answer = self._noting(round.answer)
            try:
                wait = steps.send(event)
            except StopIteration:
                return

    def _kill(self, client):
        if client in self.vanishing:
            pid = Path(self.folder) / f"pid-{client}"
            os.kill(int(pid.read_text()), signal.SIGKILL)

    def _noting(self, answer):
        def noted(verdict):
            if answer.__name__ != "noted":
                with (Path(self.folder) / "verdicts").open("a") as file:
                    print(verdict.round, verdict.client, verdict.granted, file=file)
            answer(verdict)

        return noted
'''
EXPERIMENT = """
name: hindered
seed: 5
rounds: 2
clients: {clients}
compute:
  model: 2nn
  data: digits
  normalise: {{scale: 16}}
  train: {{steps: 3, batch_size: 10, learning_rate: 0.05}}
logic:
  preset: online-kp
  # Whoever fits into the round is worth it.
  selector:
    {{name: "in_time:Deadly", L0: 1.e-9, U: 1.e-8, folder: "{folder}", vanishing: {vanishing}}}
  hooks:
    - {{name: "in_time:Hindered", folder: "{folder}", slowed: {slowed}}}
clock: {{deadline_s: {deadline_s}}}
network: {{rejoin_s: 1}}
"""


@pytest.fixture
def deployment(tmp_path: Path, certificates: Certificates) -> Iterator[Deployment]:
    (tmp_path / "in_time.py").write_text(OWN)
    file = tmp_path / "experiment.yaml"
    hindered = {"folder": tmp_path, "vanishing": list(VANISHING), "slowed": list(SLOWED)}
    file.write_text(EXPERIMENT.format(clients=CLIENTS, deadline_s=DEADLINE_S, **hindered))
    with Deployment(tmp_path, file, certificates) as deployment:
        yield deployment


def test_rounds_end_by_the_deadline_without_the_slow_and_the_dead(
    deployment: Deployment, tmp_path: Path
) -> None:
    server = deployment.serve()
    clients = [deployment.client(k, CLIENTS, "--module", "in_time") for k in range(CLIENTS)]
    until(lambda: deployment.rounds() >= 1, lambda: server.output)
    (tmp_path / "open").touch()
    assert server.code() == 0, server.output
    for number, process in enumerate(clients):
        expected = -9 if number in VANISHING else 0
        assert process.code() == expected, f"client {number}: {process.output}"

    run = deployment.run
    first, second = run.rounds()
    assert first["participants"] == OTHERS, "those that were granted, and are there"
    assert (first["lost"], first["declined"], first["rejected"]) == (3, 0, 0)
    told = {record["client"]: record for record in run.clients(1)}
    for client in SLOWED:
        assert told[client]["reason"] == "no answer before the round ended"
        assert told[client]["trained_s"] is None
    for client in VANISHING:
        assert told[client]["reason"] == "disconnected, and not back within 1 s"
        assert told[client]["decided_s"] is not None, "it was granted, too late"
    for client in OTHERS:
        times = [told[client][f"{moment}_s"] for moment in ("asked", "trained", "decided", "ended")]
        assert times == sorted(times)
        assert times[-1] <= first["clock_s"]
    verdicts = [line.split() for line in (tmp_path / "verdicts").read_text().splitlines()]
    granted = {int(client) for round, client, yes in verdicts if (round, yes) == ("1", "True")}
    assert granted == {*OTHERS, *VANISHING}

    # Nobody asks the dead again, and the others go on.
    assert set(OTHERS) <= set(second["participants"])
    assert {record["client"] for record in run.clients(2)} <= {*OTHERS, *SLOWED}
