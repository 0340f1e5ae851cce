"""One run with a hook of the tests' own, for all files here: a process imports a module once."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from fedmx import RunFolder
from tests.fedmx.recorded_runs import halving_run


@pytest.fixture(scope="session")
def halving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunFolder]:
    """Six rounds of all six clients, with two hooks on each."""
    path = list(sys.path)
    yield halving_run(tmp_path_factory.mktemp("halving"))
    sys.path[:] = path
