"""One background thread with an asyncio loop, for an end whose caller is synchronous."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs an asyncio loop until `stop`."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(_handle)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and wait for what it returns or raises."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def soon(self, call: Callable[..., object], *args: object) -> None:
        """Call something in the loop; do nothing if the loop has been stopped."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(call, *args)

    def stop(self) -> None:
        """Cancel what still runs, end the thread and close the loop."""
        if self.loop.is_closed():
            return
        self.run(self._cancel_all())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    @staticmethod
    async def _cancel_all() -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.get_running_loop().shutdown_default_executor()


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report errors that nothing caught, but for broken connections, which become events."""
    if not isinstance(context.get("exception"), (OSError, ssl.SSLError)):
        loop.default_exception_handler(context)
