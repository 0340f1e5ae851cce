"""The world of one run: a server, its clients, and their faults."""

from __future__ import annotations

import math
import random
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path

from fedmx import Client, RemoteClients, RunFolder, Server, recorded
from fedmx.client.participant import Participant
from fedmx.deployment.names import identity
from fedmx.errors import FedmxError
from fedmx.protocol.messages import CODEC, Ready, Setup, Update
from fedmx.run import RunError
from layers.compute.data.targets import Targets
from layers.logic import Task
from layers.network import Backoff, Connector, Listener
from layers.network.connection import Connection
from tests.network_simulation.disk import Disk
from tests.network_simulation.experiment import compute
from tests.network_simulation.machine import installed
from tests.network_simulation.network import Host, Network
from tests.network_simulation.plan import HORIZON_S, Fault, Plan
from tests.network_simulation.scheduler import Process, Scheduler

ADDRESS = "127.0.0.1:9000"
MOST_STEPS = 2_000_000
TOKEN = b"a token of the simulation"
MEMORY = Path("/dev/shm")


class RepeatingClient(Client):
    """A careless client that repeats its last update when it reconnects."""

    repeats: Callable[[], bool]
    sends: Callable[[], None]
    last_sent: Update | None = None

    def _send(self, message: object) -> None:
        super()._send(message)
        if isinstance(message, Update):
            self.last_sent = message
            self.sends()
        if isinstance(message, Ready) and self.last_sent is not None and self.repeats():
            super()._send(self.last_sent)


class TroublingClient(RepeatingClient):
    """A client that may do something else than train when it gets a task."""

    meets: Callable[[], bool]

    def _handle_task(self, participant: Participant, task: Task) -> Update | None:
        return None if self.meets() else super()._handle_task(participant, task)


