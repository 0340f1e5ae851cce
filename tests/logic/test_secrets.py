"""Draws from a secret: the same from the same key, others from anything else, and in a round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from layers.logic import (
    ClientSide,
    Facilities,
    Hook,
    LogicError,
    OpenRound,
    Selector,
    ServerSide,
)
from layers.logic.secrets import Secret, SecretMissing
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, run_rounds
from tests.logic.quadratic import bowls
from tests.logic.toys import InLanes

KEY = bytes(range(32))


def test_the_same_key_and_purpose_give_the_same_draws() -> None:
    one, other = (Secret.of_key(KEY).part("round", 3).draws("noise") for _ in range(2))
    for _ in range(2):  # one call after the other
        assert (one.words(5) == other.words(5)).all()
    assert one.bytes(3) != one.bytes(3)


def test_the_draws_are_those_of_shake_256_on_every_machine() -> None:
    draws = Secret.of_key(KEY).draws("noise")
    assert draws.bytes(8).hex() == "4f5830b25dba1009"


def test_another_key_part_purpose_or_covered_value_gives_other_draws() -> None:
    secret, values = Secret.of_key(KEY), np.arange(3.0)
    draws = [
        secret.draws("noise"),
        secret.draws("noises"),
        secret.draws("noise", values),
        secret.draws("noise", values + 1),
        secret.draws("noise", values.reshape(3, 1)),
        secret.draws("noise", values.view(np.int64)),
        secret.part("1").draws("noise"),
        secret.part(1).draws("noise"),
        secret.part("1", "2").draws("noise"),
        secret.part("12").draws("noise"),
        Secret.of_key(bytes(32)).draws("noise"),
        Secret.of_seed(1, "server").draws("noise"),
        Secret.of_seed(1, "client", 1).draws("noise"),
        Secret.of_seed(11, "client").draws("noise"),
        Secret.fresh().draws("noise"),
    ]
    assert len({one.bytes(16) for one in draws}) == len(draws)


def test_draws_are_uniform_and_events_have_their_probability() -> None:
    draws = Secret.of_key(KEY).draws("test")
    uniform = draws.uniform(100_000)
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert uniform.mean() == pytest.approx(0.5, abs=0.004)
    for chance in (0.0, 0.1, 1.0):
        assert draws.below(chance, 100_000).mean() == pytest.approx(chance, abs=0.004)


def test_a_key_has_32_bytes_at_least() -> None:
    for size in (0, 31):
        short = Secret.of_key(bytes(size))
        for draw in (lambda: short.draws("noise"), lambda: short.part("round", 1).draws("noise")):  # noqa: B023
            with pytest.raises(LogicError, match=f"a secret of {size} bytes; it must have 32"):
                draw()
    for size in (32, 33):
        assert len(Secret.of_key(bytes(size)).draws("noise").bytes(5)) == 5


def test_a_secret_tells_nothing_in_its_text() -> None:
    assert KEY.hex() not in repr(Secret.of_key(KEY))
    assert repr(KEY) not in repr(Secret.of_key(KEY))


def test_a_secret_that_is_elsewhere_says_so_at_the_first_draw() -> None:
    secret = Secret.elsewhere("its server (runs/one/secret.key)").part("round", 1)
    with pytest.raises(SecretMissing, match=r"runs/one/secret\.key"):
        secret.draws("noise")


SEEN: dict[str, bytes] = {}


@dataclass(frozen=True)
class Drawing(Hook):
    class Server(ServerSide):
        def conclude(self, state: Any, context: Any) -> Any:
            SEEN[f"server {context.round}"] = context.secret("noise").bytes(8)
            return state

    class Client(ClientSide):
        def send(self, update: Any, context: Any) -> Any:
            SEEN[f"client {context.client} {context.round}"] = context.secret("noise").bytes(8)
            return update


@dataclass(frozen=True)
class Chosen(Selector):
    def select(self, round: OpenRound) -> Sequence[int]:
        SEEN[f"selector {round.number}"] = round.secret.draws("noise").bytes(8)
        return round.clients


def seen(**settings: Any) -> dict[str, bytes]:
    """What each end draws in two rounds of two clients."""
    SEEN.clear()
    logic = a_logic(Chosen(), hooks=[Drawing()], **settings)
    run_rounds(2, a_state(logic), MemoryCarrier(logic, bowls(2)))
    return dict(SEEN)


def test_each_end_and_round_of_a_simulation_has_draws_of_its_own_that_follow_the_seed() -> None:
    drawn = seen(seed=1)
    assert len(drawn) == 2 * 4
    assert len({*drawn.values(), *seen(seed=2).values()}) == 2 * len(drawn)
    assert seen(seed=1) == drawn


def drawn_by(context: Any) -> bytes:
    DRAWN.append(context.rng("noise").bytes(8))
    secret: bytes = context.secret("noise").bytes(8)
    return secret


DRAWN: list[bytes] = []


@dataclass(frozen=True)
class DrawingInPasses(Hook):
    class Server(ServerSide):
        def send(self, task: Any, context: Any) -> Any:
            SEEN[f"server {task.client} {task.pass_number}"] = drawn_by(context)
            return task

    class Client(ClientSide):
        def receive(self, task: Any, context: Any) -> Any:
            SEEN[f"client {task.client} {task.pass_number}"] = drawn_by(context)
            return task


def test_each_pass_of_each_client_has_draws_of_its_own_at_both_ends() -> None:
    SEEN.clear()
    DRAWN.clear()
    logic = a_logic(InLanes(passes=4), hooks=[DrawingInPasses()])
    run_rounds(1, a_state(logic), MemoryCarrier(logic, bowls(2)))
    assert len(SEEN) == len(set(SEEN.values())) == 2 * 2 * 4
    assert len(DRAWN) == len(set(DRAWN)) == 2 * 2 * 4


def test_a_servers_own_secret_decides_its_draws_alone() -> None:
    given = [seen(facilities=Facilities(secret=Secret.of_key(key))) for key in (KEY, KEY[::-1])]
    for one in seen():
        of_client = one.startswith("client")
        assert (given[0][one] == given[1][one]) is of_client, one
