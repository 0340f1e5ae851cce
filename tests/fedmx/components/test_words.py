"""Messages say types in plain words, with the right article."""

from __future__ import annotations

from typing import Any

import pytest

from fedmx import Aggregator, Hook
from fedmx.components.text import in_words, with_article, without_folders


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
    ("noun", "said"), [("update", "an update"), ("Offer", "an Offer"), ("question", "a question")]
)
def test_a_noun_has_an_before_a_vowel(noun: str, said: str) -> None:
    assert with_article(noun) == said


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/home/me/own.py:3: no", "own.py:3: no"),
        ("cannot read '/data/a b.npz'", "cannot read 'a b.npz'"),
        ("~/x/y.npz and ../z/w.npz", "y.npz and w.npz"),
        ('File "/usr/lib/x.py", line 3', 'File "x.py", line 3'),
        ("--partition 3/10, 1/2 of it", "--partition 3/10, 1/2 of it"),
        ("https://host/a/b", "https://host/a/b"),
    ],
)
def test_a_text_for_another_machine_names_no_folder(text: str, told: str) -> None:
    assert without_folders(text) == told
