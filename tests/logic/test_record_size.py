"""A text is measured and shortened by the bytes that it takes in a record."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from layers.logic.record_size import recorded_bytes, shortened


@given(st.text(st.characters(codec=None)), st.integers(0, 60), st.booleans())
def test_a_shortened_text_fits_and_one_more_character_would_not(text, most, from_end) -> None:
    kept = shortened(text, most, from_end=from_end)
    assert text.endswith(kept) if from_end else text.startswith(kept)
    assert len(json.dumps(kept)) - 2 == recorded_bytes(kept) <= most
    more = len(kept) + 1
    if kept != text:
        assert recorded_bytes(text[-more:] if from_end else text[:more]) > most


def test_a_character_beyond_the_basic_plane_takes_12_bytes() -> None:
    assert recorded_bytes("\N{GRINNING FACE}" * 20_000) == 240_000
    assert len(shortened("\N{GRINNING FACE}" * 20_000, 20_000)) == 1666
