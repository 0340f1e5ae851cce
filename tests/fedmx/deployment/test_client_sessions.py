"""What the server does with one network event after the other, without a network."""

from __future__ import annotations

import dataclasses
import logging
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmx.assembly.assets import AssetFile
from fedmx.deployment.client_sessions import ClientSessions
from fedmx.deployment.rejections import MOST_REASONS, Rejections
from fedmx.experiment.sections import MOST_VIOLATIONS
from fedmx.protocol.messages import Failed, Finished, MissingAssets, Ready, Setup
from layers.compute.data.targets import Targets
from layers.logic import (
    Answer,
    ClientLost,
    Offer,
    Question,
    StateLost,
    Task,
    Traffic,
    Training,
    Update,
    Verdict,
)
from layers.logic.core.messages import MOST_SAMPLES
from layers.logic.record_size import REASON_BYTES
from layers.network import (
    ConnectionRejected,
    FileFailed,
    FileSent,
    Joined,
    Left,
    LimitExceeded,
    NotConnected,
    Received,
    Replaced,
    Sent,
)

ASSET = AssetFile("shared", b"some samples")
DIGESTS = (ASSET.sha256,)
MESSAGE_BYTES = 100
EMPTY = np.zeros(0, np.float32)


def joined(peer: str) -> Joined:
    return Joined(peer, "1.2.3.4:5", authenticated=True)


class NoNetwork:
    """A listener to which only comes what a test puts there, and that keeps what is sent."""

    address = "127.0.0.1:1"

    def __init__(self) -> None:
        self.events: deque[Any] = deque()
        self.sent: list[tuple[str, Any]] = []
        self.in_place_of_older: list[bool] = []
        self.files: list[tuple[str, str]] = []
        self.closed: list[tuple[str, str, bool]] = []
        self.peers: set[str] = set()
        self.refuses: Exception | None = None
        self.connected_from = "1.2.3.4:5"

    def next_event(self, timeout_s: float, last: int | None = None) -> Any:
        return self.events.popleft() if self.events else None

    def last_event(self) -> int:
        return len(self.events)

    def send(
        self, peer: str, message: Any, address: str | None = None, replace: bool = False
    ) -> int:
        if self.refuses is not None:
            raise self.refuses
        if address not in (None, self.connected_from):
            raise NotConnected(peer)
        self.sent.append((peer, message))
        self.in_place_of_older.append(replace)
        return MESSAGE_BYTES

    def send_file(self, peer: str, path: Any, name: str) -> None:
        self.files.append((peer, name))

    def disconnect(self, peer: str, reason: str, final: bool) -> None:
        self.closed.append((peer, reason, final))

    def close(self, linger_s: float, reason: str, final: bool) -> None:
        self.closed.append(("all", reason, final))


class Sessions(ClientSessions):
    """The sessions of up to five clients; `take` gives them network events."""

    def __init__(self, clients: int | None = 5) -> None:
        self.network: Any = NoNetwork()
        super().__init__(
            self.network,
            Setup("run", "", "", 0, (3,), Targets("classes", 2)),
            clients,
            rejoin_s=0,
            assets=[ASSET],
        )

    def take(self, *events: Any) -> None:
        self.network.events.extend(events)
        while self.network.events:
            self._handle(self.network.next_event(0.0))

    def say(self, client: int, message: Any) -> None:
        self.take(Received(f"client-{client}", message, MESSAGE_BYTES))

    def enter(self, client: int, kept: tuple[int, ...] = ()) -> None:
        self.take(joined(f"client-{client}"))
        self.say(client, Ready("run", client, 10, kept, DIGESTS))
        self.network.sent.clear()

    def heard(self) -> list[Any]:
        """Return the client events so far."""
        events = []
        self.changes.clear()  # who joined is the subject of other tests
        while (event := self.next_event(0.0)) is not None:
            events.append(event)
        return events

    @property
    def messages(self) -> list[tuple[str, type]]:
        return [(peer, type(message)) for peer, message in self.network.sent]


def test_a_client_that_has_come_back_twice_gets_one_setup(sessions: Sessions) -> None:
    sessions.network.connected_from = "1.2.3.4:7"
    for port in (5, 6, 7):  # the server handles them when the last connection is open already
        event = dataclasses.replace(joined("client-1"), address=f"1.2.3.4:{port}")
        sessions.take(event, *([Left("client-1", "superseded")] if port < 7 else []))
    assert sessions.messages == [("client-1", Setup)]


