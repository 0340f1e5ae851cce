"""What an operator tells a running server, on a real socket, and what the run then holds."""

from __future__ import annotations

import contextlib
import json
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedmx import RemoteClients, Server
from fedmx.cli.runs import status_lines
from fedmx.deployment import operator_socket
from fedmx.deployment.operator_socket import NAME, OperatorSocket, ask
from fedmx.errors import FedmxError
from fedmx.history import replay
from fedmx.monitoring.monitor import Monitor
from fedmx.run.durable import DamagedError
from layers.logic.core.state import EXCLUDED
from layers.logic.round.patience import PATIENCE, Patience
from tests.fedmx.command_line import fedmx
from tests.fedmx.journal.test_journal_of_scripts import assert_same
from tests.fedmx.processes import Deployment, until
from tests.fedmx.scripted import Over, Scripted, fleet, honest, listening, update_of
from tests.network.conftest import Certificates


@contextlib.contextmanager
def operated(server: Server, folder: Path) -> Iterator[RemoteClients]:
    """The clients of a server that an operator can tell what to do."""
    with server, server.network.orders.listening(folder):
        yield server.network


def told(folder: Path, command: str, client: int | None = None) -> dict[str, Any]:
    answer = ask(folder, {"command": command, "client": client})
    assert "error" not in answer, answer
    return answer


def test_an_excluded_client_is_lost_at_once_and_not_asked_until_it_is_included_again(
    certificates: Certificates, tmp_path: Path
) -> None:
    def excluded(client: Scripted) -> None:
        client.task()
        assert told(tmp_path, "exclude", 1)["excluded"] == [1]
        client.say(update_of(client.task()))
        honest(client)

    def includes(client: Scripted) -> None:
        client.say(update_of(client.task()))
        second = client.task()
        assert told(tmp_path, "include", 1)["excluded"] == []
        client.say(update_of(second))
        honest(client)

    server = listening(certificates, last=4, wait_for=3)
    with (
        operated(server, tmp_path),
        fleet(server, certificates, {0: includes, 1: excluded, 2: honest}),
    ):
        rounds = list(server.rounds())
    assert [one.participants for one in rounds] == [(0, 2), (0, 2), (0, 1, 2), (0, 1, 2)]
    (lost,) = [one for one in rounds[0].report.clients if one.client == 1]
    assert (lost.status, "operator" in lost.reason) == ("lost", True)
    said = [one.record().get("operator", []) for one in rounds]
    assert [[text.split(" ", 1)[1] for text in texts] for texts in said] == [
        ["exclude 1"],
        ["include 1"],
        [],
        [],
    ]
    assert [one.journal.excluded for one in rounds] == [{}, {1: "excluded by the operator"}, {}, {}]
    # It begins as a new client.
    assert server.state.last_accepted[1] == 4
    assert_same(server, rounds)


def test_a_paused_run_ends_its_round_and_begins_no_other(
    certificates: Certificates, tmp_path: Path
) -> None:
    def pauses(client: Scripted) -> None:
        task = client.task()
        assert told(tmp_path, "pause")["paused"]
        client.say(update_of(task))
        honest(client)

    server = listening(certificates, last=2, wait_for=2)
    with operated(server, tmp_path) as clients, fleet(server, certificates, {0: honest, 1: pauses}):
        server.monitor = Monitor("a-run", "digits", 2, clients.now)
        rounds: list[Any] = []
        running = threading.Thread(target=lambda: rounds.extend(server.rounds()))
        running.start()
        until(lambda: server.state.round == 1, lambda: "no round")
        status = server.monitor.status()
        assert (status["state"], status["paused"], status["waiting"]) == ("running", True, None)
        assert "paused" in dict(status_lines(status, 0.0))["state"]
        assert not told(tmp_path, "resume")["paused"]
        running.join(60)
    assert [one.participants for one in rounds] == [(0, 1), (0, 1)]
    assert_same(server, rounds)


