"""Certificates for the tests of deployments: a CA, a server, and clients by their numbers."""

from __future__ import annotations

import pytest

from tests.network.conftest import Certificates


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))
