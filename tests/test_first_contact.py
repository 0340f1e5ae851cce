"""What newcomers see first: the README in two languages, how to contribute, how to cite."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import typer
import yaml

from fedmx.cli.main import app
from fedmx.version import __version__

ROOT = Path(__file__).resolve().parent.parent
ENGLISH = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE = (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def without_blocks(page: str) -> str:
    return BLOCK.sub("", page)


def test_the_chinese_readme_has_the_code_and_commands_of_the_english_one() -> None:
    assert BLOCK.findall(CHINESE) == BLOCK.findall(ENGLISH)


def test_the_chinese_readme_has_the_headings_of_the_english_one() -> None:
    levels = [re.findall(r"^(#+) ", without_blocks(page), re.M) for page in (ENGLISH, CHINESE)]
    assert levels[0] == levels[1]
    assert len(levels[0]) > 5


def test_the_chinese_readme_has_the_links_code_spans_and_rows_of_the_english_one() -> None:
    for pattern in (r"\]\(([^)]+)\)", r"`[^`\n]+`", r"^\| (?:\[`[^`]+`\]|`[^`]+`)"):
        found = [
            sorted(re.findall(pattern, without_blocks(page), re.M)) for page in (ENGLISH, CHINESE)
        ]
        other = {"README.md": "README.zh-CN.md"}
        assert found[0] == sorted(other.get(one, one) for one in found[1])


def test_the_picture_is_there_light_and_dark_and_small() -> None:
    for page in (ENGLISH, CHINESE):
        pictures = re.findall(r'src(?:set)?="([^"]+)"', page)
        assert len(pictures) == 2
        for picture in pictures:
            assert 0 < (ROOT / picture).stat().st_size < 150_000


def test_the_sizes_are_those_of_the_installer_and_of_the_wheel(tmp_path: Path) -> None:
    script = (ROOT / ".ci" / "venv.sh").read_text()
    told = {
        re.search(pattern, script)[1]
        for pattern in (r"fills about (\S+) GB", r"needs about (\S+) GB")
    }
    assert told == {re.search(r"fills\s+(\S+) GB", ENGLISH)[1]}
    assert told == {re.search(r"共占 (\S+) GB", CHINESE)[1]}
    wheel = tmp_path / "wheel.zip"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted([*ROOT.glob("fedmx/**/*"), *ROOT.glob("layers/**/*")]):
            if path.is_file() and "__pycache__" not in path.parts:
                file.write(path, path.relative_to(ROOT))
    size_mb = wheel.stat().st_size / 1e6
    for page in (ENGLISH, CHINESE):
        assert abs(float(re.search(r"[(（](\S+) MB", page)[1]) - size_mb) < 0.1 * size_mb


def test_each_links_to_the_other() -> None:
    assert "[中文](README.zh-CN.md)" in ENGLISH
    assert "[English](README.md)" in CHINESE


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


def test_the_page_for_agents_names_the_commands_with_json_and_targets_of_make() -> None:
    page = (ROOT / "AGENTS.md").read_text()
    told = set(
        re.findall(
            r"`([^`\n]+)`", page[page.index("prints one JSON document") :].partition(".\n")[0]
        )
    )

    def with_json(command: Any, name: str) -> set[str]:
        if hasattr(command, "commands"):
            inside = (
                with_json(one, f"{name} {key}".strip()) for key, one in command.commands.items()
            )
            return set().union(*inside)
        return {name} if any("--json" in one.opts for one in command.params) else set()

    assert told == with_json(typer.main.get_command(app), "")
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    named = {word for line in re.findall(r"^make ([a-z ]+)", page, re.M) for word in line.split()}
    assert {"venv", "check", "docs"} <= named <= targets


def test_the_source_distribution_has_what_its_tests_need(tmp_path: Path) -> None:
    copy = tmp_path / "project"
    leave = shutil.ignore_patterns(
        ".git", ".venv", "__pycache__", "build", "runs", "*.egg-info", ".*cache", ".hypothesis"
    )
    shutil.copytree(ROOT, copy, ignore=leave)
    command = [sys.executable, "setup.py", "-q", "sdist", "--dist-dir", str(tmp_path / "dist")]
    subprocess.run(command, cwd=copy, check=True, capture_output=True)
    (archive,) = (tmp_path / "dist").iterdir()
    with tarfile.open(archive) as file:
        packed = {name.partition("/")[2] for name in file.getnames()}
    wanted = {"constraints.txt", "Makefile", "AGENTS.md", "CITATION.cff", "pyproject.toml"}
    for folder in ("tests", "docs", "examples", ".ci", "fedmx", "layers"):
        wanted |= {
            str(path.relative_to(copy)) for path in (copy / folder).rglob("*") if path.is_file()
        }
    assert sorted(wanted - packed) == []


def test_the_citation_is_of_this_version_and_names_the_five_documents() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert (citation["version"], citation["license"]) == (__version__, "Apache-2.0")
    page = (ROOT / "docs" / "papers.md").read_text()
    documents = set(re.findall(r"^\| ([^|]+) \| (?:table|figure)", page, re.M))
    documents -= {"document", "others"}
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