def test_a_task_does_not_go_to_a_connection_that_is_not_ready(sessions: Sessions) -> None:
    sessions.enter(1)
    sessions.network.connected_from = "1.2.3.4:6"  # and its events are not handled yet
    sessions.send(1, Verdict(1, 1, granted=True))
    assert sessions.messages == []
    assert sessions.byte_counter.take() == {}


@pytest.fixture
def sessions() -> Any:
    made = Sessions()
    yield made
    made.asset_sender.close()


def a_task(client: int = 3, round: int = 2, after: int = 0) -> Task:
    return Task(round, client, 0, Training(), np.zeros(3, np.float32), EMPTY, after)


def an_update(client: int = 3, round: int = 2) -> Update:
    return Update(round, client, 10, 1, np.zeros(3, np.float32), EMPTY, {})


def test_a_client_gets_the_setup_with_its_number_and_is_there_when_it_is_ready(sessions) -> None:
    sessions.take(joined("client-3"))
    ((peer, setup),) = sessions.network.sent
    assert (peer, setup.client, setup.run, setup.assets) == (
        "client-3",
        3,
        "run",
        (ASSET.announced,),
    )
    assert sessions.membership.samples == {}
    sessions.say(3, Ready("run", 3, 10, (1, 2), DIGESTS))
    assert (sessions.membership.samples, sessions.memory_rounds) == ({3: 10}, {3: {1, 2}})
    assert sessions.reconnected == {3}
    assert sessions.rejections.take() == ()


@pytest.mark.parametrize("peer", ["client-5", "client-03", "client--1", "other", "client-1x"])
def test_who_is_not_a_client_of_the_run_is_sent_away_for_good(sessions, peer: str) -> None:
    sessions.take(joined(peer), Received(peer, Ready("run", 3, 10, (), DIGESTS), 1))
    ((closed, reason, final),) = sessions.network.closed
    assert (closed, final) == (peer, True)
    assert "connect as client-N, N from 0 to 4" in reason
    assert (sessions.network.sent, sessions.membership.samples) == ([], {})
    assert len(sessions.rejections.take()) == 1


@pytest.mark.parametrize(
    "ready",
    [
        Ready("other", 3, 10, (), DIGESTS),
        Ready("run", 4, 10, (), DIGESTS),
        Ready("run", 3, 10, (), ()),
        Ready("run", 3, 10, (), ("0" * 64,)),
        Ready("run", 3, -1, (), DIGESTS),
        Ready("run", 3, MOST_SAMPLES + 1, (), DIGESTS),
        Ready("run", 3, 10, (1, 2, 3), DIGESTS),
    ],
)
def test_a_client_that_is_ready_for_something_else_is_sent_away(sessions, ready) -> None:
    sessions.take(joined("client-3"))
    sessions.say(3, ready)
    assert sessions.membership.samples == {}
    assert [(peer, final) for peer, _, final in sessions.network.closed] == [("client-3", True)]
    assert len(sessions.rejections.take()) == 1


def test_a_client_that_is_back_gets_its_open_question_or_task_again(sessions) -> None:
    sessions.questions = {1: Question("labels", round=2)}
    sessions.outstanding = {3: a_task(3)}
    for client in (1, 3, 4):
        sessions.take(joined(f"client-{client}"))
        sessions.say(client, Ready("run", client, 10, (), DIGESTS))
    again = [pair for pair in sessions.messages if pair[1] is not Setup]
    assert again == [("client-1", Question), ("client-3", Task)]
    assert sessions.reconnected == {1, 4}


@pytest.mark.parametrize(
    ("kept", "after", "sent"), [((), 0, True), ((1,), 1, True), ((2,), 1, False), ((), 1, False)]
)
def test_a_task_goes_only_to_a_client_with_the_memory_for_it(sessions, kept, after, sent) -> None:
    sessions.enter(3, kept)
    sessions.send_task(a_task(after=after))
    assert sessions.messages == ([("client-3", Task)] if sent else [])
    assert sessions.heard() == ([] if sent else [StateLost(2, 3)])


def test_a_task_of_an_earlier_round_needs_no_memory(sessions) -> None:
    sessions.enter(3)
    sessions.send_task(a_task(after=1).without_vectors())
    assert sessions.messages == [("client-3", Task)]


