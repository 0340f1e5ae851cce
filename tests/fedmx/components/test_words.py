"""A model of texts gets the words of its tokens from the data set, if there is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmx import Assembly, Experiment, ExperimentError, simulate
from layers.compute.data.datasets import Files
from layers.compute.engines.mxnet.engine import MXNetEngine

LINE = '"{}","{}","Mon Apr 06 22:19:45 PDT 2009","NO_QUERY","{}","{}"\n'
TEXTS = [("4", "ann", "good day"), ("0", "ann", "bad day"), ("4", "bob", "so good")]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    folder = tmp_path / "sentiment140"
    folder.mkdir()
    lines = [LINE.format(polarity, n, user, text) for n, (polarity, user, text) in enumerate(TEXTS)]
    for name in ("training.1600000.processed.noemoticon.csv", "testdata.manual.2009.06.14.csv"):
        (folder / name).write_text("".join(lines))
    (tmp_path / "glove.txt").write_text("day 1 2 3\ngood 4 5 6\nother 7 8 9\n")
    return Files(root=tmp_path, cache=tmp_path, download=False)


def experiment(files: Files, **model: Any) -> Experiment:
    small = {"name": "lstm", "dimensions": 3, "vocabulary": 50}
    return Experiment(
        rounds=2,
        clients=2,
        compute={
            "model": {**small, "glove": str(files.root / "glove.txt"), **model},
            "data": "sentiment140",
            "partition": "by-user",
            "evaluate": {"per_client": True},
        },
        logic={"selector": {"name": "uniform", "fraction": 1.0}},
    )


def vectors_of(engine: MXNetEngine) -> np.ndarray:
    (table,) = engine._constants.values()
    return np.asarray(table.asnumpy())


def test_word_vectors_are_those_of_the_file_on_both_sides(files: Files) -> None:
    server = Assembly(experiment(files), files)
    assert server.data.words == ("<padding>", "<unknown>", "day", "good", "bad", "so")
    table = vectors_of(server.engine)
    assert table[2].tolist() == [1, 2, 3]
    assert table[3].tolist() == [4, 5, 6]
    client = Assembly(
        experiment(files), files, server.data.dataset.shape, server.data.dataset.classes
    )
    np.testing.assert_array_equal(vectors_of(client.engine), table)


def test_a_client_with_other_data_knows_no_words(files: Files, tmp_path: Path) -> None:
    nowhere = Files(root=tmp_path, cache=tmp_path / "none", download=False)
    (tmp_path / "sentiment140").rename(tmp_path / "elsewhere")
    whole = experiment(files)
    client = Assembly(whole, nowhere, (25,), 2)
    assert client.data.words == ()
    with pytest.raises(ExperimentError, match="needs the word of each token"):
        _ = client.engine
    random = Assembly(whole.with_overrides(["compute.model.glove=null"]), nowhere, (25,), 2)
    assert vectors_of(random.engine).shape == (50, 3)


def test_a_vocabulary_too_small_for_the_data_is_refused(files: Files) -> None:
    with pytest.raises(ExperimentError, match="vocabulary=5 is less than the data's 6 words"):
        _ = Assembly(experiment(files, vocabulary=5), files).engine


def test_texts_are_learnt_by_user(files: Files) -> None:
    simulation = simulate(Assembly(experiment(files), files))
    before = simulation.weights.copy()
    rounds = list(simulation)
    assert [round.participants for round in rounds] == [(0, 1), (0, 1)]
    assert rounds[-1].client_accuracy_mean is not None
    assert (simulation.weights != before).any()
    assert len(simulation.weights) < 150_000
