"""Astraea's new images of rare classes: moved as drawn, the same bits everywhere."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
from scipy.ndimage import affine_transform

from layers.logic import ClientContext, LogicError, Training
from layers.logic.algorithms.astraea import Augmentation, Rebalance
from layers.logic.core.engine import ArrayData

RAMP = np.arange(2 * 9 * 7, dtype=np.float32).reshape(1, 2, 9, 7)
STILL = {"shift": 0.0, "rotation": 0.0, "shear": 0.0, "zoom": 0.0}


def images(number: int = 5, shape: tuple[int, ...] = (2, 9, 7)) -> np.ndarray:
    return np.random.default_rng(4).random((number, *shape), np.float32)


class Drawn:
    """A generator that draws what a test wants, each from -1 to 1."""

    def __init__(self, *draws: float) -> None:
        self.draws = np.array([draws])

    def random(self, shape: tuple[int, ...]) -> np.ndarray:
        assert shape == self.draws.shape
        return (self.draws + 1) / 2


def moved(image: np.ndarray, draws=(0, 0, 0, 0, 0, 0), **amounts: float) -> np.ndarray:
    return Augmentation(**{**STILL, **amounts}).new_images(image, Drawn(*draws))


def test_an_image_that_is_not_moved_stays_as_it_is() -> None:
    assert moved(images(1)).tobytes() == images(1).tobytes()
    assert moved(images(1), [1] * 6).tobytes() == images(1).tobytes()


def test_a_shift_takes_the_pixels_aside_and_repeats_the_border() -> None:
    found = moved(RAMP, [1, 0, 0, 0, 0, 0], shift=2 / 7)
    np.testing.assert_allclose(found, RAMP[..., [2, 3, 4, 5, 6, 6, 6]], rtol=1e-6)
    found = moved(RAMP, [0, -1, 0, 0, 0, 0], shift=1 / 9)
    np.testing.assert_allclose(found, RAMP[:, :, [0, 0, 1, 2, 3, 4, 5, 6, 7]], rtol=1e-6)


def test_a_quarter_turn_is_numpys() -> None:
    square = images(1, (3, 6, 6))
    found = moved(square, [0, 0, 1, 0, 0, 0], rotation=90)
    assert found.tobytes() == np.rot90(square, 1, (2, 3)).tobytes()


def test_every_move_is_the_one_that_scipy_makes() -> None:
    amounts = {"shift": 0.2, "rotation": 40.0, "shear": 25.0, "zoom": 0.3}
    draws = np.random.default_rng(8).uniform(-1, 1, (6, 6))
    for image, draw in zip(images(6), draws, strict=True):
        right, down, turn, lean, wide, high = draw
        turned, leant = math.radians(40 * turn), math.radians(25 * lean)
        # Of (row, column), as scipy has it.
        rotation = [[math.cos(turned), math.sin(turned)], [-math.sin(turned), math.cos(turned)]]
        shear = [[1, 0], [math.tan(leant), 1]]
        matrix = np.array(rotation) @ shear @ np.diag([1 + 0.3 * high, 1 + 0.3 * wide])
        middle = np.array([4, 3])
        offset = middle + 0.2 * np.array([9 * down, 7 * right]) - matrix @ middle
        expected = [affine_transform(one, matrix, offset, order=1, mode="nearest") for one in image]
        found = moved(image[None], draw, **amounts)[0]
        np.testing.assert_allclose(found, expected, atol=2e-6)


def test_the_bits_are_these_on_every_machine() -> None:
    made = Augmentation().new_images(images(40, (1, 28, 28)), np.random.default_rng(1))
    assert hashlib.sha256(made.tobytes()).hexdigest()[:16] == "bc35c355b5092a58"


def test_how_many_images_are_made_at_once_changes_nothing(monkeypatch) -> None:
    whole = Augmentation().new_images(images(9), np.random.default_rng(1))
    monkeypatch.setattr("layers.logic.algorithms.astraea.AT_ONCE", 1)
    one_by_one = Augmentation().new_images(images(9), np.random.default_rng(1))
    assert whole.tobytes() == one_by_one.tobytes()
    assert Augmentation().new_images(images(0), np.random.default_rng(1)).shape == (0, 2, 9, 7)


def taken(hook: Rebalance, x: np.ndarray, y: list[int], client: int = 0) -> ArrayData:
    context = ClientContext(
        1, client, 0, Training(), [], {}, {"ratios": np.array([1.0, 3.0, 0.0])}, run_seed=client
    )
    return hook.client().samples(ArrayData(x, np.array(y)), context)


def test_a_rare_sample_is_taken_as_it_is_and_then_as_new_images() -> None:
    x = images(4)
    plain = taken(Rebalance(), x, [0, 1, 2, 1])
    found = taken(Rebalance(augment=True), x, [0, 1, 2, 1])
    assert found.y.tolist() == plain.y.tolist() == [0, 1, 1, 1, 1, 1, 1]
    assert [found.x[place].tobytes() for place in (0, 1, 4)] == [
        x[row].tobytes() for row in (0, 1, 3)
    ]
    seen = {image.tobytes() for image in found.x}
    assert len(seen) == 7, "no image twice"
    assert found.x.dtype == x.dtype
    assert taken(Rebalance(augment=True), x, [0, 1, 2, 1]).x.tobytes() == found.x.tobytes()
    assert taken(Rebalance(augment=True), x, [0, 1, 2, 1], 1).x.tobytes() != found.x.tobytes()
    assert images(4).tobytes() == x.tobytes(), "the client's own images stay as they are"


@pytest.mark.parametrize(
    "x", [np.ones((2, 12), np.float32), np.ones((2, 1, 4, 4), np.int64), np.ones((2, 5), np.int32)]
)
def test_samples_that_are_no_images_are_refused_with_the_way_out(x) -> None:
    with pytest.raises(LogicError, match="leave augment out"):
        taken(Rebalance(augment=True), x, [0, 1])
    assert len(taken(Rebalance(), x, [0, 1])) == 4
