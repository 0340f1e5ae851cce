"""Messages say types in plain words, with the right article."""

from __future__ import annotations

from typing import Any

import pytest

from fedmx import Aggregator, Hook
from fedmx.components.text import in_words, with_article


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (Aggregator, "an Aggregator"),
        (Hook | None, "a Hook or null"),
        (int | str, "a whole number or text"),
        (tuple[float, ...], "a list of numbers"),
        (tuple[int, int], "a list of 2 numbers"),
        (tuple[str, float], "a list of 2 values"),
        (tuple[str, ...], "a list"),
    ],
)
def test_a_type_is_said_in_words_with_its_article(annotation: Any, words: str) -> None:
    assert in_words(annotation) == words


@pytest.mark.parametrize(
    ("noun", "said"),
    [("update", "an update"), ("Offer", "an Offer"), ("question", "a question")],
)
def test_a_noun_has_an_before_a_vowel(noun: str, said: str) -> None:
    assert with_article(noun) == said
