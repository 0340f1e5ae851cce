"""Central privacy in rounds: what counts of an update, what hides it, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from layers.logic import (
    AGGREGATORS,
    HOOKS,
    ClientSide,
    Facilities,
    Hook,
    Logic,
    LogicError,
    OpenRound,
    Preset,
    ServerSide,
    ServerState,
)
from layers.logic.aggregators.mean import Mean
from layers.logic.core.messages import EMPTY
from layers.logic.hooks.local_gradients import GradientReply
from layers.logic.hooks.server_optimisers import FedAvgM
from layers.logic.privacy.central import GRID, Central, PrivateMean, on_grid
from layers.logic.secrets import Secret
from layers.logic.selectors.poisson import Poisson
from layers.logic.selectors.uniform import Uniform
from tests.logic.memory_carrier import MemoryCarrier, a_logic, run_rounds
from tests.logic.quadratic import bowl
from tests.logic.toys import planned

CLIENTS, SIZE = 4, 200
START = ServerState(0, np.zeros(SIZE, np.float32), EMPTY)
PRIVATE = Central(clip=0.5, delta=1e-3, noise=0.01)


def preset_of(privacy: Central = PRIVATE, probability: float = 1.0, **parts: Any) -> Preset:
    given = {"selector": Poisson(probability), "aggregator": Mean("uniform"), **parts}
    return privacy.applied(Preset(**given), CLIENTS)


def logic_of(preset: Preset, key: bytes = bytes(32), **settings: Any) -> Logic:
    return a_logic(
        preset.selector,
        SIZE,
        aggregator=preset.aggregator,
        hooks=preset.hooks,
        facilities=Facilities(secret=Secret.of_key(key)),
        **{"min_updates": 0, "clients": CLIENTS, **settings},
    )


def after(logic: Logic, rounds: int = 1, **carrier: Any) -> ServerState:
    """The state after rounds of four clients; each pulls all weights to 1 or to -3."""
    clients = {one: bowl([1.0 if one else -3.0] * SIZE, n=3 + one) for one in range(CLIENTS)}
    return run_rounds(rounds, START, peers_of(logic, clients, **carrier))[0]


def peers_of(logic: Logic, clients: Any, **carrier: Any) -> MemoryCarrier:
    peers = MemoryCarrier(logic, clients, **carrier)
    peers.engine.buffers = EMPTY.copy()
    return peers


def test_the_mean_of_clipped_updates_divides_by_what_is_expected_not_by_who_came() -> None:
    # Each update is far longer than 0.5: three point to +1, one to -1, all with length 0.5.
    moved = after(logic_of(preset_of())).weights
    assert moved.mean() == pytest.approx(2 * 0.5 / np.sqrt(SIZE) / CLIENTS, rel=0.02)
    # One that is lost counts as nothing, and the divisor stays.
    moved = after(logic_of(preset_of()), lost={3}).weights
    assert moved.mean() == pytest.approx(0.5 / np.sqrt(SIZE) / CLIENTS, rel=0.05)


def test_what_a_client_sends_counts_with_the_clip_at_most_whether_it_clips_or_not() -> None:
    def liar(update: Any) -> Any:
        return [replace(update, delta=update.delta * 1e6, samples=update.samples)]

    def lies(update: Any) -> Any:
        return liar(update) if update.client == 0 else [update]

    honest = after(logic_of(preset_of())).weights
    forged = after(logic_of(preset_of()), forge=lies).weights
    # The same direction and length; the noise is another, since the sum is, by its rounding.
    assert np.linalg.norm(forged - honest) < 0.1


@pytest.mark.parametrize("scale", [1e-6, 0.3, 1.0, 7.0, 1e20])
def test_an_update_on_the_grid_is_never_longer_than_the_clip(scale: float) -> None:
    rng = np.random.default_rng(1)
    step = 0.5 * 1.3 / GRID
    for _ in range(20):
        delta = (rng.normal(size=300) * scale).astype(np.float32)
        whole = on_grid(delta, 0.5, step)
        assert sum(int(one) ** 2 for one in whole) <= (0.5 / step) ** 2
        exact = delta.astype(np.float64)
        expected = exact * min(1.0, 0.5 / np.linalg.norm(exact))
        assert np.abs(whole * step - expected).max() <= step
        assert (np.abs(whole) * step <= np.abs(expected) * (1 + 1e-12)).all()
    assert (on_grid(np.zeros(3, np.float32), 0.5, step) == 0).all()


def test_an_update_is_cut_to_the_last_step_of_the_grid_within_the_clip() -> None:
    for delta, clip, step, whole in (
        ([3, 4], 1.0, 0.2, [3, 4]),  # as long as the clip: nothing is cut
        ([0.75, -0.75, 0.25], 10.0, 0.5, [1, -1, 0]),
        ([5], 0.3, 0.1, [2]),  # 3 steps of 0.1 are a little more than 0.3
    ):
        assert on_grid(np.array(delta, np.float32), clip, step).tolist() == whole


@pytest.mark.parametrize("probability", [1.0, 0.25])
def test_the_bits_noise_follows_the_expected_number_of_clients(probability: float) -> None:
    adaptive = preset_of(
        Central(clip=0.5, delta=1e-3, noise=0.01, quantile=0.5), probability
    ).aggregator.adaptive
    assert adaptive.expected == probability * CLIENTS
    assert adaptive.bit_noise == probability * CLIENTS / 20


def test_the_noise_has_its_deviation_and_an_empty_round_gets_it_too() -> None:
    noisy = preset_of(Central(clip=0.5, delta=1e-3, noise=2.0), probability=0.25)
    logic = logic_of(replace(noisy, selector=Poisson(1e-9)))
    first = after(logic).weights
    # sigma C / (q N), in each weight
    assert first.std() == pytest.approx(2.0 * 0.5 / (0.25 * CLIENTS), rel=0.2)
    both = after(logic, rounds=2).weights
    assert not np.array_equal(both, first)
    assert np.corrcoef(first, both - first)[0, 1] == pytest.approx(0, abs=0.3)
    other = after(logic_of(replace(noisy, selector=Poisson(1e-9)), key=b"x" * 32)).weights
    assert abs(np.corrcoef(first, other)[0, 1]) < 0.3


def test_a_round_that_is_repeated_with_other_updates_has_other_noise() -> None:
    privacy = Central(clip=0.5, delta=1e-3, noise=2.0)
    logic = logic_of(preset_of(privacy))
    first, again = (after(logic).weights for _ in range(2))
    assert first.tobytes() == again.tobytes()
    # With one update less, the difference must not be that update.
    without = after(logic, lost={0}).weights
    assert np.linalg.norm(first - without) > 10 * 0.5 / CLIENTS


def test_optimisers_work_on_the_private_mean_and_so_in_an_empty_round() -> None:
    preset = preset_of(hooks=(FedAvgM(),))
    logic = logic_of(replace(preset, selector=Poisson(1e-9)))
    state = after(logic, rounds=2)
    first = after(logic).weights
    # The velocity goes on although nobody took part: nothing tells that the round was empty.
    assert np.corrcoef(first, state.weights - first)[0, 1] > 0.3


def test_clients_send_no_metric() -> None:
    logic = logic_of(preset_of())
    peers = peers_of(logic, {one: bowl([1.0] * SIZE) for one in range(CLIENTS)})
    _, (report,) = run_rounds(1, START, peers)
    assert len(report.of("accepted")) == CLIENTS
    assert all(not one.metrics for one in report.clients)


def drawn(probability: float, *clients: int, key: bytes = bytes(32)) -> list[int]:
    round = OpenRound(dict.fromkeys(clients, 3), secret=Secret.of_key(key))
    return planned(Poisson(probability), round)


def test_poisson_draws_each_client_for_itself_in_secret() -> None:
    chosen = drawn(0.3, *range(2000))
    assert len(chosen) == pytest.approx(600, abs=80)
    others = [one for one in range(2000) if one % 7]
    assert drawn(0.3, *others) == [one for one in chosen if one % 7]
    assert drawn(0.3, *range(2000), key=b"1" * 32) != chosen
    assert drawn(1.0, 3, 5) == [3, 5]
    assert drawn(0.3) == []


@dataclass(frozen=True)
class Stashes(Hook):
    class Server(ServerSide):
        def receive(self, update: Any, context: Any) -> Any:
            self.update = update
            return update

        def conclude(self, state: Any, context: Any) -> Any:
            return replace(state, weights=state.weights + self.update.delta)


@dataclass(frozen=True)
class Sums(Hook):
    class Server(ServerSide):
        def on_accepted(self, update: Any, context: Any) -> None: ...


@dataclass(frozen=True)
class Careful(Hook):
    class Client(ClientSide):
        def gradient(self, gradient: Any, weights: Any, context: Any) -> None:
            gradient *= np.float32(0.5)


MEANS = {"selector": Poisson(0.5), "aggregator": Mean("uniform")}


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ({"aggregator": Mean("samples")}, "Mean weighs updates by samples"),
        ({"aggregator": AGGREGATORS["fedfv"]()}, "FedFV"),
        ({"aggregator": AGGREGATORS["median"]()}, "not a mean with equal weights"),
        ({"selector": Uniform()}, "poisson"),
        ({"hooks": (HOOKS["scaffold"](),)}, "Scaffold sums what clients send"),
        ({"hooks": (HOOKS["selective-sgd"](),)}, "SelectiveSgd uses single updates"),
        ({"hooks": (GradientReply(),)}, "GradientReply encodes gradients"),
        ({"hooks": (HOOKS["divergence"](),)}, "Divergence uses single updates"),
        ({"hooks": (Sums(),)}, "Sums uses single updates"),
        ({"hooks": (Stashes(),)}, "Stashes uses single updates"),
    ],
)
def test_what_breaks_the_bound_is_refused_with_the_reason(
    parts: dict[str, Any], named: str
) -> None:
    with pytest.raises(LogicError, match=named):
        preset_of(**{**MEANS, **parts})


@pytest.mark.parametrize(
    "hook", [Careful(), FedAvgM(), HOOKS["stc"](), HOOKS["dgc"](), HOOKS["fedprox"]()]
)
def test_what_works_on_gradients_and_on_the_mean_is_not_refused(hook: Hook) -> None:
    assert isinstance(preset_of(hooks=(hook,)).aggregator, PrivateMean)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"deadline_s": 3.0}, "deadline of 3.0 s"),
        ({"over_select": 1.5}, "over_select 1.5"),
        ({"min_updates": 1}, "min_updates"),
    ],
)
def test_settings_by_which_one_client_changes_who_counts_are_refused(
    settings: dict[str, Any], named: str
) -> None:
    with pytest.raises(LogicError, match=named):
        logic_of(preset_of(), **settings)


def test_a_mean_of_another_number_of_clients_than_the_logics_is_refused() -> None:
    with pytest.raises(LogicError, match="mean of 4 clients beside 5"):
        logic_of(preset_of(), clients=CLIENTS + 1)


def test_a_mean_whose_noise_is_not_known_here_folds_nothing() -> None:
    mean = preset_of().aggregator
    assert mean.step_at(0.5) == 0.5 * 0.01 / GRID
    with pytest.raises(LogicError, match="only the server folds"):
        replace(mean, noise=None).step_at(0.5)


def test_buffers_are_refused() -> None:
    logic = logic_of(preset_of())
    with pytest.raises(LogicError, match="BatchNorm"):
        run_rounds(
            1,
            ServerState(0, np.zeros(SIZE, np.float32), np.zeros(1, np.float32)),
            MemoryCarrier(logic, {0: bowl([1.0] * SIZE)}),
        )


def test_a_budget_is_needed_and_a_delta_that_the_clients_make_small() -> None:
    with pytest.raises(LogicError, match="epsilon or noise"):
        Central(clip=0.5, delta=1e-3)
    with pytest.raises(LogicError, match="delta must be below 1 / 4"):
        preset_of(Central(clip=0.5, delta=0.25, noise=1.0))