def test_a_client_that_was_kicked_loses_its_task_and_is_asked_as_before_when_it_comes_back(
    certificates: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kicks = 3

    def kicked(client: Scripted) -> None:
        for _ in range(kicks):
            client.task()
            told(tmp_path, "kick", 1)
            with pytest.raises(Over, match="operator"):
                client.task()
            client.connect()
            client.be_ready()
        honest(client)

    server = listening(certificates, last=kicks + 1, wait_for=2, patience=Patience(times=10.0))
    with operated(server, tmp_path) as clients, fleet(server, certificates, {0: honest, 1: kicked}):
        rounds = []
        for one in server.rounds():
            rounds.append(one)
            while clients._sessions.membership.rejoined < sum(
                len(other.report.of("lost")) for other in rounds
            ):
                clients.open_round(server.state)
    assert [one.report.of("lost") for one in rounds] == [*[(1,)] * kicks, ()]
    assert [one.report.suspended for one in rounds] == [{}] * (kicks + 1)
    assert rounds[-1].participants == (0, 1)
    assert "offences" not in server.state.memory[PATIENCE]
    assert_same(server, rounds)
    said = [one for one in caplog.records if "operator: " in one.getMessage()]
    assert len(said) == kicks
    assert all("kick 1" in one.getMessage() and one.levelname == "WARNING" for one in said)


def test_a_client_that_was_included_stays_excluded_when_a_step_back_suspects_it_again(
    certificates: Certificates, tmp_path: Path
) -> None:
    suspected = {3: "suspected of breaking the model"}
    server = listening(certificates)
    before = server.state.excluding(suspected)
    with operated(server, tmp_path) as clients:
        orders = clients.orders
        orders.opening(replace(before, round=4))
        orders.opened()
        included: list[dict[str, Any]] = []
        asking = threading.Thread(target=lambda: included.append(told(tmp_path, "include", 3)))
        asking.start()
        until(lambda: orders.poll() or included, lambda: "no answer")
        asking.join()
        assert EXCLUDED not in orders.opening(replace(before, round=5)).memory
        orders.opened()
        clients.forget("the run steps back to round 2")
        assert orders.opening(replace(before, round=2)).memory[EXCLUDED] == suspected


def test_what_cannot_be_done_is_said_and_changes_nothing(
    certificates: Certificates, tmp_path: Path
) -> None:
    answers: list[dict[str, Any]] = []

    def asks(client: Scripted) -> None:
        task = client.task()
        for command, number in (
            *(("kick", 7), ("include", 0), ("exclude", -1), ("kick", None), ("pause", 3)),
            *(("kick", "0"), ("kick", True), ("kick", 0.0), ("other", None)),
        ):
            answers.append(ask(tmp_path, {"command": command, "client": number}))
        answers.append(ask(tmp_path, {}))
        client.say(update_of(task))
        honest(client)

    server = listening(certificates, last=1, wait_for=1)
    with operated(server, tmp_path), fleet(server, certificates, {0: asks}):
        (round,) = server.rounds()
    assert all("error" in one for one in answers)
    assert len(answers) == 10
    assert "not connected" in answers[0]["error"]
    assert round.participants == (0,)
    assert "operator" not in round.record()


def test_the_socket_is_its_owners_alone_at_any_path_and_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 30) / "run"
    folder.mkdir(parents=True)
    (folder / NAME).write_text("of a killed server")
    with OperatorSocket(folder, dict) as end:
        assert stat.S_IMODE((folder / NAME).stat().st_mode) == 0o600
        assert stat.S_ISSOCK((folder / NAME).stat().st_mode)
        answers: list[Any] = []
        asking = threading.Thread(target=lambda: answers.append(ask(folder, {"command": "x"})))
        asking.start()
        until(lambda: end.poll() or answers, lambda: "no answer")
        assert answers == [{"command": "x"}]
        asking.join()
    assert list(folder.iterdir()) == []
    with pytest.raises(FedmxError, match="does not answer"):
        ask(folder, {})


HOSTILE = {
    "no JSON": [b"no JSON\n"],
    "no mapping": [b"[1]\n"],
    "deep": [b"[" * 4000 + b"\n"],
    "endless": [b"{" * 5000],
    "broken off": [b'{"command": "pau'],
    "silent": [b""] * 100,
    "slow": [b"{"] * 3,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_connection_stops_the_server_or_keeps_another_from_its_answer(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator_socket, "REST_S", 0.0)
    clock = [0.0]
    monkeypatch.setattr(operator_socket.time, "monotonic", lambda: clock[0])
    asked: list[Any] = []
    with (
        OperatorSocket(tmp_path, lambda request: asked.append(request) or {"done": 1}) as end,
        contextlib.ExitStack() as open_ones,
    ):
        for content in HOSTILE[name]:
            one = open_ones.enter_context(socket.socket(socket.AF_UNIX))
            one.connect(str(tmp_path / NAME))
            one.sendall(content)
            end.poll()
        found = in_thread(lambda: ask(tmp_path, {"command": "pause"}))
        while not found.done():
            threading.Event().wait(0.005)  # on a busy machine, the thread has not sent it yet
            clock[0] += 0.1
            end.poll()
        assert found.result() == {"done": 1}
        clock[0] += 10.0
        end.poll()
        end.poll()
        assert end._open == [], "a connection is kept for ever"
    assert asked[-1] == {"command": "pause"}


def in_thread(work: Callable[[], Any]) -> Future[Any]:
    pool = ThreadPoolExecutor(1)
    found = pool.submit(work)
    pool.shutdown(wait=False)
    return found


def test_an_answer_of_any_length_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_socket, "REST_S", 0.0)
    excluded = list(range(300_000))
    with OperatorSocket(tmp_path, lambda _: {"excluded": excluded}) as end:
        found = in_thread(lambda: ask(tmp_path, {"command": "exclude", "client": 1}))
        while not found.done():
            end.poll()
    assert found.result() == {"excluded": excluded}


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (None, "did not answer within 0 s"),
        (b"", "its server has ended"),
        (b"{}\n", "its server has ended"),
        (b"no JSON\n", "its server has ended"),
    ],
)
def test_a_server_that_does_not_answer_a_command_is_named_with_the_reason(
    answers: bytes | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if answers is None:
        monkeypatch.setattr(operator_socket, "ANSWER_S", 0.01)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / NAME))
        listening.listen()

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                if answers is not None:
                    connection.recv(4096)
                    connection.sendall(answers)
                    return
                over.wait(60)

        over = threading.Event()
        answering = threading.Thread(target=answer)
        answering.start()
        with pytest.raises(FedmxError) as caught:
            ask(tmp_path, {"command": "pause"})
        over.set()
        answering.join()
    assert str(caught.value).startswith(f"{tmp_path}: ")
    assert said in str(caught.value)


