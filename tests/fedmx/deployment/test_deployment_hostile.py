"""What a hostile or broken client can do to a deployed round: be reported, and no more."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from fedmx.protocol.messages import CannotTakePart, Failed, Finished, Ready, Setup
from fedmx.run.records import JsonLines
from fedmx.server.tracebacks import Tracebacks
from layers.logic import Offer, Task, TooFewUpdates, Verdict
from layers.logic.round.patience import Patience
from layers.network import MessageCodec
from layers.network.frames import SIZE, Kind, frame
from tests.fedmx.scripted import Scripted, after_one_round, fleet, honest, listening, update_of
from tests.network.conftest import Certificates

Script = Callable[[Scripted], None]


@dataclass(frozen=True)
class Forged:
    """An update whose sample count may be anything."""

    round: int
    client: int
    samples: float
    steps: int
    delta: np.ndarray
    buffers: np.ndarray
    metrics: dict[str, float]
    slots: dict[str, dict[str, int]]


FORGER = MessageCodec({1: Setup, 2: Ready, 5: Finished, 8: Task, 11: Forged})


def says(**changed: object) -> Script:
    """A client whose first update is changed; later it is honest."""

    def script(client: Scripted) -> None:
        client.say(update_of(client.task(), **changed))
        honest(client)

    return script


def garbage(client: Scripted) -> None:
    client.task()
    client.raw(b"\xff" * 64)


def lie_about_a_length(client: Scripted) -> None:
    client.task()
    client.raw(frame(Kind.MESSAGE, 77, SIZE.pack(1 << 50)))


def chunk_that_was_not_announced(client: Scripted) -> None:
    client.task()
    client.raw(frame(Kind.DATA, 99, b"x" * 10))


def half_an_update(client: Scripted) -> None:
    whole = client.frames(update_of(client.task()))
    client.raw(whole[: len(whole) // 2])
    client.hang_up()


def samples_that_are_no_number(client: Scripted) -> None:
    u = update_of(client.task())
    client.say(Forged(u.round, u.client, float("nan"), 1, u.delta, u.buffers, {}, {}))


def an_offer_that_nobody_wants(client: Scripted) -> None:
    task = client.task()
    client.say(Offer(task.round, task.client, 10, 1.0))
    honest(client)


def a_word_of_servers(client: Scripted) -> None:
    task = client.task()
    client.say(Verdict(task.round, task.client, granted=True))
    client.say(update_of(task, samples=0))
    honest(client)


def a_failure(client: Scripted) -> None:
    client.say(Failed(client.task().round, client.client, "Ouch: no", "Traceback: line 1 of mine"))
    honest(client)


NAN = np.full(15, np.nan, np.float32)
# Of updates whose values are refused, test_gate.py has all.
HOSTILE: dict[str, tuple[Script, str, str]] = {
    "garbage": (garbage, "rejected", "frame"),
    "a length beyond every limit": (lie_about_a_length, "rejected", str(1 << 50)),
    "a chunk out of nowhere": (chunk_that_was_not_announced, "rejected", "stream 99"),
    "half an update": (half_an_update, "lost", "not back within 0.2 s"),
    "someone else's name": (says(client=0), "rejected", "in the name of client 0"),
    "NaN": (says(delta=NAN), "rejected", "15 values not finite"),
    "more samples than it announced": (says(samples=11), "rejected", "the client announced 10"),
    "samples that are no number": (samples_that_are_no_number, "rejected", "samples"),
    "an offer": (an_offer_that_nobody_wants, "rejected", "sent an offer of round 1"),
    "a word of servers": (a_word_of_servers, "rejected", "sample count of 0"),
    "a failure of its own": (a_failure, "lost", "Ouch: no"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_client_is_reported_and_the_others_count(
    what: str, certificates: Certificates
) -> None:
    script, status, reason = HOSTILE[what]
    more = {"codec": FORGER} if "no number" in what and "samples" in what else {}
    server = listening(certificates, last=2, wait_for=3, rejoin_s=0.2)
    start = server.weights.copy()
    with server, fleet(server, certificates, {0: honest, 1: honest}):
        tls_of_2 = {2: script}
        with fleet(server, certificates, tls_of_2, **more):
            rounds = server.rounds()
            first = next(rounds)
            (reported,) = [one for one in first.report.clients if one.client == 2]
            assert (reported.status, reason in reported.reason) == (status, True), reported
            assert first.participants == (0, 1)
            assert first.record()["rejected" if status == "rejected" else "lost"] == 1
            np.testing.assert_array_equal(server.weights, after_one_round(start, (0, 1)))
            (second,) = rounds
            assert {0, 1} <= set(second.participants)
            assert not second.report.of("rejected")
    assert first.control_bytes > 0
    assert second.control_bytes >= 0


def test_what_a_client_calls_its_numbers_does_not_change_what_is_recorded_of_it(
    certificates: Certificates, tmp_path: Path
) -> None:
    names = ("round", "client", "status", "samples", "up_bytes", "ended_s", "loss")
    names += ("checksum", "chain", "update_blake3")
    server = listening(certificates, wait_for=2)
    with (
        server,
        fleet(server, certificates, {0: honest, 1: says(metrics=dict.fromkeys(names, -1.0))}),
    ):
        (round,) = server.rounds()
    records = JsonLines(tmp_path / "clients.jsonl")
    records.append(round.client_records())
    one, other = records.read()
    assert (other["round"], other["client"], other["status"]) == (1, 1, "accepted")
    assert (other["samples"], other["up_bytes"] > 0, other["ended_s"] > 0) == (10, True, True)
    assert (one["loss"], other["loss"]) == (1.0, -1.0)
    assert (len(other["update_blake3"]), other["chain"]) == (1, -1.0)


def test_a_round_of_refused_updates_alone_leaves_the_model(certificates: Certificates) -> None:
    server = listening(certificates, wait_for=2, min_updates=1, wait_limit_s=0.0)
    before = server.weights.tobytes()
    with server, fleet(server, certificates, {0: says(delta=NAN), 1: says(samples=0)}):
        with pytest.raises(TooFewUpdates) as caught:
            list(server.rounds())
        assert (caught.value.got, caught.value.need, caught.value.report.round) == (0, 1, 1)
        assert len(caught.value.report.of("rejected")) == 2
        assert server.weights.tobytes() == before
        assert server.state.round == 0
        # The server is as good as new: the same round with the same clients, now honest.
        (again,) = server.rounds()
    assert again.participants == (0, 1)
    assert server.weights.tobytes() != before


def test_a_second_update_counts_for_nothing_and_costs_nobody(certificates: Certificates) -> None:
    def twice(client: Scripted) -> None:
        while True:
            update = update_of(client.task())
            client.say(update)
            client.say(update)

    server = listening(certificates, last=4, wait_for=2)
    model = server.weights.copy()
    with server, fleet(server, certificates, {0: twice, 1: honest}):
        rounds = []
        for round in server.rounds():
            rounds.append(round)
            model = after_one_round(model, (0, 1))
            np.testing.assert_array_equal(server.weights, model)
    assert all(round.participants == (0, 1) for round in rounds)
    told = [reason for round in rounds for reason in round.rejected_connections]
    told += [one.reason for round in rounds for one in round.report.clients if one.reason]
    assert told
    assert all("again" in reason or "another update" in reason for reason in told)


def test_the_newer_connection_of_one_identity_takes_over(certificates: Certificates) -> None:
    newcomers: list[Scripted] = []
    is_listed = threading.Event()

    def older(client: Scripted) -> None:
        client.task()
        newcomers.append(Scripted(server.address, 0, certificates.client("client-0"), newer))
        is_listed.set()

    def newer(client: Scripted) -> None:
        task = client.task()
        assert is_listed.wait(60)  # or the round is over before this test knows of it
        client.say(update_of(task))

    server = listening(certificates, wait_for=2)
    with server, fleet(server, certificates, {0: older, 1: honest}) as clients:
        (round,) = server.rounds()
        newcomers[0].stop()
    assert round.participants == (0, 1)
    assert "newer connection" in clients[0].over
    assert len(newcomers[0].tasks) == 1


def test_a_second_process_that_cannot_take_part_leaves_the_first_one_alone(
    certificates: Certificates,
) -> None:
    """As with `fedmx client --id 0` by mistake, with other data or another number of parts."""
    newcomers: list[Scripted] = []

    class Unfit(Scripted):
        def be_ready(self) -> Setup:
            setup = self.expect(Setup)
            self.say(CannotTakePart(0, "3 parts, not 5"))
            self.hang_up()
            return setup

    def first(client: Scripted) -> None:
        task = client.task()
        newcomers.append(Unfit(server.address, 0, certificates.client("client-0"), honest))
        newcomers[0].wait()
        client.say(update_of(task))
        honest(client)

    server = listening(certificates, wait_for=2, last=2)
    with server, fleet(server, certificates, {0: first, 1: honest}):
        rounds = list(server.rounds())
    assert [round.participants for round in rounds] == [(0, 1), (0, 1)]


class Stranger(Scripted):
    """Speaks before anybody has asked it anything."""

    def be_ready(self) -> Setup:
        for _ in range(3):
            self.say(CannotTakePart(0, "let me in"))
        return super().be_ready()


def test_strangers_are_sent_away_and_what_they_say_is_ignored(certificates: Certificates) -> None:
    def when_the_stranger_is_gone(client: Scripted) -> None:
        task = client.task()
        stranger.wait()
        client.say(update_of(task))

    tls = certificates.client("auditor")
    server = listening(certificates, wait_for=1)
    with server:
        stranger = Stranger(server.address, 0, tls, honest, name="auditor")
        with fleet(server, certificates, {0: when_the_stranger_is_gone}):
            (round,) = server.rounds()
        stranger.stop()
    assert "not a client of this run" in stranger.over
    assert any("'auditor' is not a client" in reason for reason in round.rejected_connections)
    assert round.participants == (0,)


def fail_at_length(client: Scripted) -> None:
    while True:
        task, text = client.task(), "\N{GRINNING FACE}" * 20_000
        client.say(Failed(task.round, task.client, text, text))


def test_a_client_that_fails_at_length_records_little_and_is_suspended(
    certificates: Certificates,
) -> None:
    server = listening(certificates, last=3, wait_for=3, patience=Patience(limit_s=60.0))
    scripts = {0: honest, 1: honest, 2: fail_at_length}
    with server, fleet(server, certificates, scripts):
        rounds = list(server.rounds())
    of_run = Tracebacks()
    lines = [of_run.recorded(one.client_records()) for one in rounds]
    mine = [[line for line in of_round if line["client"] == 2] for of_round in lines]
    sizes = [len(json.dumps(of_round)) for of_round in mine]
    assert sizes[0] < 21_000
    assert max(sizes[1:]) < 1_000
    assert all(len(json.dumps(one.journal.record(None))) < 5_000 for one in rounds)
    assert [[*one.record().get("suspended", {})] for one in rounds] == [[], [], ["2"]]
