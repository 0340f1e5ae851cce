"""Normalisation: float32 as the experiment spells it out, of the rows asked for alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.compute.data.dataset import Normalise, Samples, materialise
from layers.compute.data.datasets import Raw
from layers.compute.errors import DataError, NormaliseError

PIXELS = np.arange(2 * 3 * 4 * 4, dtype=np.uint8).reshape(2, 3, 4, 4)


def raw(x: np.ndarray) -> Raw:
    return Raw(x, np.arange(len(x), dtype=np.int64))


def test_values_are_scaled_then_centred_then_divided() -> None:
    out = Normalise(scale=255, mean=0.1307, std=0.3081).apply(PIXELS)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, (PIXELS / 255 - 0.1307) / 0.3081, rtol=1e-5, atol=1e-6)


def test_each_channel_has_its_own_mean_and_deviation() -> None:
    out = Normalise(scale=255, mean=(0.1, 0.2, 0.3), std=[1, 2, 4]).apply(PIXELS)
    for channel, (mean, std) in enumerate([(0.1, 1), (0.2, 2), (0.3, 4)]):
        expected = (PIXELS[:, channel] / 255 - mean) / std
        np.testing.assert_allclose(out[:, channel], expected, rtol=1e-5, atol=1e-6)


def test_a_wrong_number_of_channels_is_refused() -> None:
    with pytest.raises(NormaliseError, match=r"mean has 2 values, but .* has 3 channels"):
        Normalise(mean=(1.0, 2.0)).apply(PIXELS)


@pytest.mark.parametrize(
    "settings",
    [
        {"scale": 0.0},
        {"scale": -1.0},
        {"scale": float("inf")},
        {"mean": float("nan")},
        {"std": 0.0},
        {"std": (1.0, -1.0)},
        {"mean": ()},
        {"std": []},
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(settings: dict[str, object]) -> None:
    with pytest.raises(NormaliseError, match=next(iter(settings))):
        Normalise(**settings)


def test_pixels_without_a_normalisation_are_refused_with_what_to_write() -> None:
    with pytest.raises(NormaliseError, match=r"normalise: \{scale: 255") as caught:
        materialise(raw(PIXELS), None, None)
    assert "\n" not in str(caught.value)


def test_floats_become_float32_and_tokens_stay_integers_without_one() -> None:
    assert materialise(raw(np.ones((2, 3))), None, None).x.dtype == np.float32
    assert materialise(raw(np.ones((2, 3), np.int32)), None, None).x.dtype == np.int32


def test_the_rows_asked_for_come_in_their_order() -> None:
    samples = materialise(raw(PIXELS), np.array([1, 0, 1]), Normalise())
    np.testing.assert_array_equal(samples.x, PIXELS[[1, 0, 1]].astype(np.float32))
    np.testing.assert_array_equal(samples.y, [1, 0, 1])
    assert len(samples) == 3


@given(rows=st.lists(st.integers(0, 1), min_size=1, max_size=5))
def test_a_row_has_the_same_bits_whatever_it_is_gathered_with(rows: list[int]) -> None:
    normalise = Normalise(scale=255, mean=(0.1, 0.2, 0.3), std=0.3081)
    whole = materialise(raw(PIXELS), None, normalise).x
    some = materialise(raw(PIXELS), np.array(rows), normalise).x
    assert some.tobytes() == whole[rows].tobytes()


def test_materialised_samples_are_apart_from_the_stored_data() -> None:
    x = np.ones((2, 3, 4), np.float32)
    materialise(raw(x), None, Normalise()).x[:] = 7
    assert x.max() == 1


def test_samples_of_unequal_length_are_refused() -> None:
    with pytest.raises(DataError, match="do not go together"):
        Samples(np.zeros((3, 2)), np.zeros(2, np.int64))