def test_a_task_or_question_replaces_one_that_waits_and_a_verdict_does_not(sessions) -> None:
    sessions.enter(3)
    sessions.network.in_place_of_older.clear()
    for message in (a_task(), Question("labels", round=2), Verdict(2, 3, granted=True)):
        sessions.send(3, message)
    assert sessions.network.in_place_of_older == [True, True, False]
    sessions.take(Replaced("client-3", "Task", MESSAGE_BYTES))
    sessions.take(Replaced("nobody of this run", "Task", MESSAGE_BYTES))
    assert sessions.byte_counter.take() == {3: Traffic(2 * MESSAGE_BYTES, 0)}


def test_what_is_sent_counts_and_what_cannot_be_sent_does_not(sessions) -> None:
    sessions.enter(3)
    sessions.send(4, a_task(4))
    assert sessions.byte_counter.take() == {}
    sessions.send(3, a_task())
    assert sessions.byte_counter.take() == {3: Traffic(MESSAGE_BYTES, 0)}
    sessions.network.refuses = NotConnected("gone")
    sessions.send(3, a_task())
    assert sessions.byte_counter.take() == {}
    assert sessions.rejections.take() == ()
    assert sessions.heard() == []


@pytest.mark.parametrize(
    ("outstanding", "questions", "round"),
    [({3: a_task()}, {}, 2), ({}, {3: Question("labels", round=7)}, 0), ({}, {}, None)],
)
def test_a_client_that_takes_no_message_so_large_loses_its_task_or_question(
    sessions, outstanding, questions, round
) -> None:
    sessions.enter(3)
    sessions.outstanding, sessions.questions = outstanding, questions
    sessions.network.refuses = LimitExceeded("too large")
    sessions.send(3, a_task())
    assert sessions.rejections.take() == ("client 3: too large",)
    lost = [] if round is None else [ClientLost(round, 3, "too large", rejected=True)]
    assert sessions.heard() == lost
    assert sessions.byte_counter.take() == {}


def test_a_client_that_takes_no_setup_so_large_is_sent_away(sessions) -> None:
    sessions.network.refuses = LimitExceeded("too large")
    sessions.take(joined("client-3"))
    assert sessions.network.closed == [("client-3", "too large", True)]
    assert sessions.rejections.take() == ("client-3: too large",)


@pytest.mark.parametrize(
    "message", [an_update(), Answer(3, "labels", {}, 2), Offer(2, 3, 10, 1.0, 0.0, {})]
)
def test_what_a_ready_client_answers_goes_on_and_counts(sessions, message) -> None:
    sessions.enter(3)
    sessions.say(3, message)
    assert sessions.heard() == [message]
    assert sessions.byte_counter.take() == {3: Traffic(0, MESSAGE_BYTES)}
    assert sessions.rejections.take() == ()


def test_an_answer_before_a_client_is_ready_only_counts(sessions) -> None:
    sessions.say(3, an_update())
    assert sessions.heard() == []
    assert sessions.byte_counter.take() == {3: Traffic(0, MESSAGE_BYTES)}
    assert sessions.rejections.take() == ()


def test_a_failure_loses_the_task_and_its_texts_are_cut(sessions) -> None:
    sessions.enter(3)
    sessions.say(3, Failed(2, 3, "r" * 501, "a" + "t" * 20_000))
    assert sessions.heard() == [ClientLost(2, 3, "r" * 500, "t" * 20_000)]
    assert sessions.byte_counter.take() == {3: Traffic(0, MESSAGE_BYTES)}


def test_a_message_in_another_client_s_name_is_rejected_and_loses_the_task(sessions) -> None:
    sessions.enter(3)
    sessions.outstanding = {3: a_task(), 4: a_task(4)}
    sessions.say(3, an_update(4))
    reason = "sent a message in the name of client 4"
    assert sessions.heard() == [ClientLost(2, 3, reason, rejected=True)]
    assert sessions.rejections.take() == (f"client 3: {reason}",)


def test_a_client_with_too_many_violations_is_sent_away_and_one_with_fewer_is_not(sessions) -> None:
    sessions.enter(3)
    for _ in range(MOST_VIOLATIONS):
        sessions.report_violation(3, "was rude")
    assert sessions.network.closed == []
    sessions.report_violation(3, "was rude")
    reason = "was rude, and this client has violated the protocol too often"
    assert sessions.network.closed == [("client-3", reason, True)]


