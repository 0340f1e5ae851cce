"""A deployed client's estimate of its own speed, by a clock that the test moves."""

from __future__ import annotations

import numpy as np
import pytest

from fedmx.client import participant
from fedmx.client.participant import SpeedEstimate
from layers.logic import Answer, Question, Task, Training, Update

NOTHING = np.zeros(0, np.float32)


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(participant, "time", clock)
    return clock


def trained(speed: SpeedEstimate, samples: int, seconds: float, **training) -> None:
    task = Task(1, 0, 0, Training(**training), NOTHING, NOTHING)
    speed.trained(task, Update(1, 0, samples, 1, NOTHING, NOTHING), seconds)


def told(speed: SpeedEstimate, samples: int, **training) -> dict:
    question = Question("times", training=Training(**training))
    first = Answer(0, "times", {"train_s": 99.0, "upload_s": 98.0, "more": 1})
    return speed.improve(first, question, samples).values


def test_before_anything_was_measured_the_answer_stays_but_for_the_upload() -> None:
    speed = SpeedEstimate()
    assert (speed.sample_s, speed.bytes_per_s, speed.update_bytes) == (None, None, 0)
    assert told(speed, 10) == {"train_s": 99.0, "upload_s": 0.0, "more": 1}


def test_the_training_time_grows_with_samples_epochs_and_steps() -> None:
    speed = SpeedEstimate()
    trained(speed, 100, 20.0, epochs=2)  # 0.1 s a sample
    assert speed.sample_s == 0.1
    for samples, training, seconds in (
        (100, {}, 10.0),
        (300, {}, 30.0),
        (100, {"epochs": 3}, 30.0),
        (100, {"steps": 7, "batch_size": 20}, 14.0),
        (100, {"steps": 8, "batch_size": 20}, 16.0),
        (5, {"steps": 8, "batch_size": 20}, 4.0),
    ):
        assert told(speed, samples, **training)["train_s"] == pytest.approx(seconds)


def test_the_last_measurement_counts_as_much_as_all_before_it() -> None:
    speed = SpeedEstimate()
    trained(speed, 10, 1.0)
    trained(speed, 10, 3.0)
    assert speed.sample_s == pytest.approx(0.2)
    trained(speed, 10, 4.0)
    assert speed.sample_s == pytest.approx(0.3)
    trained(speed, 0, 5.0)  # trained on nothing, so that nothing is known
    assert speed.sample_s == pytest.approx(0.3)


def test_an_upload_takes_its_bytes_by_the_measured_bandwidth(clock: Clock) -> None:
    speed = SpeedEstimate()
    speed.sent()  # nothing was being sent
    assert speed.bytes_per_s is None
    speed.sending(5000)
    assert (speed.update_bytes, speed.upload_s) == (5000, 0.0)
    clock.now_s += 2.0
    speed.sent()
    assert (speed.bytes_per_s, speed.upload_s) == (2500.0, 2.0)
    clock.now_s += 50.0
    speed.sent()  # told once for each update
    assert speed.bytes_per_s == 2500.0
    speed.sending(1000)
    clock.now_s += 2.0
    speed.sent()
    assert speed.bytes_per_s == 1500.0
    assert told(speed, 1)["upload_s"] == pytest.approx(1000 / 1500)


def test_an_upload_in_no_time_has_no_endless_bandwidth(clock: Clock) -> None:
    speed = SpeedEstimate()
    speed.sending(3)
    speed.sent()
    assert speed.bytes_per_s == 3e6