class World:
    """A deployment that runs in virtual time."""

    def __init__(self, seed: int, plan: Plan, verbose: bool = False) -> None:
        self.plan = plan
        self.scheduler = Scheduler(seed, verbose)
        self.network = Network(self.scheduler)
        self.root = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        self.disk = Disk(self.root, self.scheduler)
        self.warnings: list[str] = []
        self.processes: dict[str, Process] = {}
        self.done: dict[str, str] = {}  # reason for the end, by process
        self.server: Server | None = None
        self.kills = 0
        self.ended_s = math.inf  # when the server was done
        self.paused_s = 0.0  # for which the server did not run
        self._gone: set[str] = set()  # processes that nobody starts again
        self.connections: list[weakref.ref[Connection]] = []
        self.nonces = random.Random(f"{seed}/nonces")
        self._draw = random.Random(f"{seed}/faults")
        names = ["server", *(identity(one) for one in range(plan.experiment.clients))]
        for name in names:
            (self.root / name).mkdir()
            self.network.hosts[name] = Host(name, plan.delay_s)
        folder = RunFolder.create(self.root / "server", "run", "rounds: 1\n", {})
        self.run = self.root / "server" / "run"
        folder.path.rename(self.run)
        for name in names:
            self.disk.add(self.root / name)

    # The processes

    def start(self, name: str) -> None:
        """Start or restart a process."""
        self.network.hosts[name].without_power = False
        main = self._serve if name == "server" else self._take_part_as(int(name.split("-")[1]))
        process = self.scheduler.spawn(name, lambda: self._live(name, main))
        process.on_kill.append(lambda: self._died(name, process))
        self.processes[name] = process

    def _live(self, name: str, main: Callable[[], str]) -> None:
        process = self.scheduler.process
        assert process is not None
        process.name = name
        try:
            self.done[name] = main()
            self.scheduler.note(f"{name} is done: {self.done[name]}")
        except (FedmxError, RunError) as error:
            self._failed(name, error)
        except Exception as error:  # noqa: BLE001, whatever it is, it is wrong
            self.scheduler.error(f"{name}: {type(error).__name__}: {error}")
            self._restart(name)
            return
        self._exited(process)
        if left := self.disk.open_files(process):
            self.scheduler.error(f"{name} has left files open: {left}")

    def _exited(self, process: Process) -> None:
        """Close the sockets of an ended process, like the operating system."""
        for socket in self.network.sockets:
            if socket.process is process:
                socket.die()

    def _failed(self, name: str, error: Exception) -> None:
        """Handle an error with a message: the operator restarts the process."""
        text = f"{type(error).__name__}: {error}".replace(str(self.root), "")
        self.scheduler.note(f"{name} fails: {text}")
        assert self.scheduler.process is not None
        self._exited(self.scheduler.process)
        if name != "server" and "the run is over" in text:
            self.done[name] = text
            return
        explained = "No space left" in text or "free disk space" in text
        explained = explained or self.plan.behaviours.get(name) == "contested"
        if not explained:
            self.scheduler.error(f"{name}: {text}")
        self._restart(name)

    def _died(self, name: str, process: Process) -> None:
        self.kills += 1
        self.disk.killed(process, self.root / name)
        self.network.hosts[name].without_power = process.power
        self._restart(name)

    def _restart(self, name: str) -> None:
        if name in self._gone:
            return
        after_s = self.scheduler.draw.choice((0.05, 1.0, 10.0)) * self.scheduler.draw.random()
        self.scheduler.at(
            self.scheduler.now_s + after_s, None, f"restart {name}", lambda: self.start(name)
        )

    def _serve(self) -> str:
        plan = self.plan
        experiment = plan.experiment
        listener = Listener(
            ADDRESS, CODEC, token=TOKEN, heartbeat_s=plan.heartbeat_s, successors=True
        )
        clients = RemoteClients(
            listener,
            Setup("simulated", "", "", 0, (), Targets("classes", 0)),
            clients=experiment.clients,
            wait_for=experiment.clients,
            at_least=experiment.min_updates,
            rejoin_s=plan.rejoin_s,
            patience=plan.patience,
        )
        server = Server(clients, experiment.logic(), compute(0, experiment.size), experiment.rounds)
        self.server = server
        for _ in recorded(server, RunFolder.open(self.run)):
            pass
        return server.reason

    def _take_part_as(self, number: int) -> Callable[[], str]:
        def take_part() -> str:
            connector = Connector(
                ADDRESS, identity(number), CODEC, token=TOKEN, backoff=Backoff(seed=number)
            )
            memory = self.root / identity(number) if self.plan.remembers else None
            client = TroublingClient(
                connector,
                self.plan.experiment.logic(),
                compute(number, self.plan.experiment.size, self._busy),
                memory=memory,
            )
            client.repeats = lambda: self._draw.random() < self.plan.repeats
            client.sends = lambda: self._disturb(identity(number))
            client.meets = lambda: self._misbehave(identity(number))
            with client:
                return client.run()

        return take_part

    def _disturb(self, name: str) -> None:
        """Perhaps cut the connection of a client that has sent an update, or kill it."""
        at_s = self.scheduler.now_s + self._draw.random()
        cut, dies = self._draw.random() < self.plan.breaks, self._draw.random() < self.plan.dies
        ends = self.network.current(name)
        if cut and ends and at_s < HORIZON_S:
            last = ends[-1]
            label = f"cut of {name} after its update"
            self.scheduler.at(at_s, None, label, lambda: self.network.cut(last))
        if dies and at_s < HORIZON_S:
            process = self.processes[name]
            label = f"end of {name} after its update"
            self.scheduler.at(at_s, process, label, lambda: self._end_soon(process, 1))

    @staticmethod
    def _end_soon(process: Process, points: int, power: bool = False) -> None:
        """Kill a running process after so many points, or cut its power."""
        if process.alive and not process.over:
            process.fuse, process.power = points, power

    def _misbehave(self, name: str) -> bool:
        """Do what a client does that is not honest when it gets a task; return whether it is one.

        Raises:
            Killed: it vanishes.
        """
        behaviour = self.plan.behaviours.get(name)
        if behaviour == "vanishing":
            self._gone.add(name)
            self.scheduler.kill(self.processes[name], power=True)
        elif behaviour == "flapping":
            for end in self.network.current(name):
                end.peer.break_off()
                end.break_off()
        return behaviour not in (None, "contested")

    def _busy(self) -> None:
        if self.scheduler.thread is not None:
            self.scheduler.thread.sleep(self.scheduler.draw.random() * self.plan.train_s)
            self.scheduler.point()

    # Faults

    def _plan_faults(self) -> None:
        for fault in self.plan.faults:
            label = f"fault: {fault.kind} of {fault.target}"
            self.scheduler.at(fault.at_s, None, label, lambda fault=fault: self._befall(fault))

    def _befall(self, fault: Fault) -> None:
        if "server" in self.done or fault.target not in self.processes:
            return
        process, host = self.processes[fault.target], self.network.hosts[fault.target]
        now_s, draw = self.scheduler.now_s, self._draw
        if fault.kind in ("cut", "cut at a byte"):
            self.network.prune()
            ends = self.network.current(fault.target)
            if ends and fault.kind == "cut":
                self.network.cut(draw.choice(ends))
            elif ends:
                draw.choice(ends).cut_after = int(
                    1 + fault.amount * (2e6 if self.plan.large else 600)
                )
        elif fault.kind == "outage":
            host.away_until_s = now_s + draw.choice((0.5, 5.0, 40.0)) * fault.amount
        elif fault.kind == "slow line":
            host.bytes_per_s = (100 + 5000 * fault.amount) * (200 if self.plan.large else 1)
            self.scheduler.at(
                now_s + 20 * draw.random(), None, "line", lambda: setattr(host, "bytes_per_s", 1e7)
            )
        elif fault.kind == "pause":
            pause_s = draw.choice((5.0, 60.0, 3600.0)) * fault.amount
            until_s = max(process.stalled_until_s, now_s + pause_s)
            self.paused_s += until_s - max(process.stalled_until_s, now_s)  # pauses may overlap
            process.stalled_until_s = until_s
        elif fault.kind == "clock jump":
            process.jump(draw.choice((5.0, 60.0, 1e5)) * fault.amount)
        elif fault.kind == "stall":
            process.stalled_until_s = now_s + draw.choice((0.5, 5.0, 40.0)) * fault.amount
        elif fault.kind in ("kill", "power"):
            points = 1 + int(draw.choice((10, 100, 400)) * fault.amount)
            self._end_soon(process, points, power=fault.kind == "power")
        elif fault.kind == "wall clock":
            process.wall_offset_s += (fault.amount - 0.5) * 1e6
        elif fault.kind == "full disk":
            self.disk.full.add(fault.target)
            self.scheduler.at(
                now_s + 10 * draw.random(),
                None,
                "room",
                lambda: self.disk.full.discard(fault.target),
            )

    # The run

    def simulate(self) -> None:
        """Run until the server has finished and every reachable client has learned of it.

        Raises:
            Stuck: that does not happen.
        """
        for name in self.network.hosts:
            self.scheduler.at(
                self.scheduler.draw.random(),
                None,
                f"start {name}",
                lambda name=name: self.start(name),
            )
        for name, behaviour in self.plan.behaviours.items():
            if behaviour == "contested":
                self.scheduler.at(
                    2.0, None, f"start {name} again", lambda name=name: self.start(name)
                )
        self._plan_faults()
        with installed(self):
            self.scheduler.run(lambda: "server" in self.done, self.plan.limit_s, MOST_STEPS)
            self.ended_s = self.scheduler.now_s
            ends_s = self.ended_s + 30.0
            self.scheduler.at(ends_s, None, "end", lambda: None)
            names = set(self.network.hosts)
            self.scheduler.run(
                lambda: names == set(self.done) or self.scheduler.now_s >= ends_s,
                self.plan.limit_s + 60.0,
                2 * MOST_STEPS,
            )
            self._end_everything()

    def _end_everything(self) -> None:
        """End the clients that did not learn of the end, so that nothing is left."""
        self.left = sorted(set(self.network.hosts) - set(self.done))
        for process in self.scheduler.processes:
            process.on_kill.clear()
            if process.alive and not process.over:
                self.scheduler.kill(process, power=True)
        for socket_ in self.network.sockets:
            socket_.die()
        self.scheduler.forget()

    def close(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.root, ignore_errors=True)
