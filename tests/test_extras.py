"""What a part says that needs an optional package: a command that works where it is read."""

from __future__ import annotations

import re
from importlib.metadata import metadata
from pathlib import Path

import pytest

from layers.extras import install

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("fedmx", "layers", "examples", "experiments", "docs")
NAMED = re.compile(r"""pip install ['"]?fedmx\b(?!-)""")
EXTRAS = metadata("fedmx").get_all("Provides-Extra") or []


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_command_names_the_packages_of_an_extra(extra: str) -> None:
    packages = re.findall(r'"([^"]+)"', install(extra))
    assert packages
    assert not any("fedmx" in one or ";" in one for one in packages)


def test_an_extra_without_metadata_is_named() -> None:
    assert "'nothing'" in install("nothing")


def test_no_text_says_that_fedmx_is_on_a_package_index() -> None:
    """It would install another project of this name, if there is one some day."""
    texts = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    for path in [*texts, *ROOT.glob("*.md")]:
        if path.suffix in {".py", ".md", ".yml", ".yaml", ".html", ".template", ".ipynb", ".sh"}:
            assert not NAMED.search(path.read_text(encoding="utf-8")), path
