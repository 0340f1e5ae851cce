"""Data sets, samples and their normalisation."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.compute.data.dataset import Dataset, Normalise, Raw, Samples, materialise
from layers.compute.data.targets import Targets
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


def test_a_sample_that_is_one_number_has_one_channel() -> None:
    out = Normalise(scale=2, mean=(3.0,), std=(4.0,)).apply(np.array([2, 10, 22]))
    assert (out.dtype, out.tolist()) == (np.float32, [-0.5, 0.5, 2.0])


@pytest.mark.parametrize(("x", "channels"), [(PIXELS, 3), (np.zeros(3), 1)])
def test_a_wrong_number_of_channels_is_refused(x: np.ndarray, channels: int) -> None:
    with pytest.raises(NormaliseError, match=rf"mean has 2 values, but .* has {channels} channels"):
        Normalise(mean=(1.0, 2.0)).apply(x)


def test_pixels_without_a_normalisation_are_refused_with_an_example() -> None:
    with pytest.raises(NormaliseError, match=r"normalise: \{scale: 255") as caught:
        materialise(raw(PIXELS + 160), None, None)
    assert "\n" not in str(caught.value)
    with pytest.raises(NormaliseError, match=r"up to 16; give e.g. normalise: \{scale: 16\}"):
        materialise(raw(PIXELS % 17), None, None)
    for most, scale in ((0, 1), (127, 127), (128, 255)):
        with pytest.raises(NormaliseError, match=rf"normalise: \{{scale: {scale}\b"):
            materialise(raw(np.full((2, 1), most, np.uint8)), None, None)


def test_without_a_normalisation_floats_become_float32_and_tokens_stay_integers() -> None:
    assert materialise(raw(np.ones((2, 3))), None, None).x.dtype == np.float32
    assert materialise(raw(np.ones((2, 3), np.int32)), None, None).x.dtype == np.int32


def test_rows_come_in_the_requested_order() -> None:
    samples = materialise(raw(PIXELS), np.array([1, 0, 1]), Normalise())
    np.testing.assert_array_equal(samples.x, PIXELS[[1, 0, 1]].astype(np.float32))
    np.testing.assert_array_equal(samples.y, [1, 0, 1])
    assert len(samples) == 3


@given(rows=st.lists(st.integers(0, 1), min_size=1, max_size=5))
def test_the_bits_of_a_row_do_not_depend_on_other_rows(rows: list[int]) -> None:
    normalise = Normalise(scale=255, mean=(0.1, 0.2, 0.3), std=0.3081)
    whole = materialise(raw(PIXELS), None, normalise).x
    assert materialise(raw(PIXELS), np.array(rows), normalise).x.tobytes() == whole[rows].tobytes()


def test_materialised_samples_are_a_copy() -> None:
    x = np.ones((2, 3, 4), np.float32)
    materialise(raw(x), None, Normalise()).x[:] = 7
    assert x.max() == 1


def test_an_input_may_be_one_number() -> None:
    assert len(Samples(np.zeros(3), np.zeros(3, np.int64)).x) == 3


Y = np.zeros(3, np.int64)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda x: Samples(x, Y[:2]), "one target for each row"),
        (lambda x: Raw(x, Y[:2]), "y has shape"),
        (lambda x: Raw(x, Y, Y[:1]), "users has shape"),
        (
            lambda x: Dataset(
                "mine", Raw(x.reshape(3, 2, 2), Y), Raw(x, Y), Targets("classes", 1), (2, 2)
            ),
            r"a test sample has shape \(4,\), not \(2, 2\)",
        ),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(make: Any, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        make(np.zeros((3, 4)))


def test_data_are_loaded_without_mxnet() -> None:
    script = (
        "import sys; import layers.compute.data.datasets, layers.compute.data.partitions, "
        "layers.compute.data.dataset; assert 'mxnet' not in sys.modules; "
        "assert 'sklearn' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


TINY, LARGEST, NAN, INF = 5e-324, math.nextafter(math.inf, 0), math.nan, math.inf
NORMALISE = {
    "scale": ((0.0, -1.0, INF, NAN), (TINY, LARGEST)),
    "mean": ((INF, NAN, (), (0.0, NAN)), (LARGEST, (0.0, 1.0))),
    "std": ((0.0, -1.0, INF, NAN, (), (1.0, 0.0)), (TINY, (1.0, 2.0))),
}


@pytest.mark.parametrize("setting", NORMALISE)
def test_settings_are_refused_beyond_their_limits(setting: str) -> None:
    refused, accepted = NORMALISE[setting]
    for value in refused:
        with pytest.raises(NormaliseError, match=setting):
            Normalise(**{setting: value})
    for value in accepted:
        assert getattr(Normalise(**{setting: value}), setting) == value


@pytest.mark.parametrize(
    ("targets", "good", "wrong"),
    [
        (Targets("classes", 2), np.array([0, 1], "uint8"), np.array([0.0, 1.0])),
        (Targets("classes", 2), np.array([1, 1]), np.array([True, False])),
        (Targets("classes", 2), np.array([1, 0]), np.array([0, 2])),
        (Targets("classes", 2), np.array([1, 0]), np.array([[0], [1]])),
        (Targets("multi-label", 2), np.array([[0, 1], [1, 1]]), np.array([[0, 1], [1, 2]])),
        (Targets("multi-label", 2), np.array([[0, 0], [1, 1]]), np.array([[0], [1]])),
        (Targets("real", 1), np.array([[0.5], [-9]]), np.array([[0.5], [np.nan]])),
        (Targets("real", 1), np.array([[0.5], [-9]]), np.array([[1], [2]])),
        (Targets("tokens", 9, 2), np.array([[0, 8], [1, 2]]), np.array([[0, 9], [1, 2]])),
        (Targets("tokens", 9, 2), np.array([[0, 8], [1, 2]]), np.array([[0, -1], [1, 2]])),
    ],
)
def test_targets_are_checked_for_shape_dtype_and_range(
    targets: Targets, good: np.ndarray, wrong: np.ndarray
) -> None:
    x = np.zeros((2, 3), np.float32)
    Dataset("mine", Raw(x, good), Raw(x, good), targets, (3,))
    for splits in ((wrong, good), (good, wrong)):
        with pytest.raises(DataError, match=r"mine: the (train|test) labels"):
            Dataset("mine", *(Raw(x, one) for one in splits), targets, (3,))
