"""FEMNIST, SVHN and Sentiment140: read in every format, refused when damaged."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import savemat

from layers.compute.data.dataset import held_out
from layers.compute.data.datasets import DATASETS, Dataset, Files
from layers.compute.data.datasets.sentiment140 import words_of
from layers.compute.data.partitions import PARTITIONS, divide
from layers.compute.errors import DataError

PIXELS = np.arange(5 * 28 * 28).reshape(5, 28, 28).astype(np.uint8)


def read(name: str, root: Path, **options: Any) -> Dataset:
    return DATASETS[name](**options).load(Files(root, root / "cache", download=False))


def refused(name: str, root: Path, reason: str, **options: Any) -> str:
    with pytest.raises(DataError, match=reason) as caught:
        read(name, root, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# FEMNIST


def leaf(samples: dict[str, tuple[np.ndarray, list[int]]]) -> dict[str, Any]:
    return {
        "users": list(samples),
        "num_samples": [len(y) for _, y in samples.values()],
        "user_data": {
            user: {"x": (x.reshape(len(y), 784) / 255).tolist(), "y": y}
            for user, (x, y) in samples.items()
        },
    }


def write_leaf(folder: Path, *contents: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(contents):
        (folder / f"part_{number}.json").write_text(json.dumps(content))


@pytest.mark.parametrize("inside", ["", "data"])
def test_femnist_is_read_from_leafs_files(tmp_path: Path, inside: str) -> None:
    folder = tmp_path / "femnist" / inside
    write_leaf(
        folder / "train",
        leaf({"zoe": (PIXELS[:2], [61, 0]), "nobody": (PIXELS[:0], [])}),
        leaf({"ann": (PIXELS[2:3], [10])}),
    )
    write_leaf(folder / "test", leaf({"ann": (PIXELS[3:4], [36]), "new": (PIXELS[4:], [9])}))
    data = read("femnist", tmp_path)
    assert (data.shape, data.targets.classes, data.train.x.dtype) == ((1, 28, 28), 62, np.uint8)
    np.testing.assert_array_equal(data.train.x[:, 0], PIXELS[:3])
    np.testing.assert_array_equal(data.test.x[:, 0], PIXELS[3:])
    assert (data.train.y.tolist(), data.test.y.tolist()) == ([61, 0, 10], [36, 9])
    assert data.train.users.tolist() == [1, 1, 0]
    assert data.test.users.tolist() == [0, 2]


def write_femnist(root: Path, **changed: Any) -> None:
    arrays = {
        "users": np.array(["ann", "zoe"]),
        "train_x": PIXELS[:3],
        "train_y": np.array([61, 0, 10], np.uint8),
        "train_user": np.array([1, 1, 0], np.int32),
        "test_x": PIXELS[3:],
        "test_y": np.array([36, 9], np.uint8),
        "test_user": np.array([0, 1], np.int32),
        "heldout_x": PIXELS[:1],
    }
    (root / "femnist").mkdir(exist_ok=True)
    whole = {name: array for name, array in {**arrays, **changed}.items() if array is not None}
    np.savez(root / "femnist" / "femnist.npz", **whole)


def test_femnist_is_read_from_an_archive(tmp_path: Path) -> None:
    write_femnist(tmp_path)
    data = read("femnist", tmp_path)
    np.testing.assert_array_equal(data.train.x[:, 0], PIXELS[:3])
    np.testing.assert_array_equal(data.test.x[:, 0], PIXELS[3:])
    assert data.train.users.tolist() == [1, 1, 0]
    assert data.test.users.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"test_user": None}, "lacks test_user"),
        ({"train_x": PIXELS[:2]}, r"train_y has shape \(3,\), not \(2\)"),
        ({"train_x": PIXELS[:3] / 255}, "train_x has the dtype float64"),
        ({"train_x": PIXELS[:3].astype(np.uint16)}, "train_x has the dtype uint16"),
        ({"train_user": np.array([1, 1, 2])}, "train_user goes from 1 to 2, but there are 2"),
        ({"train_user": np.array([1, -1, 0])}, "train_user goes from -1"),
        ({"train_y": np.array([62, 0, 1])}, "labels go from 0 to 62"),
        ({"users": np.array([1, 2])}, "users has the dtype int64"),
        ({"users": np.array(["ann", 7], dtype=object)}, "cannot be read"),
    ],
)
def test_an_archive_that_is_not_femnist_is_refused(
    tmp_path: Path, changed: dict[str, Any], reason: str
) -> None:
    write_femnist(tmp_path, **changed)
    refused("femnist", tmp_path, reason)


ONE = leaf({"ann": (PIXELS[:2], [1, 2])})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ([], "is not a LEAF file"),
        (leaf({"ann": (PIXELS[:0], [])}), "its files have no sample"),
        ({**ONE, "users": ["ann", "ann"], "num_samples": [2, 2]}, "do not have the same users"),
        ({**ONE, "users": ["bob"]}, "do not have the same users"),
        ({**ONE, "num_samples": [3]}, "user ann does not have 3 samples"),
        ({**ONE, "user_data": {"ann": {"x": ONE["user_data"]["ann"]["x"]}}}, "ann does not have 2"),
        ({**ONE, "user_data": {"ann": {"x": [[0], [1, 2]], "y": [1, 2]}}}, "list of 784 numbers"),
        ({**ONE, "user_data": {"ann": {"x": [[0], [1]], "y": [1, 2]}}}, "list of 784 numbers"),
        ({**ONE, "user_data": {"ann": {"x": [["a"], ["b"]], "y": [1, 2]}}}, "784 numbers"),
        (leaf({"ann": (PIXELS[:2] * 1.5, [1, 2])}), "not bytes divided by 255"),
        (leaf({"ann": (PIXELS[:1] * 0.0 + 256, [1])}), "not bytes divided by 255"),
        (leaf({"ann": (PIXELS[:1] * 0.0 - 1, [1])}), "not bytes divided by 255"),
        (leaf({"ann": (PIXELS[:2] * 1.0 + 0.4, [1, 2])}), "not bytes divided by 255"),
        (leaf({"ann": (PIXELS[:2], [1, 2.5])}), "a label is not a whole number"),
        (leaf({"ann": (PIXELS[:2], [1, 62])}), "labels go from 1 to 62"),
        (leaf({"ann": (PIXELS[:1], [10**30])}), "a label is not a whole number"),
    ],
)
def test_a_file_that_is_not_leaf_is_refused(tmp_path: Path, content: Any, reason: str) -> None:
    write_leaf(tmp_path / "femnist" / "train", content)
    write_leaf(tmp_path / "femnist" / "test", ONE)
    refused("femnist", tmp_path, reason)


@pytest.mark.parametrize("content", [b"", b'{"users": [', b"\xff", b"[" * 100_000])
def test_a_damaged_json_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    write_leaf(tmp_path / "femnist" / "test", ONE)
    (tmp_path / "femnist" / "train").mkdir()
    path = tmp_path / "femnist" / "train" / "a.json"
    refused("femnist", tmp_path, "has no .json file")
    path.write_bytes(content)
    assert str(path) in refused("femnist", tmp_path, "cannot be read")


# SVHN


def write_mat(path: Path, x: Any, y: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    savemat(path, {"X": x, "y": y}, do_compression=True)


def svhn(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return (
        rng.integers(0, 256, (32, 32, 3, n)).astype(np.uint8),
        (1 + np.arange(n) % 10).astype(np.uint8)[:, np.newaxis],
    )


def test_svhn_is_read_as_published(tmp_path: Path) -> None:
    (x, y), (x_test, y_test) = svhn(23), svhn(12, 1)
    write_mat(tmp_path / "svhn" / "train_32x32.mat", x, y)
    write_mat(tmp_path / "svhn" / "test_32x32.mat", x_test, y_test)
    data = read("svhn", tmp_path)
    assert (data.shape, data.targets.classes, len(data.train), len(data.test)) == (
        (3, 32, 32),
        10,
        23,
        12,
    )
    assert data.train.y[:11].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert data.train.x[7, 2, 4, 5] == x[4, 5, 2, 7]
    np.testing.assert_array_equal(data.test.x, x_test.transpose(3, 2, 0, 1))
    assert data.train.x.flags.c_contiguous


def test_svhn_can_be_split_without_test_images(tmp_path: Path) -> None:
    x, y = svhn(50)
    path = tmp_path / "svhn" / "svhn_train_first1083.npz"
    path.parent.mkdir()
    np.savez(path, x=x.transpose(3, 0, 1, 2), y=y[:, 0] % 10, image_no=np.arange(50))
    said = refused("svhn", tmp_path, "has no test images; set hold_out")
    assert "http://ufldl.stanford.edu/housenumbers/" in said
    data = read("svhn", tmp_path, hold_out=0.2)
    assert np.bincount(data.test.y).tolist() == [1] * 10
    assert np.bincount(data.train.y).tolist() == [4] * 10
    np.testing.assert_array_equal(data.train.x[3], x[..., 3].transpose(2, 0, 1))
    np.testing.assert_array_equal(data.test.x[0], x[..., 40].transpose(2, 0, 1))


@pytest.mark.parametrize(
    ("x", "y", "reason"),
    [
        (svhn(4)[0], svhn(5)[1], "has 4 images of uint8 and 5 labels"),
        (svhn(4)[0], svhn(4)[1] - 1, "labels go from 0 to 3, not 1 to 10"),
        (svhn(4)[0], svhn(4)[1] + 7, "labels go from 8 to 11"),
        (svhn(4)[0].astype(np.float32), svhn(4)[1], "X has the dtype float32"),
        (svhn(4)[0].astype(np.uint16), svhn(4)[1], "images of uint16"),
        (svhn(4)[0][:31], svhn(4)[1], r"X has shape \(31, 32, 3, 4\), not \(32, 32, 3, n\)"),
        (svhn(4)[0], np.array(["a"] * 4)[:, None], "y has the dtype"),
    ],
)
def test_a_mat_file_that_is_not_svhn_is_refused(
    tmp_path: Path, x: np.ndarray, y: np.ndarray, reason: str
) -> None:
    write_mat(tmp_path / "svhn" / "train_32x32.mat", x, y)
    refused("svhn", tmp_path, reason, hold_out=0.5)


@settings(max_examples=40)
@given(cut=st.integers(0, 400), flip=st.integers(0, 2000), byte=st.integers(0, 255))
def test_a_damaged_mat_file_is_refused_or_read_completely(
    tmp_path_factory: pytest.TempPathFactory, cut: int, flip: int, byte: int
) -> None:
    root = tmp_path_factory.mktemp("svhn")
    path = root / "svhn" / "train_32x32.mat"
    write_mat(path, np.zeros((32, 32, 3, 2), np.uint8), [[1], [1]])
    content = bytearray(path.read_bytes())
    content[flip % len(content)] = byte
    path.write_bytes(content[: len(content) - cut % len(content)])
    try:
        data = read("svhn", root, hold_out=0.5)
    except DataError as error:
        assert str(path) in str(error)  # noqa: PT017
    else:
        assert data.shape == (3, 32, 32)


# Sentiment140


def tweet(polarity: Any, user: str, text: str, number: int = 1) -> list[Any]:
    return [polarity, number, "Mon Apr 06 22:19:45 PDT 2009", "NO_QUERY", user, text]


TRAIN = [
    tweet(0, "zoe", "@bob I don't like http://x.yz this!"),
    tweet(4, "ann", "I like this, I LIKE it &amp; like it"),
    tweet(2, "ann", "neutral words never count"),
    tweet(4, "zoe", "café"),
    tweet(0, "zoe", "..."),
]
TEST = [tweet(4, "new", "I like unheard-of things"), tweet(0, "ann", "this")]


def text_of(rows: list[list[Any]]) -> str:
    out = io.StringIO(newline="")
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return out.getvalue()


def write_tweets(root: Path, train: Any = TRAIN, test: Any = TEST, **how: Any) -> None:
    encoding = how.get("encoding", "utf-8")
    (root / "sentiment140").mkdir(exist_ok=True)
    for name, rows in (
        ("training.1600000.processed.noemoticon.csv", train),
        ("testdata.manual.2009.06.14.csv", test),
    ):
        content = (rows if isinstance(rows, str) else text_of(rows)).encode(encoding)
        path = root / "sentiment140" / name
        if how.get("packed"):
            path.with_name(f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            path.write_bytes(content)


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
@pytest.mark.parametrize("packed", [False, True])
def test_tweets_become_tokens_of_the_training_vocabulary(
    tmp_path: Path, encoding: str, packed: bool
) -> None:
    write_tweets(tmp_path, encoding=encoding, packed=packed)
    data = read("sentiment140", tmp_path, tokens=6)
    assert data.words[:4] == ("<padding>", "<unknown>", "i", "like")
    assert data.words[4:] == ("<url>", "<user>", "café", "do", "it", "n't", "this")
    assert (data.shape, data.targets.classes, data.train.x.dtype) == ((6,), 2, np.int32)

    def said(row: np.ndarray) -> list[str]:
        return [data.words[token] for token in row]

    assert said(data.train.x[0]) == ["<user>", "i", "do", "n't", "like", "<url>"]
    assert said(data.train.x[1]) == ["i", "like", "this", "i", "like", "it"]
    assert said(data.train.x[2]) == ["<padding>"] * 5 + ["café"]
    assert said(data.train.x[3]) == ["<padding>"] * 6
    unheard = ["<unknown>"] * 3
    assert said(data.test.x[0]) == ["<padding>", "i", "like", *unheard]
    assert data.train.y.tolist() == [0, 1, 1, 0]
    assert data.test.y.tolist() == [1, 0]
    assert data.train.users.tolist() == [1, 0, 1, 1]
    assert data.test.users.tolist() == [2, 0]


def test_a_file_that_is_not_utf8_at_its_end_is_latin1_as_a_whole(tmp_path: Path) -> None:
    rows = [tweet(4 * (i % 2), "ann", f"caf\xc3\xa9 number{i}", i) for i in range(400)]
    write_tweets(tmp_path, train=[*rows, tweet(0, "bob", "caf\xe9")], encoding="latin-1")
    data = read("sentiment140", tmp_path)
    assert len(data.train.y) == 401
    assert data.words[2] == "caf\xe3"  # in lower case, of 400 tweets
    assert {word for word in data.words if word.startswith("caf")} == {"caf\xe3", "caf\xe9"}


def test_the_vocabulary_keeps_the_most_frequent_words(tmp_path: Path) -> None:
    write_tweets(tmp_path)
    data = read("sentiment140", tmp_path, vocabulary=4)
    assert data.words == ("<padding>", "<unknown>", "like", "i")
    assert data.train.x.max() == 3
    assert (data.train.x[1] == 1).sum() == 3


def test_min_tweets_skips_users_and_hold_out_tests_on_the_last_tweets(tmp_path: Path) -> None:
    rows = [
        tweet(4 * (n % 2), user, f"{user} {word}")
        for user, size in (("ann", 1), ("bob", 5), ("cy", 10))
        for n, word in enumerate("abcdefghij"[:size])
    ]
    write_tweets(tmp_path, train=rows)
    data = read("sentiment140", tmp_path, min_tweets=2, hold_out=0.2)
    assert np.bincount(data.train.users).tolist() == [4, 8]
    assert np.bincount(data.test.users).tolist() == [1, 2]
    assert "ann" not in data.words
    parts = divide(data, PARTITIONS["by-user"](), 2, 1)
    assert [len(rows) for part in parts for rows in part] == [4, 8, 1, 2]
    last = [[data.words[token] for token in row[-2:]] for row in data.test.x]
    assert last == [["bob", "e"], ["cy", "<unknown>"], ["cy", "<unknown>"]]
    refused("sentiment140", tmp_path, "no user has 11 tweets", min_tweets=11)


@pytest.mark.parametrize(
    ("train", "reason"),
    [
        ("", "has no positive or negative tweet"),
        (text_of([tweet(2, "ann", "so so")]), "has no positive or negative tweet"),
        (text_of([*TRAIN, tweet(1, "ann", "odd")]), "line 6 is not polarity"),
        (text_of([*TRAIN, tweet(0, "", "odd")]), "line 6 is not"),
        (text_of([*TRAIN, tweet(0, "ann", "odd", "x")]), "line 6 is not"),
        (text_of([*TRAIN, tweet(0, "ann", "odd")[:5]]), "line 6 is not"),
        (text_of(TRAIN)[:-3], "cannot be read"),
        (text_of(TRAIN) + '"0","1"x', "cannot be read"),
    ],
)
def test_a_file_that_is_no_sentiment140_is_refused(tmp_path: Path, train: str, reason: str) -> None:
    write_tweets(tmp_path, train=train)
    assert "training.1600000" in refused("sentiment140", tmp_path, reason)


@pytest.mark.parametrize("cut", [3, 12, 40])
def test_a_truncated_gzip_file_is_refused(tmp_path: Path, cut: int) -> None:
    write_tweets(tmp_path, packed=True)
    path = tmp_path / "sentiment140" / "training.1600000.processed.noemoticon.csv.gz"
    path.write_bytes(path.read_bytes()[:-cut])
    assert str(path) in refused("sentiment140", tmp_path, "cannot be read")


@given(st.text(max_size=60))
def test_any_text_has_words_and_none_holds_space_or_capitals(text: str) -> None:
    for word in words_of(text):
        assert word
        assert word == word.lower()
        assert not any(character.isspace() for character in word)


def test_words_are_split_as_in_glove() -> None:
    words = words_of("It's @Me: can't, WON\u2019T go to www.x.y &lt;3 kitten's rock'n'roll?!")
    said = "it 's <user> ca n't wo n't go to <url> 3 kitten 's rock n roll ? !"
    assert " ".join(words) == said


# All of them


@given(groups=st.lists(st.integers(0, 5), min_size=1, max_size=60), share=st.floats(0.01, 0.99))
def test_the_last_of_each_group_are_held_out(groups: list[int], share: float) -> None:
    held = held_out(np.array(groups), share)
    for group in set(groups):
        own = held[np.array(groups) == group]
        assert own.sum() == min(max(round(share * len(own)), 1), len(own) - 1)
        assert (np.diff(own.astype(int)) >= 0).all()


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("femnist", "github.com/TalwalkarLab/leaf"),
        ("sentiment140", "https://cs.stanford.edu/people/alecmgo/trainingandtestdata.zip"),
        ("svhn", "train_32x32.mat"),
    ],
)
def test_a_missing_file_is_named_with_its_source(tmp_path: Path, name: str, where: str) -> None:
    said = refused(name, tmp_path, name)
    assert where in said
    assert str(tmp_path / name) in said


def test_the_published_subsets_are_read(data_root: Path) -> None:
    femnist = read("femnist", data_root)
    assert (len(femnist.train), len(femnist.test)) == (41_495, 4_763)
    assert len(np.unique(femnist.train.users)) == 300
    assert np.bincount(femnist.train.y, minlength=62).min() > 0
    parts = divide(femnist, PARTITIONS["by-user"](), 300, 1)
    assert min(len(rows) for rows in parts[0]) == 2
    assert min(len(rows) for rows in parts[1]) > 0

    svhn_excerpt = read("svhn", data_root, hold_out=0.2)
    digits = np.bincount(np.concatenate([svhn_excerpt.train.y, svhn_excerpt.test.y]))
    assert digits.tolist() == [66, 227, 141, 134, 110, 112, 78, 70, 78, 67]

    tweets = read("sentiment140", data_root)
    assert np.bincount(tweets.train.y).tolist() == [20_474, 23_551]
    assert np.bincount(tweets.test.y).tolist() == [177, 182]
    assert len(np.unique(tweets.train.users)) == 39_261
    assert len(tweets.words) == 10_000
    often = read("sentiment140", data_root, min_tweets=5, hold_out=0.2)
    assert len(often.train) + len(often.test) == 798
    assert len(np.unique(often.train.users)) == len(np.unique(often.test.users)) == 124
