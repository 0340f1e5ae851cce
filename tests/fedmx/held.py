"""A deployment whose clients a test holds up, so that everybody is killed at a known moment.

Its hook is in a user's own file, outside of the package. Both of its halves remember what they have
seen, so that an update more or less, a round that was lost or counted twice, or a wrong memory
would show in the model.
"""

from __future__ import annotations

from pathlib import Path

from tests.fedmx.processes import Deployment, Process, until
from tests.network.conftest import Certificates

HOOK = '''
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from layers.logic import ClientSide, Hook, ServerSide


@dataclass(frozen=True)
class Remember(Hook):
    """Sends coarse updates, and what that left out with the next one."""

    gates: str = ""

    class Client(ClientSide):
        def receive(self, task, context):
            gates = Path(self.hook.gates)
            (gates / f"at-{task.round}-{task.client}-{os.getpid()}").touch()
            ends = time.monotonic() + 240
            while (gates / f"hold-{task.round}-{task.client}").exists():
                assert time.monotonic() < ends
                time.sleep(0.01)
            return task

        def send(self, update, context):
            whole = update.delta + context.memory.get("residual", np.float32(0))
            coarse = np.round(whole * 64) / np.float32(64)
            context.keep(residual=whole - coarse, rounds=context.memory.get("rounds", 0) + 1)
            context.slot["rounds"] = context.memory["rounds"]
            return replace(update, delta=coarse)

    class Server(ServerSide):
        def on_accepted(self, update, context):
            told = int(update.slots["0:Remember"]["rounds"])
            context.keep(told=context.memory.get("told", 0) + told * context.round)

        def conclude(self, state, context):
            shrinks = np.float32(1 - 1e-4 * context.memory["told"])
            return replace(state, weights=state.weights * shrinks)
'''


class Held:
    """A deployment whose clients can be held up, once they have the task of a round.

    Args:
        folder: where everything goes.
        certificates: of the server and of its clients.
        experiment: the text of its file; "{hook}" in it becomes the hook and its setting.
        module: the name of the file with the hook; a process imports a module once.
        clients: how many there are.
    """

    def __init__(
        self, folder: Path, certificates: Certificates, experiment: str, module: str, clients: int
    ) -> None:
        self.folder = folder
        self.file = folder / "experiment.yaml"
        self._gates = folder / "gates"
        self._gates.mkdir()
        self._module = module
        self._clients = clients
        hook = f'{{name: "{module}:Remember", gates: "{self._gates}"}}'
        self.file.write_text(experiment.replace("{hook}", hook))
        (folder / f"{module}.py").write_text(HOOK)
        self.deployment = Deployment(folder, self.file, certificates)

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.deployment.__exit__()

    def client(self, number: int) -> Process:
        """Start one client."""
        return self.deployment.client(number, self._clients, "--module", self._module)

    def hold(self, round: int, *clients: int) -> None:
        """Hold clients up in a round; all of them, if none is named."""
        for client in clients or range(self._clients):
            (self._gates / f"hold-{round}-{client}").touch()

    def release(self, round: int) -> None:
        """Let those go on that are held up in a round."""
        for gate in self._gates.glob(f"hold-{round}-*"):
            gate.unlink()

    def await_at(self, round: int, number: int, process: Process) -> None:
        """Wait until a client has received its task of a round, and not yet begun with it."""
        at = self._gates / f"at-{round}-{number}-{process.pid}"
        until(at.exists, lambda: f"{at.name}: {process.output}")

    def await_round(self, round: int) -> None:
        """Wait until a round is recorded."""
        rounds = self.deployment.rounds
        until(lambda: rounds() >= round, lambda: f"{rounds()} of {round} rounds")