def test_a_folder_without_a_server_is_named_with_what_tells_more(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(FedmxError) as caught:
            ask(folder, {"command": "pause"})
        said = str(caught.value)
        assert said.startswith(f"{folder}: its server does not answer (No such file or directory)")
        assert f"fedmx status {folder}" in said


def test_a_folder_without_room_for_a_socket_costs_the_commands_and_not_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / NAME / "inside").mkdir(parents=True)
    with OperatorSocket(tmp_path, dict) as end:
        end.poll()
    (record,) = caplog.records
    assert (record.levelname, record.event) == ("WARNING", "no_operator_socket")  # type: ignore[attr-defined]
    assert record.getMessage() == f"{tmp_path / NAME}: fedmx ctl does not work (Is a directory)"
    assert (tmp_path / NAME / "inside").is_dir()


def test_a_damaged_file_of_what_was_said_is_named(
    certificates: Certificates, tmp_path: Path
) -> None:
    (tmp_path / "operator.json").write_text("{")
    server = listening(certificates)
    with (
        pytest.raises(DamagedError, match=r"operator\.json"),
        server.network.orders.listening(tmp_path),
    ):
        pass


EXPERIMENT = """
name: operated
rounds: 3
clients: 3
compute:
  model: 2nn
  data: digits
  normalise: {scale: 16}
  train: {epochs: 1, batch_size: 100}
logic:
  preset: {name: scaffold, fraction: 1.0}
  min_updates: 2
"""


@pytest.mark.timeout(300)
def test_the_command_line_pauses_excludes_and_stops_and_a_resumed_run_goes_on_with_that(
    tmp_path: Path, certificates: Certificates
) -> None:
    (tmp_path / "operated.yaml").write_text(EXPERIMENT)
    with Deployment(tmp_path, tmp_path / "operated.yaml", certificates) as deployment:
        server = deployment.serve()
        server.line("run folder: ")
        run = str(deployment.run.path)

        def ctl(*words: str) -> str:
            done = fedmx("ctl", run, *words, cwd=tmp_path)
            assert (done.code, done.err) == (0, ""), done
            return done.out

        def refused(*words: str) -> str:
            return fedmx("ctl", run, *words, cwd=tmp_path).error_text

        server.line("waiting for clients: 0 of 3")
        ctl("pause")
        assert json.loads(ctl("exclude", "2", "--json"))["excluded"] == [2]
        assert "min_updates" in refused("exclude", "1")
        assert "client 30" in refused("kick", "30")
        assert "client 2" in refused("exclude", "2")
        assert "'restart'" in refused("restart")
        assert "number" in refused("kick")
        assert "(paused)" in fedmx("status", run, cwd=tmp_path).out
        ctl("stop")
        assert server.code() == 130
        assert "fedmx ctl" in deployment.run.reason
        assert "not running" in refused("pause")
        resumed = deployment.resume()
        resumed.line("is paused")
        clients = [deployment.client(number, 3) for number in range(2)]
        live = deployment.run.path / "live.json"
        until(lambda: json.loads(live.read_text())["excluded"] == [2], live.read_text)
        assert json.loads(fedmx("status", run, "--json", cwd=tmp_path).out)["paused"] is True
        ctl("resume")
        assert [one.code() for one in (*clients, resumed)] == [0, 0, 0]
        assert [one["participants"] for one in deployment.run.rounds()] == [[0, 1]] * 3
        assert replay(deployment.run).same is True
        assert "not running" in refused("pause")


def test_what_is_no_run_of_a_server_is_one_line(tmp_path: Path) -> None:
    assert "there is no such folder" in fedmx("ctl", "none", "pause", cwd=tmp_path).error_text
