"""Sentiment140: 1.6 million tweets, positive or negative, by user (Go et al., 2009)."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import html
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, cast

import numpy as np
import numpy.typing as npt
from annotated_types import Ge

from layers.compute.data.dataset import Dataset, FromSettings, held_out
from layers.compute.data.datasets.arrays import from_arrays
from layers.compute.data.files import Files, damaged
from layers.compute.data.row_store import stored
from layers.compute.errors import DataError
from layers.settings import Count, Decay

_NAME = "sentiment140"
_TRAIN = "training.1600000.processed.noemoticon.csv"
_TEST = "testdata.manual.2009.06.14.csv"
_TRAINS = (f"{_TRAIN}.gz", _TRAIN, "sentiment140_subset.csv.gz", "sentiment140_subset.csv")
_TESTS = (f"{_TEST}.gz", _TEST, "sentiment140_manual_test_497.csv.gz")
_FROM = "https://cs.stanford.edu/people/alecmgo/trainingandtestdata.zip"
_COLUMNS = 6
_LABELS = {"0": 0, "2": None, "4": 1}

PADDING, UNKNOWN = "<padding>", "<unknown>"


@dataclass(frozen=True)
class _Tweets:
    """Tweets in the order of their file.

    Attributes:
        words: the words as numbers, at the end of each row, (n, tokens); -1 is padding.
        labels: (n,).
        users: their names, (n,).
    """

    words: npt.NDArray[np.int32]
    labels: npt.NDArray[np.int64]
    users: npt.NDArray[np.str_]

    def where(self, kept: npt.NDArray[np.bool_]) -> _Tweets:
        return _Tweets(self.words[kept], self.labels[kept], self.users[kept])


@dataclass(frozen=True)
class Sentiment140(FromSettings):
    """Samples of shape (25,), the tokens of a tweet's words; 2 classes, negative and positive.

    Token 0 is padding at the start, so the last token is a tweet's last word. Token 1 is any word
    outside of the vocabulary. The others are the words of the training split, the most frequent
    first. With the partition `by-user` a client is a user.

    The files are `training.1600000.processed.noemoticon.csv` and `testdata.manual.2009.06.14.csv`,
    or excerpts of them, `sentiment140_subset.csv.gz` and `sentiment140_manual_test_497.csv.gz`,
    with or without gzip. Neutral tweets are skipped. The tokens of large files are computed once,
    into the cache folder; a client's tokens are read from there when it is selected.

    Attributes:
        tokens: how many words of a tweet are kept; later words are cut off.
        vocabulary: the greatest number of tokens, with padding and the unknown word.
        min_tweets: users with fewer tweets in the training file are skipped.
        hold_out: the share of each user's tweets, the last ones, that is tested on instead of the
            published test tweets, which are by other users; 0: the published split.
    """

    tokens: Count = 25
    vocabulary: Annotated[int, Ge(3)] = 10_000
    min_tweets: Count = 1
    hold_out: Decay = 0.0

    def load(self, files: Files) -> Dataset:
        """Return both splits; see `DatasetSource.load`."""
        sources = [_find(files, _TRAINS)]
        if not self.hold_out:
            sources.append(_find(files, _TESTS))
        return stored(files, _NAME, sources, repr(self), lambda: self._read(files))

    def _read(self, files: Files) -> Dataset:
        """Return both splits in memory."""
        known: dict[str, int] = {}
        tweets = _read(_find(files, _TRAINS), self.tokens, known)
        _, owner, sizes = np.unique(tweets.users, return_inverse=True, return_counts=True)
        tweets = tweets.where(sizes[owner] >= self.min_tweets)
        if not len(tweets.labels):
            raise DataError(f"{_NAME}: no user has {self.min_tweets} tweets; lower min_tweets")
        if self.hold_out:
            _, owner = np.unique(tweets.users, return_inverse=True)
            held = held_out(owner, self.hold_out)
            train, test = tweets.where(~held), tweets.where(held)
        else:
            train, test = tweets, _read(_find(files, _TESTS), self.tokens, known)
        words, tokens = _vocabulary(train.words, list(known), self.vocabulary)
        dataset = from_arrays(
            tokens[train.words],
            train.labels,
            tokens[test.words],
            test.labels,
            users=train.users,
            users_test=test.users,
            classes=2,
            name=_NAME,
        )
        return dataclasses.replace(dataset, words=words)


def _vocabulary(
    rows: npt.NDArray[np.int32], known: list[str], most: int
) -> tuple[tuple[str, ...], npt.NDArray[np.int32]]:
    """Return the word of each token, and the token of each number in `known`; -1 is padding."""
    times = np.bincount(rows[rows >= 0], minlength=len(known))
    seen = [number for number in range(len(known)) if times[number]]
    frequent = sorted(seen, key=lambda number: (-times[number], known[number]))[: most - 2]
    tokens = np.ones(len(known) + 1, np.int32)
    tokens[-1] = 0
    tokens[frequent] = np.arange(2, 2 + len(frequent))
    return (PADDING, UNKNOWN, *(known[number] for number in frequent)), tokens


def _find(files: Files, names: tuple[str, ...]) -> Path:
    path = files.existing(_NAME, names)
    if path is None:
        raise DataError(
            f"{_NAME}: no {' or '.join(names)} in {files.places(_NAME)}; download {_FROM} and "
            "unpack it there"
        )
    return path


def _read(path: Path, tokens: int, known: dict[str, int]) -> _Tweets:
    """Read a file; new words are added to `known` with the next number."""
    # The original is Latin-1, copies are often UTF-8; Latin-1 text is rarely valid UTF-8.
    for encoding in ("utf-8", "latin-1"):
        try:
            return _collect(path, encoding, tokens, known)
        except UnicodeDecodeError:
            continue  # words of no tweet do not get into the vocabulary
        except (OSError, EOFError, zlib.error, csv.Error) as error:
            raise damaged(path, f"cannot be read ({error})") from error
    raise AssertionError("every byte is a character of Latin-1")


def _collect(path: Path, encoding: str, tokens: int, known: dict[str, int]) -> _Tweets:
    rows, labels, users = [], [], []
    with _open(path, encoding) as file:
        for label, user, text in _rows(file, path):
            row = np.full(tokens, -1, np.int32)
            words = words_of(text)[:tokens]
            if words:
                row[-len(words) :] = [known.setdefault(word, len(known)) for word in words]
            rows.append(row)
            labels.append(label)
            users.append(user)
    if not rows:
        raise DataError(f"{path}: has no positive or negative tweet; fetch it again")
    return _Tweets(np.stack(rows), np.array(labels, np.int64), np.array(users, np.str_))


def _rows(file: IO[str], path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield the label, user and text of each tweet that is not neutral."""
    reader = csv.reader(file, strict=True)
    for row in reader:
        if len(row) != _COLUMNS or row[0] not in _LABELS or not row[1].isdigit() or not row[4]:
            raise DataError(
                f"{path}: line {reader.line_num} is not polarity (0, 2 or 4), id, date, query, "
                "user, text; fetch it again"
            )
        label = _LABELS[row[0]]
        if label is not None:
            yield label, row[4], row[5]


def _open(path: Path, encoding: str) -> IO[str]:
    if path.suffix == ".gz":
        return cast("IO[str]", gzip.open(path, "rt", encoding=encoding, newline=""))
    return path.open(encoding=encoding, newline="")


URL, USER = "<url>", "<user>"

_TOKEN = re.compile(
    r"(?P<url>https?://\S+|www\.\S+)"
    r"|(?P<user>@\w+)"
    # "don't" is "do" and "n't", "it's" is "it" and "'s".
    r"|[^\W_]+?(?=n't\b)|n't\b|'(?:s|m|re|ve|ll|d)\b|[^\W_]+|[!?]"
)


def words_of(text: str) -> list[str]:
    """Return the words of `text` in lower case, as in GloVe's vectors.

    An address becomes `<url>`, a name becomes `<user>`. The only punctuation kept is `!` and `?`.
    """
    plain = html.unescape(text).lower().replace("\u2019", "'")
    return [
        URL if match["url"] else USER if match["user"] else match.group()
        for match in _TOKEN.finditer(plain)
    ]
