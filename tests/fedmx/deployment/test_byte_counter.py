"""The bytes of a deployed run, message by message."""

from __future__ import annotations

from fedmx.deployment.byte_counter import ByteCounter
from layers.logic import Traffic


def test_messages_count_in_both_directions_until_they_are_taken() -> None:
    counter = ByteCounter()
    counter.queued(3, "Task", 100)
    counter.queued(3, "Verdict", 10)
    counter.queued(4, "Task", 100)
    counter.received(3, "Update", 1, 70)
    assert counter.take() == {3: Traffic(110, 70), 4: Traffic(100, 0)}
    assert counter.take() == {}


def test_what_a_lost_connection_did_not_send_is_subtracted_once() -> None:
    counter = ByteCounter()
    counter.queued(3, "Task", 100)
    counter.queued(3, "Verdict", 10)
    counter.queued(3, "Verdict", 10)
    counter.sent(3, "Verdict", 10)
    counter.dropped(3)
    counter.dropped(3)
    assert counter.take() == {3: Traffic(10, 0)}


def test_a_message_in_whose_place_another_one_was_sent_is_subtracted_once() -> None:
    counter = ByteCounter()
    for _ in range(2):
        counter.queued(3, "Task", 100)
    counter.replaced(3, "Task", 100)
    counter.sent(3, "Task", 100)
    counter.replaced(3, "Task", 100)
    assert counter.take() == {3: Traffic(100, 0)}
    assert counter.control(130) == 30


def test_a_message_that_was_dropped_and_sent_after_all_counts() -> None:
    counter = ByteCounter()
    counter.queued(3, "Task", 100)
    counter.dropped(3)
    counter.sent(3, "Task", 100)
    assert counter.take() == {3: Traffic(100, 0)}
    assert counter.control(130) == 30


def test_messages_that_belong_to_no_round_are_control_traffic() -> None:
    counter = ByteCounter()
    for name in ("Setup", "Finished"):
        counter.sent(3, name, 40)
    assert counter.take() == {}
    for name in ("Task", "Verdict", "Question"):
        counter.sent(3, name, 40)
    assert counter.take() == {3: Traffic(120, 0)}
    assert counter.control(200) == 80


def test_an_update_that_comes_again_is_control_traffic() -> None:
    counter = ByteCounter()
    for _ in range(2):
        counter.received(3, "Update", 1, 70)
    counter.unasked(3, "Update", 1)
    counter.unasked(3, "Update", 1)
    counter.unasked(4, "Update", 1)
    assert counter.take() == {3: Traffic(0, 70)}
    assert counter.control(140) == 70
    counter.unasked(3, "Update", 1)
    assert counter.take() == {}


def test_what_a_round_has_reported_is_not_taken_from_the_next_one() -> None:
    counter = ByteCounter()
    counter.queued(3, "Task", 100)
    counter.take()
    counter.dropped(3)
    assert counter.take() == {}
    counter.queued(3, "Task", 100)
    counter.queued(3, "Task", 100)
    counter.dropped(3)
    assert counter.take() == {3: Traffic(0, 0)}


def test_files_and_control_traffic_are_what_has_come_since_the_last_call() -> None:
    counter = ByteCounter()
    assert [counter.files(total) for total in (50, 50, 80)] == [50, 0, 30]
    counter.queued(3, "Task", 100)
    counter.received(3, "Update", 1, 70)
    assert counter.control(20) == 0  # the task was counted before it was sent
    assert counter.control(175) == 5
    assert counter.control(175) == 0
    assert counter.control(182) == 7
