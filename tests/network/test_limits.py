"""The limits of an end: each has its documented default, and none can be switched off."""

from __future__ import annotations

import math
from dataclasses import asdict

import pytest

from layers.network import (
    Limits,
    NetworkError,
)


def test_every_limit_is_above_zero_and_has_its_documented_default() -> None:
    usual = {
        "max_message_bytes": 1024**3,
        "max_streams": 8,
        "max_queued_bytes": 256 * 1024**2,
        "max_queued_events": 64,
        "stall_s": 30.0,
        "max_kept_bytes": 256 * 1024**2,
        "keep_s": 60.0,
        "max_file_bytes": 64 * 1024**3,
        "max_connections": 10_000,
        "max_handshakes": 2048,
        "handshake_s": 15.0,
        "linger_s": 1.0,
    }
    assert asdict(Limits()) == {**usual, "max_incoming_bytes": None}
    for name, value in {**usual, "max_incoming_bytes": 1}.items():
        least = 1 if isinstance(value, int) else math.ulp(0.0)
        assert getattr(Limits(**{name: least}), name) == least
        for wrong in (0, -1, float("nan")):
            with pytest.raises(NetworkError, match=f"limit {name} must be more than 0"):
                Limits(**{name: wrong})
