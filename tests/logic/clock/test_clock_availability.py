"""When clients are there: by chance, or as a file says."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic import LogicError
from layers.logic.clock import VirtualClock
from layers.logic.clock.availability import Always, Chance, Presence, Trace
from layers.logic.clock.devices import Lognormal

TRACE = """client,time,state
0,0,on
0,100,off
0,250,on
1,50,on
2,80,off
"""
NEVER = math.inf


def traced(folder: Path, text: str = TRACE, clients: int = 4, repeat: bool = False) -> Presence:
    file = folder / "trace.csv"
    file.write_text(text)
    return Trace(file, repeat).of(clients, seed=0)


def test_a_client_is_there_as_its_trace_says(tmp_path: Path) -> None:
    presence = traced(tmp_path)
    there = {
        at_s: [client for client in range(4) if presence.there(client, at_s)]
        for at_s in (0, 49.9, 50, 80, 100, 249, 250, 1e9)
    }
    assert there == {
        0: [0, 2, 3],
        49.9: [0, 2, 3],
        50: [0, 1, 2, 3],
        80: [0, 1, 3],
        100: [1, 3],
        249: [1, 3],
        250: [0, 1, 3],
        1e9: [0, 1, 3],
    }


def test_a_trace_says_when_a_client_next_comes_or_goes(tmp_path: Path) -> None:
    presence = traced(tmp_path)
    assert [presence.next_change_s(0, at_s) for at_s in (0, 99, 100, 250)] == [100, 100, 250, NEVER]
    assert presence.next_change_s(3, 0) == NEVER


def test_a_trace_that_repeats_begins_anew_after_its_last_line(tmp_path: Path) -> None:
    once, again = traced(tmp_path), traced(tmp_path, repeat=True)
    for client in range(4):
        for at_s in range(0, 250, 5):
            for turn in (0, 1, 7):
                assert again.there(client, at_s + turn * 250) == once.there(client, at_s)
    assert again.next_change_s(1, 60) == 250, "it goes when the trace begins anew"
    assert not again.there(1, 250)
    assert again.next_change_s(1, 250) == 300


times = st.floats(1e-3, 1e4, allow_nan=False)


@given(
    own=st.lists(times, min_size=1, max_size=5, unique=True),
    repeat=st.booleans(),
    at_s=st.floats(0, 1e5, allow_nan=False),
)
def test_time_goes_on_and_nobody_changes_between_two_changes(own, repeat, at_s) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lines = [f"0,{t!r},{'on' if n % 2 else 'off'}" for n, t in enumerate(sorted(own))]
        text = "client,time,state\n" + "\n".join(lines) + "\n"
        walk(traced(Path(folder), text, 1, repeat), at_s)


@given(
    share=st.floats(0.05, 1.0),
    span_s=st.floats(1e-2, 1e4),
    at_s=st.floats(0, 1e5),
)
def test_chance_draws_anew_for_each_span(share, span_s, at_s) -> None:
    walk(Chance(share, span_s).of(3, seed=4), at_s)


def walk(presence: Presence, at_s: float) -> None:
    """Go through some changes; each is later than the one before, and nothing is between them."""
    for _ in range(8):
        change_s = presence.next_change_s(0, at_s)
        assert change_s > at_s
        if change_s == NEVER:
            return
        for share in (0.25, 0.75):
            between_s = at_s + share * (change_s - at_s)
            if at_s < between_s < change_s:
                assert presence.there(0, between_s) == presence.there(0, at_s)
        at_s = change_s


def test_chance_is_there_for_its_share_of_clients_and_time() -> None:
    presence = Chance(0.7, 60).of(200, seed=1)
    there = [presence.there(client, 60.0 * span) for client in range(200) for span in range(50)]
    assert sum(there) / len(there) == pytest.approx(0.7, abs=0.02)
    same = Chance(0.7, 60).of(200, seed=1)
    assert there == [same.there(client, 60.0 * span) for client in range(200) for span in range(50)]


def test_time_passes_until_somebody_is_there(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("client,time,state\n0,120,on\n1,300,on\n")
    clock = VirtualClock(2, Lognormal(), availability=Trace(file))
    assert clock.available([0, 1]) == [0]
    assert clock.run_s == 120
    assert clock.waited_s == 120
    clock.settle()
    assert clock.waited_s == 120, "it was waited before the round that has not begun yet"
    clock.begin(())
    assert clock.waited_s == 120
    assert clock.elapsed_s == 0


def test_a_run_in_which_nobody_ever_comes_again_says_so(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("client,time,state\n0,0,off\n1,10,off\n")
    clock = VirtualClock(2, Lognormal(), availability=Trace(file))
    assert clock.available([0, 1]) == [1]
    clock.restore({"run_s": 10.0})
    with pytest.raises(LogicError, match="nor later; give a longer trace"):
        clock.available([0, 1])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        *((text, "first line .* client, time and state") for text in ("client,when\n", "")),
        ("9,0,on\n", "line 2: client 9; .* 0 to 3"),
        ("0,x,on\n", "line 2: client and time"),
        *((f"0,{time},on\n", "line 2: time .* from 0") for time in (-1, "nan")),
        *((f"{line}\n", "line 2: state .* on or off") for line in ("0,1,maybe", "0,5")),
        ("0,5,on\n0,5,off\n", "client 0 .* 5 s .* order"),
    ],
)
def test_a_trace_that_is_not_right_is_refused_with_its_line(tmp_path: Path, text, says) -> None:
    head = "" if "first line" in says else "client,time,state\n"
    with pytest.raises(LogicError, match=says) as caught:
        traced(tmp_path, head + text)
    assert "\n" not in str(caught.value)


def test_a_trace_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogicError, match="cannot be read"):
        Trace(tmp_path / "none.csv").of(1, 0)
    (tmp_path / "binary.csv").write_bytes(b"client,time,state\n\xff\xfe\x00")
    with pytest.raises(LogicError, match=r"binary\.csv: the trace is not a CSV file"):
        Trace(tmp_path / "binary.csv").of(1, 0)


@given(share=st.floats(0.1, 1), at_s=st.floats(0, 1e5), seed=st.integers(0, 99))
def test_clients_by_chance_are_looked_at_together_as_one_by_one(share, at_s, seed) -> None:
    presence = Chance(share, span_s=100).of(30, seed)
    found, until_s = presence.those_there(np.arange(3, 30), at_s)
    assert found.tolist() == [client for client in range(3, 30) if presence.there(client, at_s)]
    assert until_s == presence.next_change_s(0, at_s)


@pytest.mark.parametrize("at_s", [0, 49.9, 50, 80, 100, 249, 250, 1e9])
def test_clients_of_a_trace_are_looked_at_together_as_one_by_one(tmp_path: Path, at_s) -> None:
    presence = traced(tmp_path)
    for clients in ([0, 1, 2, 3], [1, 3], [3]):
        found, until_s = presence.those_there(np.array(clients), at_s)
        assert found.tolist() == [client for client in clients if presence.there(client, at_s)]
        assert until_s == min(presence.next_change_s(client, at_s) for client in clients)


def test_nobody_is_looked_at_again_until_somebody_may_come_or_go() -> None:
    clock = VirtualClock(50, Lognormal(), availability=Chance(0.5, span_s=100))
    clients = np.arange(50)
    first = clock.available_of(clients)
    clock.restore({"run_s": 99.0})
    assert clock.available_of(clients) is first
    clock.restore({"run_s": 100.0})
    second = clock.available_of(clients)
    assert second.tolist() != first.tolist()
    clock.restore({"run_s": 99.0})  # a time before is another answer, too
    assert clock.available_of(clients).tolist() == first.tolist()
    assert clock.available_of(clients[:10]).tolist() == [one for one in first if one < 10]


def test_everybody_is_there_always() -> None:
    presence = Always().of(1, 0)
    assert presence.there(0, 1e9)
    assert presence.next_change_s(0, 0.0) == NEVER
