"""What a client writes into clients.jsonl with its errors has a limit."""

from __future__ import annotations

from fedmx.server.tracebacks import MOST_BYTES, Tracebacks
from layers.logic.record_size import TRACEBACK_BYTES, recorded_bytes


def line(round: int, client: int, traceback: str) -> dict[str, object]:
    return {"round": round, "client": client, "traceback": traceback}


def test_the_same_traceback_is_recorded_once() -> None:
    of_run = Tracebacks()
    first, other, without = of_run.recorded([line(1, 0, "a"), line(1, 1, "a"), line(1, 2, "")])
    (again,) = of_run.recorded([line(2, 0, "a")])
    assert (first["traceback"], without["traceback"]) == ("a", "")
    assert other["traceback"] == again["traceback"] == "the same as in round 1, of client 0"


def test_a_client_that_fails_differently_each_time_records_a_bounded_number_of_bytes() -> None:
    of_run, size = Tracebacks(), 0
    for round in range(1, 101):
        text = chr(0x1F600 + round) * (TRACEBACK_BYTES // 12)
        (one,) = of_run.recorded([line(round, 0, text)])
        size += recorded_bytes(one["traceback"])
    assert size < MOST_BYTES + 100 * 100
    (healthy,) = of_run.recorded([line(101, 1, "mine")])
    assert healthy["traceback"] == "mine"
