"""The log on stderr: one line for one record, whatever a peer wrote into it."""

from __future__ import annotations

import io
import logging

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fedmx.cli.output import LogLines

log = logging.getLogger("fedmx.server")
FORGED = "no room\nclient 3 joined with 600 samples\r\nround 9: done"
WITH_BREAKS = st.text(st.sampled_from("ab \n\r\t\v\f\x1b\x1c\x85\u2028\u2029[]")) | st.text()


def shown(write: str, *words: object) -> str:
    """What the log shows for one record."""
    stream = io.StringIO()
    with LogLines(Console(file=stream, highlight=False, width=40)):
        log.warning(write, *words)
    return stream.getvalue()


@given(WITH_BREAKS)
def test_a_record_is_one_line_whatever_a_peer_wrote(text: str) -> None:
    line = shown("client %d: %s", 7, text)
    assert line.startswith("warning: client 7: ")
    assert line.endswith("\n")
    assert line[:-1].isprintable()


def test_what_a_peer_wrote_can_still_be_read() -> None:
    expected = "warning: client 7: no room client 3 joined with 600 samples round 9: done\n"
    assert shown("client %d: %s", 7, FORGED) == expected


def test_no_line_of_a_traceback_looks_like_a_record() -> None:
    stream = io.StringIO()
    with LogLines(Console(file=stream, highlight=False)):
        try:
            raise ValueError(FORGED)
        except ValueError:
            log.exception("round %d failed", 4)
    first, *trace = stream.getvalue().splitlines()
    assert first == "error: round 4 failed"
    assert trace[0].strip() == "Traceback (most recent call last):"
    assert all(line.startswith("    ") for line in trace)
    assert "client 3 joined" in stream.getvalue()
