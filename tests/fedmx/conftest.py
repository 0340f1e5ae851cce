"""Certificates for the tests of deployments, and a folder of models that experiments name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fedmx import recorded_runs
from tests.fedmx.kinds import write_models
from tests.network.conftest import Certificates


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def no_page() -> Iterator[None]:
    with recorded_runs.no_page():
        yield


@pytest.fixture(scope="session")
def kind_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the models of `tests.fedmx.kinds` are: one place, as a process has a module once."""
    folder = tmp_path_factory.mktemp("kinds")
    write_models(folder)
    path = list(sys.path)
    yield folder
    sys.path[:] = path
