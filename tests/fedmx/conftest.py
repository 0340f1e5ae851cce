"""Certificates for the tests of deployments, and a folder of models that experiments name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedmx.report import write_report
from fedmx.report.live import write_elsewhere
from fedmx.server import recorder
from tests.fedmx import recorded_runs
from tests.fedmx.fork_server import start_copies
from tests.fedmx.kinds import write_models
from tests.network.conftest import Certificates


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module", autouse=True)
def _no_page() -> Iterator[None]:
    """Runs in these folders have an empty page, but for those of tests that take `page`."""
    with recorded_runs.no_page():
        yield


@pytest.fixture(scope="module", autouse=True)
def _copies() -> Iterator[None]:
    """The processes that fedmx starts begin with everything loaded."""
    with pytest.MonkeyPatch.context() as patch:
        start_copies(patch.setattr)
        yield


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs that end in this test draw their page."""
    monkeypatch.setattr(recorder, "write_report", write_report)
    monkeypatch.setattr(recorder, "write_elsewhere", write_elsewhere)


@pytest.fixture(scope="session")
def kind_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the models of `tests.fedmx.kinds` are: one place, as a process has a module once."""
    folder = tmp_path_factory.mktemp("kinds")
    write_models(folder)
    path = list(sys.path)
    yield folder
    sys.path[:] = path