def test_a_client_whose_connection_was_closed_for_what_it_sent_is_not_waited_for(sessions) -> None:
    sessions.enter(3)
    sessions.outstanding = {3: a_task()}
    sessions.take(
        ConnectionRejected("1.2.3.4:5", "client-3", "bad frame"), Left("client-3", "bad frame")
    )
    assert sessions.heard() == [ClientLost(2, 3, "bad frame", rejected=True)]
    assert sessions.rejections.take() == ("client-3 at 1.2.3.4:5: bad frame",)
    assert sessions.membership.ready == set()
    sessions.enter(3)
    sessions.take(Left("client-3", "bad frame"))  # by itself: it may come back
    assert sessions.heard() == []


def test_all_connections_of_a_machine_share_its_allowance_of_log_lines(sessions, caplog) -> None:
    for number in range(200):
        peer = f"client-{number % 5}" if number % 2 else None
        sessions.take(ConnectionRejected(f"1.2.3.4:{number}", peer, "no certificate"))
    sessions.take(ConnectionRejected("5.6.7.8:1", None, "no certificate"))
    *written, last = caplog.messages
    assert last == "5.6.7.8:1: no certificate"
    assert written[:2] == ["1.2.3.4:0: no certificate", "client-1 at 1.2.3.4:1: no certificate"]
    assert sessions.refused_connections == 201
    sessions.log.flush(now=True)
    left_out = 200 - len(written)
    assert left_out > 100
    assert caplog.messages[-1] == f"further lines about 1.2.3.4 are left out: {left_out}"


def test_what_a_client_that_left_had_not_received_does_not_count(sessions) -> None:
    sessions.enter(3)
    sessions.send(3, a_task())
    sessions.send(3, Verdict(2, 3, granted=True))
    sessions.take(Sent("client-3", "Task", MESSAGE_BYTES), Left("client-3", "lost"))
    assert sessions.byte_counter.take() == {3: Traffic(MESSAGE_BYTES, 0)}


def test_a_client_gets_the_assets_that_it_lacks(sessions) -> None:
    sessions.say(3, MissingAssets("run", 3, ("shared",)))
    file = ASSET.announced.file_name(3)
    assert sessions.network.files == [("client-3", file)]
    sessions.say(3, MissingAssets("run", 3, ("shared",)))
    assert len(sessions.network.files) == 1  # it is under way
    assert sessions.rejections.take() == ()
    sessions.take(FileSent("client-3", file, 12))
    sessions.say(3, MissingAssets("run", 3, ("shared",)))
    assert len(sessions.network.files) == 2
    assert sessions.rejections.take() == (
        "client 3: lacks the asset shared that it had; it gets it again",
    )


def test_the_files_that_were_sent_are_removed_when_the_server_closes(sessions) -> None:
    sessions.say(3, MissingAssets("run", 3, ("shared",)))
    folder = Path(sessions.asset_sender._temporary)
    assert len(list(folder.iterdir())) == 1
    sessions.close(1.0)
    assert not folder.exists()


LACKS = "lacks assets that it has, or that this run does not have"


@pytest.mark.parametrize(
    ("ready", "message", "reason"),
    [
        (True, Ready("run", 3, 99, (), DIGESTS), "was ready already"),
        (True, Verdict(2, 3, granted=True), "sent a Verdict, which only a server sends"),
        (True, MissingAssets("run", 3, ("shared",)), LACKS),
        *((False, MissingAssets("run", 3, names), LACKS) for names in ((), ("other",))),
        (False, MissingAssets("run", 3, ("shared", "other")), LACKS),
    ],
)
def test_a_client_that_says_what_it_may_not_violates_the_protocol(
    sessions, ready: bool, message: Any, reason: str
) -> None:
    if ready:
        sessions.enter(3)
    sessions.say(3, message)
    assert sessions.rejections.take() == (f"client 3: {reason}",)
    assert (sessions.heard(), sessions.network.files) == ([], [])
    assert sessions.membership.samples == ({3: 10} if ready else {})
    assert sessions.byte_counter.take() == {}


def test_however_often_a_client_says_a_name_the_log_has_it_once(sessions, caplog) -> None:
    caplog.set_level(logging.INFO, "fedmx.server")
    sessions.say(3, MissingAssets("run", 3, ("shared",) * 100_000))
    assert caplog.messages == ["client 3: is sent assets: shared"]
    assert sessions.network.files == [("client-3", ASSET.announced.file_name(3))]


