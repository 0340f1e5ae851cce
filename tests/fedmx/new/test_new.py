"""`fedmx new`: each kind of project runs as it was written, and so does its test."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits, load_iris

from fedmx.errors import FedmxError
from fedmx.new import KINDS, write_project
from tests.fedmx.command_line import ROOT, CommandResult, copied, fedmx
from tests.fedmx.fork_server import write_program

pytestmark = pytest.mark.timeout(300)  # many processes on a busy machine

SIMULATED = [kind for kind in KINDS if kind != "deploy"]
OPTIONS = {kind: [f"--{kind}"] for kind in KINDS} | {
    kind: ["--data", kind] for kind in ("csv", "images")
}
TEMPLATES = ROOT / "fedmx" / "new" / "templates"


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a project of each kind, named as its kind."""
    folder = tmp_path_factory.mktemp("projects")
    for kind in KINDS:
        write_project(folder / kind, kind)
    return folder


def pytest_of(project: Path) -> CommandResult:
    """Run a project's tests, with a `fedmx` in the PATH that is this code."""
    programs = project.parent / "bin"
    programs.mkdir(exist_ok=True)
    program = write_program(programs)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    words = ["-q", "-p", "no:cacheprovider"]
    return copied("pytest:console_main", *words, cwd=project, PATH=path, FEDMX=str(program))


def test_the_samples_of_a_project_are_those_of_scikit_learn(projects: Path) -> None:
    digits, flowers = load_digits(), load_iris()
    for label in range(10):
        first = digits.images[digits.target == label][:30]
        files = sorted((projects / "images" / "images" / str(label)).iterdir())
        assert [file.name for file in files] == [f"{number:02}.png" for number in range(30)]
        shown = np.array([np.array(Image.open(file)) for file in files])
        np.testing.assert_array_equal(shown, np.rint(first * (255 / 16)))
    (table,) = (projects / "csv").rglob("*.csv")
    names, *rows = csv.reader(table.read_text().splitlines())
    assert len(names) == 5
    assert [[float(one) for one in row[:4]] for row in rows] == flowers.data.tolist()
    assert [row[4] for row in rows] == flowers.target_names[flowers.target].tolist()


@pytest.mark.parametrize("kind", SIMULATED)
def test_a_project_runs_as_it_stands(projects: Path, kind: str) -> None:
    words = ["run", "experiment.yaml", "--own-modules", "--set", "rounds=1"]
    result = fedmx(*words, cwd=projects / kind)
    assert result.code == 0, result.err
    assert "the one round was run" in result.out
    assert (projects / kind / "runs").is_dir()


@pytest.mark.parametrize("kind", KINDS)
def test_the_tests_of_a_project_pass(projects: Path, kind: str) -> None:
    done = pytest_of(projects / kind)
    assert done.code == 0, done.out
    assert re.search(r"\d passed", done.out)


def test_a_broken_hook_fails_the_test_of_its_project(projects: Path) -> None:
    broken = projects / "broken"
    shutil.copytree(projects / "hook", broken, ignore=shutil.ignore_patterns("runs"))
    code = (broken / "own_hook.py").read_text()
    assert code.count("np.rint(wanted / scale)") == 1
    (broken / "own_hook.py").write_text(code.replace("np.rint(wanted / scale)", "(wanted * 0)"))
    assert pytest_of(broken).code == 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_lists_its_files_and_the_next_commands(tmp_path: Path, kind: str) -> None:
    (tmp_path / "my idea").mkdir()
    result = fedmx("new", "my idea/first", *OPTIONS[kind], cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    names, commands = result.out.split("\n\n")
    project = tmp_path / "my idea" / "first"
    assert sorted(names.splitlines()) == sorted(
        f"my idea/first/{one.name}{'/' if one.is_dir() else ''}" for one in project.iterdir()
    )
    assert commands.splitlines()[0] == f"Run it:   cd 'my idea/first'; {KINDS[kind].command}"
    assert commands.splitlines()[1].startswith("Test it:  cd 'my idea/first'; ")
    experiment = (project / "experiment.yaml").read_text().splitlines()
    assert experiment[:2] == [f"# To run it, in this folder:  {KINDS[kind].command}", "name: first"]


def test_the_first_command_of_the_help_works_anywhere(tmp_path: Path) -> None:
    last = fedmx("--help", cwd=tmp_path).out.splitlines()[-1]
    result = fedmx(*last.removeprefix("  Begin with: fedmx ").split(), cwd=tmp_path)
    assert (result.code, result.err) == (0, "")


def test_a_folder_that_is_not_empty_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name, problem in [
        ("full", "is not empty"),
        ("file", "a file has this name"),
        ("link", "a file has this name"),
    ]:
        result = fedmx("new", name, "--hook", cwd=tmp_path)
        assert result.error_text.startswith(f"{name}: ")
        assert problem in result.error_text
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "full", "link"]
    assert [one.name for one in (tmp_path / "full").iterdir()] == ["notes.txt"]


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "own_hook.py" in write_project(tmp_path / "empty", "hook")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("idea", "say what the project is for, with one of --hook, "),
        ("idea --hook --deploy", "say what the project is for, with one of --hook, "),
        ("idea --data json", "--data json: unknown kind of data; write csv or images"),
        (". --hook", ".: a project is named by "),
        ("-- -idea", "say what the project is for, with one of --hook, "),
        ("--model -- -idea", "-idea: a project is named by "),
        ("no/idea --hook", "no/idea: there is no folder no; "),
    ],
)
def test_a_wrong_name_or_kind_is_told_in_one_line(tmp_path: Path, words: str, problem: str) -> None:
    assert fedmx("new", *words.split(), cwd=tmp_path).error_text.startswith(problem)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["1e5", "null", "on", "0x10", "2026-01-01"])
def test_a_name_that_looks_like_another_yaml_type_stays_a_name(tmp_path: Path, name: str) -> None:
    from fedmx import Experiment

    write_project(tmp_path / name, "aggregator")
    assert Experiment.read(tmp_path / name / "experiment.yaml", modules=None).name == name


def test_an_unfinished_project_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: Path, to: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(FedmxError, match="No space left on device"):
        write_project(tmp_path / "idea", "csv")
    assert not list(tmp_path.iterdir())


def test_tests_of_the_docs_and_of_the_projects_are_the_same() -> None:
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("own-*.md")]
    for kind in ("aggregator", "selector"):
        for template in (TEMPLATES / kind).glob("test_own_*.py.template"):
            if kind == "selector" and template.stem == "test_own_selector.py":
                continue  # no page shows it; `test_the_tests_of_a_project_pass` runs it
            shown = f"```python\n# {template.stem}\n{template.read_text(encoding='utf-8')}```\n"
            assert any(shown in page for page in pages), template


def test_a_wheel_has_the_templates_and_needs_no_checkout(tmp_path: Path) -> None:
    source, library = tmp_path / "source", tmp_path / "library"
    for name in ("fedmx", "layers", "examples"):
        leftovers = shutil.ignore_patterns("__pycache__", "runs")
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=leftovers)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(library)]
    subprocess.run(build, cwd=source, check=True, capture_output=True)
    shutil.rmtree(source)
    result = fedmx("new", "idea", "--hook", cwd=tmp_path, PYTHONPATH=str(library))
    assert result.code == 0, result.err
    shipped = library / "fedmx" / "new" / "templates"
    for template in TEMPLATES.glob("*/*"):
        copy = shipped / template.relative_to(TEMPLATES)
        assert copy.read_bytes() == template.read_bytes()
        assert not copy.is_symlink()
