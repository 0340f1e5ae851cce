"""The log on stderr: one line or one JSON object for each record, whatever a peer wrote into it."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import logging
import os
import re
import string
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fedmx import RunFolder
from fedmx.cli import output
from fedmx.cli.output import LogLines
from fedmx.cli.rounds import RoundProgress
from fedmx.connection_log import warn_of_open_key
from fedmx.log import Log
from tests.fedmx.command_line import fedmx
from tests.fedmx.processes import Deployment
from tests.network.conftest import Certificates

ROOT = Path(__file__).resolve().parents[3]
EXPERIMENT = """
name: small
rounds: 2
clients: 1
compute:
  model: 2nn
  data: digits
  normalise: {scale: 16}
  train: {epochs: 1, batch_size: 100}
"""
FORGED = "no room\nclient 3 joined with 600 samples\r\nround 9: done"
WITH_BREAKS = st.text(st.sampled_from("ab \n\r\t\v\f\x1b\x1c\x85\u2028\u2029[]")) | st.text()
log = Log("fedmx.server")


def log_calls() -> Iterator[tuple[str, str, set[str]]]:
    """The event, the text and the names of the fields of every log call in fedmx.

    `self.log` takes whom the line is about first; see `fedmx.deployment.client_log`.
    """
    for path in (ROOT / "fedmx").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            of = node.func.value
            name = of.id if isinstance(of, ast.Name) else getattr(of, "attr", "")
            if name in ("log", "_log") and node.func.attr in ("info", "warning", "exception"):
                event, text = node.args[-2:]
                assert isinstance(event, ast.Constant), f"{path}:{node.lineno}"
                assert isinstance(text, ast.Constant), f"{path}:{node.lineno}: a text made before"
                yield str(event.value), str(text.value), {one.arg or "" for one in node.keywords}


def test_each_log_call_has_the_fields_of_its_text_and_an_event_in_the_documentation() -> None:
    documented = (ROOT / "docs" / "deployment.md").read_text()
    calls = list(log_calls())
    assert len(calls) > 40
    for event, text, names in calls:
        assert {name for _, name, _, _ in string.Formatter().parse(text) if name} == names, text
        assert f"`{event}`" in documented


def objects(text: str) -> list[dict[str, Any]]:
    found = [json.loads(one) for one in text.splitlines()]
    for one in found:
        assert {"time", "level", "event", "fields", "text"} <= one.keys(), one
    return found


@contextlib.contextmanager
def lines_as(format: str) -> Iterator[None]:
    """Show log lines in this format."""
    output.take_format(["--log-format", format])
    try:
        with LogLines():
            yield
    finally:
        output.take_format([])


@pytest.mark.needs_mxnet
@pytest.mark.timeout(300)
def test_every_line_of_a_run_is_an_object_with_the_text_of_the_line(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    folder, *rounds = objects(fedmx("run", "small.yaml", "--log-format", "json", cwd=tmp_path).err)
    assert (folder["event"], folder["level"]) == ("run_folder", "info")
    assert (tmp_path / folder["fields"]["path"]).is_dir()
    assert folder["text"] == f"run folder: {folder['fields']['path']}"
    assert [one["event"] for one in rounds] == ["round", "round"]
    assert [one["fields"]["round"] for one in rounds] == [1, 2]
    records = RunFolder.open(tmp_path / folder["fields"]["path"]).rounds()
    for shown, kept in zip(rounds, records, strict=True):
        assert shown["fields"]["up_bytes"] == kept["up_bytes"]
        assert shown["fields"]["accuracy"] == kept["accuracy"]
        assert shown["text"].startswith(f"round {kept['round']}/2  accuracy ")


@pytest.mark.timeout(300)
def test_every_line_of_a_server_and_of_its_client_is_an_object(
    tmp_path: Path, certificates: Certificates
) -> None:
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    certificates.client("client-0")
    with Deployment(tmp_path, tmp_path / "small.yaml", certificates) as deployment:
        words = ["server", "small.yaml", "--listen", "127.0.0.1:0", "--log-format=json"]
        server = deployment._start("server", *words, *deployment._tls("server"))
        deployment.address = json.loads(server.line('"listening"'))["fields"]["address"]
        client = deployment.client(0, 1, "--log-format", "json")
        assert (client.code(), server.code()) == (0, 0)
        said = [end.output.splitlines() for end in (server, client)]
        of_server, of_client = (
            objects("\n".join(one for one in lines if one.startswith("{"))) for lines in said
        )
        # What a command prints as its result goes to stdout, and is text.
        assert len([one for lines in said for one in lines if not one.startswith("{")]) == 4
        (ready,) = [one for one in of_server if one["event"] == "client_ready"]
        assert ready["fields"]["client"] == 0
        assert ready["text"].startswith("client 0 joined with ")
        assert {"listening", "run_folder", "round"} <= {one["event"] for one in of_server}
        names = [one["event"] for one in of_client if one["event"] != "retrying"]
        assert names[:2] == ["looking_for_server", "connected"]
        (first, second) = [one for one in of_client if one["event"] == "round"]
        assert (first["fields"]["round"], second["fields"]["round"]) == (1, 2)


def test_an_error_is_an_object_with_its_exit_code(tmp_path: Path) -> None:
    result = fedmx("--log-format", "json", "run", "none.yaml", cwd=tmp_path)
    (error,) = objects(result.err)
    assert (result.code, error["event"], error["level"]) == (2, "error", "error")
    assert error["fields"] == {"code": 2}
    assert "none.yaml: there is no such file" in error["text"]


def test_what_a_peer_writes_stays_in_its_field(capsys: pytest.CaptureFixture[str]) -> None:
    forged = 'gone\n{"event": "client_left"}\x1b[2J'
    with lines_as("json"):
        log.info("client_left", "client {client} left: {reason}", client=3, reason=forged)
        try:
            raise ValueError("mine")
        except ValueError:
            log.exception("training_failed", "round {round} failed", round=4)
    left, failed = objects(capsys.readouterr().err)
    assert (left["event"], left["fields"]) == ("client_left", {"client": 3, "reason": forged})
    assert (failed["event"], failed["fields"]) == ("training_failed", {"round": 4})
    assert failed["traceback"].endswith("ValueError: mine")
    assert json.loads(output.line("info", "round", "", {"loss": float("nan")}))["fields"] == {
        "loss": None
    }


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o604, 0o644])
def test_a_private_key_that_others_can_use_is_named_with_its_mode(
    mode: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = tmp_path / "client-0.key"
    key.touch()
    key.chmod(mode)
    warn_of_open_key(key)
    warn_of_open_key(None)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == (mode != 0o600)
    assert all(f"{key}: its mode is {mode:04o}" in line for line in told)


def test_with_times_each_line_begins_with_its_time(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    result = fedmx("run", "small.yaml", "--log-format", "timed", cwd=tmp_path)
    assert result.code == 0
    lines = result.err.splitlines()
    assert [line.split(" ")[1] for line in lines] == ["run", "round", "round"]
    wrong = fedmx("run", "none.yaml", "--log-format", "timed", cwd=tmp_path)
    for line in [*lines, *wrong.err.splitlines()]:
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \w", line)


def test_a_record_with_its_time_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with lines_as("timed"):
        logging.getLogger("fedmx.own").warning("client %d: %s", 3, "x\ny")
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"[\d-]+T[\d:]+Z warning: client 3: x y", line)


def test_server_and_client_say_when_unless_they_are_asked_not_to(
    tmp_path: Path, certificates: Certificates
) -> None:
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    with Deployment(tmp_path, tmp_path / "small.yaml", certificates) as deployment:
        server = deployment.serve()
        client = deployment.client(0, 1, "--log-format", "text")
        assert (server.code(), client.code()) == (0, 0)
    time = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ (?=\w)")
    lines = server.output.splitlines()
    said = [time.sub("", line) for line in lines if time.match(line)]
    for part in ("listening on ", "run folder: ", "client 0 joined ", "round 1/2 ", "round 2/2 "):
        assert any(line.startswith(part) for line in said)
    # What stays is the command's result, on stdout.
    results = [line.partition(":")[0] for line in lines if not time.match(line)]
    assert results == ["all 2 rounds were run", "model", "report"]
    assert client.output.startswith("client 0: looking for ")


def test_the_journal_has_times_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "journal").open("w+") as journal:
        found = os.fstat(journal.fileno())
        monkeypatch.setattr(sys, "stderr", journal)
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}")
        output.take_format([])
        output.begin_log()
        assert output.timed("x") == "x"
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino + 1}")
        output.begin_log()
        assert output.timed("x").endswith("Z x")
        output.take_format([])


def shown(reason: str) -> str:
    """What the log shows for one record."""
    stream = io.StringIO()
    with LogLines(Console(file=stream, highlight=False, width=40)):
        log.warning("rejected", "client {client}: {reason}", client=7, reason=reason)
    return stream.getvalue()


@given(WITH_BREAKS)
def test_a_record_is_one_line_whatever_a_peer_wrote(text: str) -> None:
    assert shown(FORGED).endswith(": no room client 3 joined with 600 samples round 9: done\n")
    line = shown(text)
    assert line.startswith("warning: client 7: ")
    assert line.endswith("\n")
    assert line[:-1].isprintable()


def test_no_line_of_a_traceback_looks_like_a_record() -> None:
    stream = io.StringIO()
    with LogLines(Console(file=stream, highlight=False)):
        try:
            raise ValueError(FORGED)
        except ValueError:
            log.exception("training_failed", "round {round} failed", round=4)
    first, *trace = stream.getvalue().splitlines()
    assert first == "error: round 4 failed"
    assert trace[0].strip() == "Traceback (most recent call last):"
    assert all(line.startswith("    ") for line in trace)
    assert "client 3 joined" in stream.getvalue()


def test_a_runs_log_is_shown_only_while_its_progress_is(capsys: pytest.CaptureFixture[str]) -> None:
    with RoundProgress(last=1):
        log.info("joined", "client {client} joined", client=3)
    log.warning("lost", "client {client} is lost", client=4)
    shown = capsys.readouterr().err
    assert "client 3" in shown
    assert "client 4" not in shown
