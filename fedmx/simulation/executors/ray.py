"""Workers as Ray actors, on this machine or on all nodes of a cluster."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import signal
import socket
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedmx.errors import FedmxError
from fedmx.log import Log
from fedmx.simulation.executors.executor import ExecutorFailed
from fedmx.simulation.executors.parallel import Part, WorkerDied
from fedmx.simulation.executors.processes import no_breakpoint
from fedmx.simulation.executors.worker import Worker
from layers.compute.bits import NUMPYS_NOTICE, PORTABLE_ENVIRONMENT, is_portable
from layers.extras import install

log = Log("fedmx.executors")

MAX_EARLY_DEATHS = 3  # deaths of actors without a job before the backend gives up
CONNECT_S = 10.0
LOG_WAIT_S = 30.0  # without any worker before the log explains the wait


@dataclass(frozen=True)
class _Put:
    """Bytes in Ray's object store, and a copy for comparisons."""

    reference: Any
    data: bytes


class RayBackend:
    """Actors with one core each; another actor replaces a lost one, perhaps on another node.

    While no core is free for the new actor, the others do its work.

    Args:
        size: number of actors; None: one for each core of the cluster.
        address: address of the cluster's head (``HOST:PORT``, or ``auto`` for one that runs here);
            None: start a cluster on this machine, which ends with this backend.
        gpus: number of GPUs of each actor.

    Raises:
        FedmxError: Ray is not installed, or there is no cluster at the address.
    """

    depth = 1

    def __init__(
        self, size: int | None = None, address: str | None = None, gpus: float = 0
    ) -> None:
        try:
            ray: Any = importlib.import_module("ray")
        except ImportError:
            raise FedmxError(f"executor ray: Ray is not installed; {install('ray')}") from None
        self._ray, self._gpus = ray, gpus
        self._owns_ray = not ray.is_initialized()
        if self._owns_ray:
            _start_ray(ray, size, address)
        self.size = size or max(int(ray.cluster_resources().get("CPU", 0)), 1)
        self._opening_with: tuple[Any, ...] = ()  # the build, and references to the arrays
        self._early_deaths = 0
        self._actors = [self._start() for _ in range(self.size)]
        self._names = ["a worker"] * self.size
        self._opening: dict[Any, int] = {}
        self._doing: dict[Any, int] = {}

    def open(self, build: bytes, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Let every actor make an experiment's parts, from arrays in the object store."""
        try:
            references = [self._ray.put(np.ascontiguousarray(array)) for array in arrays]
            found = self._ray.get(references)
        except self._ray.exceptions.RayError as error:
            raise ExecutorFailed(
                f"Ray's object store does not take the data set: {_error_line(error)}"
            ) from error
        self._opening_with = (build, *references)
        self._opening = {}
        for worker in range(self.size):
            self._open(worker)
        return list(found)

    def ready(self, worker: int) -> bool:
        """Return whether an actor has a core and has made the parts."""
        return worker not in self._opening.values()

    def share(self, data: memoryview) -> _Put:
        """Store bytes in the object store."""
        copy = bytes(data)
        return _Put(self._ray.put(copy), copy)

    def holds(self, shared: _Put, data: memoryview) -> bool:
        """Return whether the shared bytes are equal to these."""
        return shared.data == bytes(data)

    def release(self, shared: _Put) -> None:
        """Do nothing: the object store releases bytes without references."""

    def submit(self, worker: int, parts: Sequence[Part]) -> None:
        """Send a job."""
        given = [part.reference if isinstance(part, _Put) else part for part in parts]
        self._doing[self._actors[worker].do.remote(*given)] = worker

    def wait(self) -> tuple[int, bytes | WorkerDied | None]:
        """Wait for a reply or until an actor is ready; replace a lost actor."""
        reference = self._next()
        opened = reference in self._opening
        worker = (self._opening if opened else self._doing).pop(reference)
        try:
            found = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            return worker, self._replace(worker, error, opened)
        self._early_deaths = 0
        if opened:
            self._names[worker] = found
            return worker, None
        return worker, found

    def poll(self) -> None:
        """Return None, because asking Ray for results takes as long as a short task."""

    def close(self) -> None:
        """End all actors, and Ray if it was started here."""
        if not self._ray.is_initialized():
            return
        for actor in self._actors:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.kill(actor)
        self._actors.clear()
        if self._owns_ray:
            self._ray.shutdown()

    # --- inside ------------------------------------------------------------------------------

    def _start(self) -> Any:
        options: dict[str, Any] = {
            "num_cpus": 1,
            "max_restarts": 0,
            "scheduling_strategy": "SPREAD",
        }
        if self._gpus:
            options["num_gpus"] = self._gpus
        if is_portable():  # actors run on the same instructions as this process
            variables = {**PORTABLE_ENVIRONMENT, "PYTHONWARNINGS": NUMPYS_NOTICE}
            options["runtime_env"] = {"env_vars": variables}
        return self._ray.remote(**options)(Actor).remote(os.getcwd())

    def _open(self, worker: int) -> None:
        if self._opening_with:
            self._opening[self._actors[worker].open.remote(*self._opening_with)] = worker

    def _next(self) -> Any:
        """Wait for any result; return its reference."""
        waiting = [*self._doing, *self._opening]
        limit_s = None if self._doing else LOG_WAIT_S
        while True:
            done, _ = self._ray.wait(waiting, timeout=limit_s)
            if done:
                return done[0]
            log.warning(
                "waiting_for_cores",
                "no worker has a core of the Ray cluster yet: {free:g} of {cores:g} cores are free",
                cores=self._ray.cluster_resources().get("CPU", 0),
                free=self._ray.available_resources().get("CPU", 0),
            )
            limit_s = None

    def _replace(self, worker: int, error: Exception, opened: bool) -> WorkerDied:
        how = _error_line(error)
        if opened:
            self._early_deaths += 1
            if self._early_deaths > MAX_EARLY_DEATHS:
                raise ExecutorFailed(
                    f"Ray's workers end before they have any work; the last: {how}"
                )
        death = WorkerDied(self._names[worker], f"was lost ({how})")
        self._names[worker] = "a worker"
        self._actors[worker] = self._start()
        self._open(worker)
        return death


def _start_ray(ray: Any, size: int | None, address: str | None) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    settings: dict[str, Any] = {"address": address or "local"}
    if address is None:
        settings |= {"num_cpus": size, "include_dashboard": False}
    ended = signal.getsignal(signal.SIGTERM)
    try:
        _check_reachable(address)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray warns about its own future versions
            ray.init(**settings, log_to_driver=False, logging_level=logging.ERROR)
    except (RuntimeError, ValueError, OSError) as error:
        what = f"no cluster at {address}" if address else "it cannot be started here"
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        text = lines[0] if lines else type(error).__name__
        raise FedmxError(f"executor ray: {what}: {text}") from error
    finally:
        with contextlib.suppress(ValueError):  # outside of the main thread, Ray changes no handler
            signal.signal(signal.SIGTERM, ended)


def _check_reachable(address: str | None) -> None:
    """Check that the cluster's head listens, since Ray itself would try for minutes.

    Raises:
        OSError: it does not.
    """
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()


def _error_line(error: Exception) -> str:
    """Return the line of a Ray error that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    relevant = [line for line in lines if "Error:" in line or "node" in line.lower()]
    return (relevant or lines or [type(error).__name__])[-1][:300]


class Actor:
    """One worker, on the node where Ray gave it a core.

    Args:
        folder: the working directory of the simulation, for this actor too if its node has it.
    """

    def __init__(self, folder: str) -> None:
        sys.breakpointhook = no_breakpoint
        if os.path.isdir(folder):
            os.chdir(folder)
        self._worker = Worker()

    def open(self, build: bytes, *arrays: np.ndarray) -> str:
        """Make an experiment's parts; return the name of this worker for messages."""
        self._worker.open(build, arrays)
        return f"worker process {os.getpid()} on {socket.gethostname()}"

    def do(self, *parts: bytes) -> bytes:
        """Do one job."""
        return bytes(self._worker.do(parts))