def test_a_client_may_send_messages_out_of_place_up_to_the_number_of_violations(
    sessions, caplog
) -> None:
    caplog.set_level(logging.INFO, "fedmx.server")
    for _ in range(MOST_VIOLATIONS):
        sessions.note_out_of_place(3, "x" * 100_000)
    assert caplog.messages[0] == f"client 3: {'x' * REASON_BYTES}"
    assert sessions.network.closed == []
    sessions.note_out_of_place(3, "offered again")
    ((peer, reason, final),) = sessions.network.closed
    assert (peer, final, "offered again" in reason) == ("client-3", True, True)


def test_only_a_transfer_that_was_under_way_is_reported_when_it_fails(sessions) -> None:
    file = ASSET.announced.file_name(3)
    sessions.take(FileFailed("client-3", file, "disk full"))
    assert sessions.rejections.take() == ("client 3: offered a file that it was not asked for",)
    sessions.say(3, MissingAssets("run", 3, ("shared",)))
    sessions.take(FileFailed("client-3", file, "disk full"))
    assert sessions.rejections.take() == (f"client-3: does not get the asset {file}: disk full",)
    sessions.say(3, MissingAssets("run", 3, ("shared",)))
    assert len(sessions.network.files) == 2
    assert sessions.rejections.take() == ()


def test_polling_stops_at_the_first_event_for_the_round(sessions) -> None:
    sessions.enter(3)
    for update in (an_update(round=2), an_update(round=3)):
        sessions.network.events.append(Received("client-3", update, MESSAGE_BYTES))
    sessions.poll()
    assert len(sessions.network.events) == 1
    assert [event.round for event in sessions.heard()] == [2, 3]


def test_the_end_is_told_to_all_who_are_connected_and_to_those_who_come_later(sessions) -> None:
    sessions.enter(3)
    sessions.network.peers = {"client-3", "client-1"}
    sessions.finish("3 rounds", everyone=False)
    over = Finished("3 rounds")
    assert sessions.network.sent == [("client-1", over), ("client-3", over)]
    sessions.network.events.append(joined("client-4"))
    sessions.close(1.0)
    assert sessions.network.sent[2:] == [("client-4", over)]
    assert sessions.network.closed == [("all", "the run is over: 3 rounds", True)]


def test_the_end_waits_for_nobody_if_all_know_it(sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    waits_s: list[float] = []
    monkeypatch.setattr(
        sessions.network, "next_event", lambda timeout_s, last=None: waits_s.append(timeout_s)
    )
    sessions.membership.rejoin_s = 1.0
    sessions.network.peers = {f"client-{client}" for client in range(5)}
    sessions.finish("3 rounds", everyone=True)
    assert waits_s == [0.0]  # what has come already is looked at


def test_a_server_that_closes_before_the_end_lets_its_clients_come_back(sessions) -> None:
    sessions.close(1.0)
    assert sessions.network.closed == [("all", "the server closes", False)]


def test_without_a_number_of_clients_any_number_is_a_client() -> None:
    sessions = Sessions(None)
    sessions.take(joined("client-999999999"), joined("client-1000000000"))
    assert [peer for peer, _ in sessions.network.sent] == ["client-999999999"]
    ((peer, reason, _),) = sessions.network.closed
    assert peer == "client-1000000000"
    assert reason.endswith("connect as client-N")


def test_the_record_of_a_round_has_a_hundred_reasons_of_500_characters_and_the_number_of_others(
    sessions,
) -> None:
    rejections = sessions.rejections
    for number in range(MOST_REASONS):
        rejections.add(f"{number:03} {'x' * 496}")
    for number in (0, 0, MOST_REASONS, MOST_REASONS + 1):
        rejections.add(f"{number:03} {'x' * 497}")
    reasons = [f"{number:03} {'x' * 496}" for number in range(MOST_REASONS)]
    reasons[0] += " (3 times)"
    assert rejections.take() == (*reasons, "and 2 more")
    assert rejections.take() == ()


def test_violations_count_anew_in_each_round_and_messages_out_of_place_on_each_connection() -> None:
    rejections = Rejections(1)
    assert [rejections.count_violation(3) for _ in range(2)] == [False, True]
    assert [rejections.count_out_of_place(3) for _ in range(2)] == [False, True]
    assert (rejections.count_violation(4), rejections.count_out_of_place(4)) == (False, False)
    rejections.take()
    assert (rejections.count_violation(3), rejections.count_out_of_place(3)) == (False, True)
    rejections.joined(3)
    assert (rejections.count_violation(3), rejections.count_out_of_place(3)) == (True, False)
