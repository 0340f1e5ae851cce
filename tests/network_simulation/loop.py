"""An asyncio loop in virtual time, without a selector, and its simulated thread."""

from __future__ import annotations

import asyncio
import asyncio.events
import contextlib
import contextvars
import inspect
import itertools
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from layers.network.endpoint import LoopThread
from tests.network_simulation.scheduler import Process, Scheduler

if TYPE_CHECKING:
    from tests.network_simulation.network import Network

NUMBERS = itertools.count()


class Numbered:
    """Has the same hash in every process, so that sets keep their order."""

    _number: int | None = None

    def __hash__(self) -> int:
        if self._number is None:
            self._number = next(NUMBERS)
        return self._number


class Future(Numbered, asyncio.Future):
    """A future of a simulated loop."""


class Task(Numbered, asyncio.Task):
    """A task of a simulated loop."""


class Loop(asyncio.AbstractEventLoop):
    """The part of a loop that fedmx uses; a turn runs the calls that are ready at its start."""

    def __init__(self, scheduler: Scheduler, network: Network) -> None:
        assert scheduler.process is not None
        self.process: Process = scheduler.process
        self._scheduler = scheduler
        self._network = network
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: dict[int, asyncio.TimerHandle] = {}  # not due yet, by `id`
        self._planned = False
        self._closed = False
        self._handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None
        self.process.loops.append(self)

    def drop(self) -> None:
        """End with the process."""
        self._closed = True
        self._ready.clear()
        self._timers.clear()
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            work = task.get_coro()
            if (
                inspect.iscoroutine(work)
                and inspect.getcoroutinestate(work) == inspect.CORO_CREATED
            ):
                work.close()

    # Time and turns

    def time(self) -> float:
        return self._scheduler.now_s + self.process.ahead_s

    def jumped(self) -> None:
        """Run the timers that are due since the clock has jumped."""
        due = [one for one in self._timers.values() if one.when() <= self.time()]
        for handle in sorted(due, key=asyncio.TimerHandle.when):
            self._due(handle)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self._closed

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
        self._ready.clear()
        self._timers.clear()

    def stop(self) -> None:
        """Do nothing: a loop without calls takes no turns."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Do nothing: there is no executor."""

    def _turn(self) -> None:
        self._planned = False
        asyncio.events._set_running_loop(self)
        try:
            for _ in range(len(self._ready)):
                handle = self._ready.popleft()
                if not handle.cancelled():
                    self._scheduler.point()
                    handle._run()
                if not self.process.alive:
                    return
        finally:
            asyncio.events._set_running_loop(None)
        if self._ready:
            self._plan()

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            self._scheduler.soon(self.process, "turns", self._turn)

    def _add(self, handle: asyncio.Handle) -> None:
        self._ready.append(handle)
        self._plan()

    def call_soon(
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._add(handle)
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        if self._closed:
            raise RuntimeError("the loop is closed")
        handle = self.call_soon(callback, *args, context=context)
        self._scheduler.point(often=0.2)
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._timers[id(handle)] = handle
        at_s = when - self.process.ahead_s
        self._scheduler.at(at_s, self.process, "timer", lambda: self._due(handle))
        return handle

    def _due(self, handle: asyncio.TimerHandle) -> None:
        if self._timers.pop(id(handle), None) is handle and not self._closed:
            self._add(handle)

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._timers.pop(id(handle), None)

    def create_future(self) -> asyncio.Future[Any]:
        return Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **settings: Any) -> asyncio.Task[Any]:
        return Task(coro, loop=self, **settings)

    def run_in_executor(
        self, executor: None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run `func` later, as if in another thread."""
        future = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001, it is the caller's
                self.call_soon(_settle, future, None, error)
            else:
                self.call_soon(_settle, future, result, None)

        self._scheduler.soon(self.process, "works", work)
        return future

    # Errors in callbacks

    def set_exception_handler(self, handler: Any) -> None:
        self._handler = handler

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.process.alive and self._handler is not None:
            self._handler(self, context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        what = f"{context.get('message')}: {type(error).__name__}: {error}"
        self._scheduler.error(f"{self.process.name}: nothing caught {what}")

    # Connections

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        ssl: None = None,
        ssl_handshake_timeout: None = None,
        **settings: object,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        socket = await self._network.connect(self, (host, port))
        return await self.connect_accepted_socket(protocol_factory, socket)

    async def sock_accept(self, sock: Any) -> tuple[Any, tuple[str, int]]:
        socket = await sock.accept(self)
        return socket, socket.peer_address

    async def connect_accepted_socket(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        sock: Any,
        *,
        ssl: None = None,
        ssl_handshake_timeout: None = None,
        **settings: object,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        assert ssl is None, "TLS is not simulated"
        protocol = protocol_factory()
        sock.attach(self, protocol)
        try:
            await asyncio.sleep(0)
        except BaseException:
            sock.close()
            raise
        return sock, protocol


def _settle(future: asyncio.Future[Any], result: object, error: Exception | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


class SimulatedLoopThread(LoopThread):
    """A `LoopThread` whose loop runs in the scheduler's steps."""

    def __init__(self, scheduler: Scheduler, network: Network) -> None:
        self._scheduler = scheduler
        self.loop = Loop(scheduler, network)
        self.loop.set_exception_handler(_report)
        self._calls, self._planned = deque(), False

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        thread = self._scheduler.thread
        with contextlib.closing(work):
            if thread is None:
                raise RuntimeError("a loop's thread waits for a loop")
            ended: list[asyncio.Task[Any]] = []

            def register(wake: Callable[[], None]) -> None:
                def begin() -> None:
                    task = self.loop.create_task(work)
                    ended.append(task)
                    task.add_done_callback(lambda _: wake())

                self.loop.call_soon(begin)

            thread.wait(None, register)
            return ended[0].result()

    def stop(self) -> None:
        if not self.loop.is_closed():
            self.run(self._cancel_all())
            self.loop.close()


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Pass on errors that the real thread's handler would report."""
    if not isinstance(context.get("exception"), OSError):
        loop.default_exception_handler(context)
