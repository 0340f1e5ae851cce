"""Which messages may be large: both ends know it, and refuse the others by their first bytes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from fedmx.protocol.messages import CODEC, MOST_VALUES, SMALL_BYTES, SMALL_VALUES, Ready, Setup
from layers.compute.data.targets import Targets
from layers.logic import Answer, Offer, Question, Task, Update, Verdict
from layers.network import LimitExceeded, MalformedMessage, MessageCodec
from layers.network.events import Ended
from layers.network.frames import HEADER, SIZE, Kind, frame
from layers.network.handshake import ClientSession, ServerSession
from tests.network.wire_messages import exchange

ROOT = Path(__file__).resolve().parents[3]
WITH_MODELS = {Question, Answer, Task, Update}
UNLIMITED = MessageCodec({1: Setup})
NUMBERS = {Ready: 2, Answer: 7, Offer: 9}


def test_an_experiment_of_200_mb_is_refused_when_its_first_bytes_have_come() -> None:
    client, server = ClientSession("client-7", CODEC, 0.0), ServerSession(CODEC, 0.0)
    exchange(client, server)
    head = bytes(UNLIMITED.encode(Setup("run", "", "", 0, (), Targets("classes", 0))))[:64]
    data = frame(Kind.MESSAGE, 1, SIZE.pack(200_000_000)) + HEADER.pack(Kind.DATA, 0, 1, 1 << 18)
    (ended,) = client.receive_data(data + head, 0.0)
    assert isinstance(ended, Ended)
    assert ended.code == "limit-exceeded"
    assert "a Setup of 200000000 bytes" in ended.reason
    assert client.receive_buffer() is None


def test_an_experiment_as_large_as_a_file_may_be_can_be_sent() -> None:
    CODEC.encode(Setup("run", "é" * (1 << 20), "0" * 64, 0, (28, 28, 1), Targets("classes", 10)))
    with pytest.raises(LimitExceeded, match="a Setup of"):
        CODEC.encode(Setup("run", "x" * SMALL_BYTES, "", 0, (), Targets("classes", 0)))


def test_offers_and_verdicts_are_small_and_answers_may_carry_models() -> None:
    with pytest.raises(LimitExceeded, match=r"Offer of \d+ bytes"):
        CODEC.encode(Offer(1, 1, 1, 1.0, metrics={"x" * SMALL_BYTES: 1.0}))
    CODEC.encode(Verdict(1, 1, True))
    CODEC.encode(Answer(1, "step", {"update": np.zeros(2 << 20, np.float32)}))


@pytest.mark.parametrize(
    ("fits", "beyond"),
    [
        (Ready("run", 3, 10, tuple(range(4000))), Ready("run", 3, 10, tuple(range(4096)))),
        (
            Offer(1, 1, 1, 1.0, metrics={f"m{i}": 1.0 for i in range(2000)}),
            Offer(1, 1, 1, 1.0, metrics={f"m{i}": 1.0 for i in range(2048)}),
        ),
        (
            Answer(1, "step", {f"v{i}": i for i in range(32_000)}),
            Answer(1, "step", {f"v{i}": i for i in range(32_768)}),
        ),
    ],
    ids=["ready", "offer", "answer"],
)
def test_a_message_of_many_values_is_neither_sent_nor_read(
    fits: Ready | Offer | Answer, beyond: Ready | Offer | Answer
) -> None:
    sent = bytes(CODEC.encode(fits))
    assert bytes(CODEC.encode(CODEC.decode(sent))) == sent
    kind = type(beyond)
    with pytest.raises(LimitExceeded, match=rf"{kind.__name__} of \d+ values"):
        CODEC.encode(beyond)
    data = bytes(MessageCodec({NUMBERS[kind]: kind}).encode(beyond))
    with pytest.raises(MalformedMessage, match=r"more than \d+ values in one message"):
        CODEC.decode(data)


def test_the_protocols_page_says_which_messages_may_be_large() -> None:
    page = (ROOT / "docs" / "protocol.md").read_text()
    (sentence,) = re.findall(r"Only (.*?) may be larger than 4 MiB", page, re.DOTALL)
    assert set(re.findall("`(\\w+)`", sentence)) == {cls.__name__ for cls in WITH_MODELS}
    assert SMALL_BYTES == 4 << 20
    assert f"have at most {MOST_VALUES:,} values" in page
    assert f"the others at most {SMALL_VALUES:,}" in page
