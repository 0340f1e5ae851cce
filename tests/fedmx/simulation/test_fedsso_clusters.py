"""On real images FedSSO finds the strata that its paper does, by whole steps and by sketches."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "experiments" / "fedsso_clusters.py"


@pytest.mark.parametrize(
    ("clients", "least", "most", "sketch"),
    [
        ("IID", 1, 1, 64),
        ("two classes a client", 25, 35, 64),
        ("two classes a client", 25, 35, 0),
        ("one class a client", 10, 10, 64),
    ],
)
def test_it_finds_as_many_clusters_of_mnist_as_the_paper(
    clients: str,
    least: int,
    most: int,
    sketch: int,
    data_root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FEDMX_DATA", str(data_root))
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    script = runpy.run_path(str(SCRIPT))
    labels = script["strata"](script["settings"]()[f"MNIST, {clients}"], 1, sketch)
    assert labels.shape == (100,)
    assert least <= labels.max() + 1 <= most
