"""Replaces the machine's clocks, threads, network and disk by simulated ones, for one run."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import fedmx.server.recorder
import fedmx.server.server
import layers.network.endpoint
import layers.network.event_queue
from layers.network.connection import Connection
from tests.network_simulation import loop as loops
from tests.network_simulation.loop import Numbered, SimulatedLoopThread
from tests.network_simulation.scheduler import Condition, Scheduler

if TYPE_CHECKING:
    from tests.network_simulation.world import World


@contextlib.contextmanager
def installed(world: World) -> Iterator[None]:
    """Patch the machine's parts with simulated ones."""
    scheduler, network = world.scheduler, world.network
    here = threading.get_ident()
    real_monotonic, real_time, real_pid = time.monotonic, time.time, os.getpid
    create_server = socket.create_server
    seen = world.connections

    def mine() -> bool:
        return threading.get_ident() == here and scheduler.process is not None

    def made(connection: Connection, *args: Any, **settings: Any) -> None:
        seen.append(weakref.ref(connection))
        make(connection, *args, **settings)

    make = Connection.__init__
    queue_threads = SimpleNamespace(Condition=lambda: Condition(scheduler), Lock=threading.Lock)
    handler = _Warnings(world.warnings, scheduler)
    loggers = [logging.getLogger(name) for name in ("fedmx", "asyncio")]
    passing_on = [one.propagate for one in loggers]
    loops.NUMBERS = loops.itertools.count()
    with ExitStack() as stack:
        for target, name, value in (
            (time, "monotonic", lambda: scheduler.monotonic() if mine() else real_monotonic()),
            (time, "time", lambda: scheduler.wall() if mine() else real_time()),
            (os, "getpid", lambda: scheduler.process.pid if mine() else real_pid()),
            (secrets, "token_bytes", lambda size=32: world.nonces.randbytes(size)),
            (
                socket,
                "create_server",
                lambda address, **more: (
                    network.listen(address) if mine() else create_server(address, **more)
                ),
            ),
            (
                layers.network.endpoint,
                "LoopThread",
                lambda name: SimulatedLoopThread(scheduler, network),
            ),
            (layers.network.event_queue, "threading", queue_threads),
            (Connection, "__hash__", Numbered.__hash__),
            (Connection, "__init__", made),
            (fedmx.server.recorder, "write_report", lambda folders, path: None),
            (fedmx.server.recorder.LivePage, "show", lambda page, round: None),
        ):
            stack.enter_context(patch.object(target, name, value))
        stack.enter_context(patch.object(Connection, "_number", None, create=True))
        stack.enter_context(world.disk.installed())
        for one in loggers:
            one.addHandler(handler)
            one.propagate = False
            stack.callback(one.removeHandler, handler)
        gc.disable()
        try:
            yield
        finally:
            gc.enable()
            for one, propagate in zip(loggers, passing_on, strict=True):
                one.propagate = propagate


class _Warnings(logging.Handler):
    """Collects warnings and errors of the server and clients."""

    def __init__(self, lines: list[str], scheduler: Scheduler) -> None:
        super().__init__(logging.WARNING)
        self._lines = lines
        self._scheduler = scheduler

    def emit(self, record: logging.LogRecord) -> None:
        process = self._scheduler.process
        if process is not None and process.alive:
            self._scheduler.note(f"{process.name} logs {record.levelname}")
            self._lines.append(f"{process.name}: {record.getMessage()}")
