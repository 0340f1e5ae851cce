"""The loop in its own thread: errors that nothing caught are reported, broken connections not."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading

import pytest

from layers.network.endpoint import LoopThread


def failing(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (ValueError("a fault of ours"), True),
        (ConnectionResetError("cable cut"), False),
        (ssl.SSLError("bad record"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_that_nothing_caught_is_reported_unless_a_connection_broke(
    caplog: pytest.LogCaptureFixture, error: BaseException, reported: bool
) -> None:
    thread = LoopThread("test")
    with caplog.at_level(logging.ERROR, logger="asyncio"):
        thread.soon(failing, error)
        thread.run(asyncio.sleep(0))
    thread.stop()
    assert bool(caplog.records) is reported


def test_a_stopped_loop_takes_no_more_calls_and_stops_once() -> None:
    before = threading.active_count()
    thread = LoopThread("test")
    assert threading.active_count() == before + 1
    waits = asyncio.run_coroutine_threadsafe(asyncio.sleep(3600), thread.loop)
    thread.stop()
    thread.stop()
    assert waits.cancelled()
    assert threading.active_count() == before
    thread.soon(failing, ValueError("never called"))
