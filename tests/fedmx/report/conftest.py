"""Pages without curves, for tests of what else is on a page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fedmx.report import page as report_page

CURVES = report_page.curves_section


@pytest.fixture(scope="module")
def no_curves() -> Iterator[None]:
    """To draw them takes most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_page, "curves_section", lambda *given: None)
        yield


@pytest.fixture
def curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pages of this test have their curves all the same."""
    monkeypatch.setattr(report_page, "curves_section", CURVES)
