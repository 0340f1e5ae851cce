"""A listener that takes the connections of another process."""

from __future__ import annotations

import gc
import socket

import pytest

from layers.network import Listener, MessageCodec
from layers.network.handed import pair


def test_a_listener_that_takes_connections_closes_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    giving, taking = pair()
    with giving, Listener("127.0.0.1:0", MessageCodec({}), taking=taking):
        assert isinstance(giving, socket.socket)
    gc.collect()  # asyncio tells of a task's error when the task is gone
    assert [one.getMessage() for one in caplog.records] == []
