"""What newcomers see first: the README in two languages, how to contribute, how to cite."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
import yaml

from fedmx.version import __version__

ROOT = Path(__file__).resolve().parent.parent
ENGLISH = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE = (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def without_blocks(page: str) -> str:
    return BLOCK.sub("", page)


def test_the_picture_is_there_light_and_dark_and_small() -> None:
    for page in (ENGLISH, CHINESE):
        pictures = re.findall(r'src(?:set)?="([^"]+)"', page)
        assert len(pictures) == 2
        for picture in pictures:
            assert 0 < (ROOT / picture).stat().st_size < 150_000


def test_the_size_of_the_environment_is_that_of_the_installer() -> None:
    script = (ROOT / ".ci" / "venv.sh").read_text()
    told = {
        re.search(pattern, script)[1]
        for pattern in (r"fills about (\S+) GB", r"needs about (\S+) GB")
    }
    assert told == {re.search(r"fills\s+(\S+) GB", ENGLISH)[1]}
    assert told == {re.search(r"共占 (\S+) GB", CHINESE)[1]}
    download = re.search(r"downloads about (\S+) MB", script)[1]
    assert f"downloads about {download} MB" in ENGLISH
    assert f"下载约 {download} MB" in CHINESE


def test_the_targets_and_paths_of_contributing_exist() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"\bmake ([a-z]+)", "\n".join(re.findall(r"`[^`\n]+`", page))))
    named |= set(re.findall(r"^make ([a-z]+)", page, re.M))
    assert {"venv", "check", "test", "docs"} <= named <= targets
    for module in re.findall(r"python -m ([\w.]+)", page):
        assert (ROOT / f"{module.replace('.', '/')}.py").exists()
    for path in re.findall(r"`((?:fedmx|layers|\.ci)/[\w./-]+|\.ci/\w+)`", page):
        assert (ROOT / path).exists(), path


def test_the_page_for_agents_names_targets_of_make() -> None:
    page = (ROOT / "AGENTS.md").read_text()
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    named = {word for line in re.findall(r"^make ([a-z ]+)", page, re.M) for word in line.split()}
    assert {"venv", "check", "docs"} <= named <= targets


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source distribution, as `python -m build` makes it."""
    folder = tmp_path_factory.mktemp("source")
    leave = shutil.ignore_patterns(
        ".git", ".venv", "__pycache__", "build", "runs", "*.egg-info", ".*cache", ".hypothesis"
    )
    shutil.copytree(ROOT, folder / "project", ignore=leave)
    archive = built("sdist", folder / "project", folder)
    with tarfile.open(archive) as file:
        file.extractall(folder)
    return folder / archive.name.removesuffix(".tar.gz")


def built(kind: str, project: Path, folder: Path) -> Path:
    """Return the distribution that the build backend makes of a project."""
    code = f"from setuptools import build_meta as b; print(b.build_{kind}({str(folder)!r}))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=project, check=True, capture_output=True, text=True)
    return folder / done.stdout.splitlines()[-1]


def test_the_source_distribution_has_the_project_and_its_tests_can_be_collected(
    source: Path,
) -> None:
    wanted = {"constraints.txt", "Makefile", "AGENTS.md", "CITATION.cff", "pyproject.toml"}
    for folder in ("tests", "docs", "examples", "experiments", ".ci", "fedmx", "layers"):
        found = (path for path in (ROOT / folder).rglob("*") if path.is_file())
        wanted |= {str(path.relative_to(ROOT)) for path in found}
    wanted = {name for name in wanted if "__pycache__" not in name and "/runs/" not in name}
    assert sorted(name for name in wanted if not (source / name).exists()) == []
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "tests/logic",
        "tests/network",
    ]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]


def test_a_wheel_of_the_source_distribution_has_its_size_and_no_link_that_leads_nowhere(
    source: Path, tmp_path: Path
) -> None:
    wheel = built("wheel", source, tmp_path)
    size_mb = wheel.stat().st_size / 1e6
    for page in (ENGLISH, CHINESE):
        assert abs(float(re.search(r"[(（](\S+) MB", page)[1]) - size_mb) < 0.06
    with zipfile.ZipFile(wheel) as file:
        (name,) = (one for one in file.namelist() if one.endswith("/METADATA"))
        metadata = message_from_bytes(file.read(name))
    assert (metadata["Name"], metadata["Version"]) == ("fedmx", __version__)
    for key in ("Author", "Summary", "Keywords", "Requires-Python"):
        assert metadata[key], key
    page = without_blocks(metadata.get_payload())
    assert "# fedmx" in page
    links = re.findall(r"\]\(([^)]+)\)|src(?:set)?=\"([^\"]+)\"", page)
    assert [one for pair in links for one in pair if one and not one.startswith("https:")] == []


def test_the_citation_is_of_this_version_and_names_the_five_documents() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert (citation["version"], citation["license"]) == (__version__, "Apache-2.0")
    page = (ROOT / "docs" / "papers.md").read_text()
    documents = set(re.findall(r"^\| \[([^]]+)\]\(papers/", page, re.M))
    documents -= {"others"}
    works = dict(
        re.findall(r"^- \*\*([^*]+)\*\*: (.*\. .*)$", page.partition("How to read")[0], re.M)
    )
    assert set(works) == documents
    assert len(citation["references"]) == len(documents) == 5
    for one in citation["references"]:
        (document,) = (name for name in documents if name in one["notes"])
        work = works[document]
        assert one["title"].strip() in work
        for author in one["authors"]:
            assert author["alias"] in work
            assert f"{author['family-names']} {author['given-names']}" in work
        for key in ("journal", "doi", "year", "volume", "start", "end"):
            assert str(one.get(key, "")) in work, (document, key)
