"""Code that an experiment file names runs only if allowed; reading the file imports nothing."""

from __future__ import annotations

import os
import pty
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedmx import Assembly, Experiment, ExperimentError
from fedmx.components.user_code import named_code, own_code
from tests.fedmx.command_line import ROOT, environment, fedmx
from tests.fedmx.fork_server import ForkedProcess

TRACE = """
from pathlib import Path
Path(__file__).with_name("trace").touch()
from fedmx import Hook

class Mine(Hook):
    pass
"""
FILE = """
name: strangers
rounds: 1
clients: 2
compute: {model: logistic, data: digits, normalise: {scale: 16}, train: {steps: 1}}
logic: {hooks: ["leaves_trace:Mine"]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "leaves_trace.py").write_text(TRACE)
    (tmp_path / "small.yaml").write_text(FILE)
    return tmp_path


@pytest.fixture
def forgotten() -> Iterator[None]:
    """What a test imports, and where from, is forgotten after it."""
    path = list(sys.path)
    yield
    sys.path[:] = path
    sys.modules.pop("leaves_trace", None)


def trace(folder: Path) -> bool:
    return (folder / "trace").exists()


REFUSED = (
    "small.yaml:6: logic.hooks.0: leaves_trace:Mine is not fedmx's code ({folder}/leaves_trace.py, "
    "beside the experiment), and would run; if you trust it, allow it: --own-modules"
)


@pytest.mark.parametrize(
    "words", ["run small.yaml", "server small.yaml --listen 127.0.0.1:0", "data show small.yaml"]
)
def test_a_command_refuses_code_beside_the_file_by_its_owner(folder: Path, words: str) -> None:
    assert fedmx(*words.split(), cwd=folder).error_text == REFUSED.format(folder=folder)
    assert not trace(folder)
    assert not (folder / "runs").exists()


def test_explain_shows_whose_code_would_run_and_runs_none(folder: Path) -> None:
    result = fedmx("explain", "small.yaml", "--set", "compute.model=yaml:unsafe_load", cwd=folder)
    assert result.code == 0, result.err
    rows = [line.split(maxsplit=2) for line in result.out.splitlines() if ":" in line]
    by_place = {row[0]: row[1:] for row in rows}
    assert by_place["logic.hooks.0"] == [
        "leaves_trace:Mine",
        f"{folder}/leaves_trace.py, beside the experiment",
    ]
    assert by_place["compute.model"][0] == "yaml:unsafe_load"
    assert by_place["compute.model"][1].endswith("yaml/__init__.py, installed")
    assert result.out.rstrip().endswith("If you trust it: --own-modules --module yaml")
    assert not trace(folder)
    plain = fedmx("explain", "small.yaml", "--set", "logic.hooks=[]", cwd=folder)
    assert plain.out.rstrip().endswith("All of this is fedmx's own code.")


@pytest.mark.parametrize("option", [["--own-modules"], ["--module", "leaves_trace"]])
def test_allowed_code_runs_in_a_run_and_in_its_resumption(folder: Path, option: list[str]) -> None:
    result = fedmx("run", "small.yaml", *option, cwd=folder)
    assert result.code == 0, result.err
    assert trace(folder)
    (folder / "trace").unlink()
    (run,) = (folder / "runs").iterdir()
    (run / "status.json").unlink()  # as if it had been killed
    refused = fedmx("resume", run, cwd=folder).error_text
    assert "leaves_trace:Mine is not fedmx's code" in refused
    assert "export" not in refused
    assert "is not fedmx's code" in fedmx("export", run, "--to", "onnx", cwd=folder).error_text
    assert not trace(folder)
    assert fedmx("resume", run, *option, cwd=folder).code == 0
    assert trace(folder)


@pytest.mark.needs_mxnet
@pytest.mark.parametrize(("answer", "runs"), [("y", True), ("n", False)])
def test_on_a_terminal_the_user_is_asked(folder: Path, answer: str, runs: bool) -> None:
    ours, theirs = pty.openpty()
    with open(os.devnull, "wb") as nothing:
        files = [theirs, nothing.fileno(), theirs]
        words = ["run", "small.yaml"]
        process = ForkedProcess("fedmx.cli.start:main", words, folder, environment(), files)
    os.close(theirs)
    said = b""
    while b"Run this code?" not in said:
        said += os.read(ours, 1000)
    assert "small.yaml" in said.decode(), "whose code it is"
    assert f"leaves_trace:Mine  ({folder}/leaves_trace.py)" in said.decode()
    assert not trace(folder)
    os.write(ours, f"{answer}\n".encode())
    try:
        while os.read(ours, 1000):
            pass
    except OSError:  # the other end of a terminal is closed
        pass
    assert process.wait(120) == (0 if runs else 2)
    assert trace(folder) == runs
    os.close(ours)


@pytest.mark.usefixtures("forgotten")
def test_python_allows_modules_by_name_and_reading_imports_nothing(folder: Path) -> None:
    file = folder / "small.yaml"
    for experiment in (
        Experiment.read(file),
        Experiment.read(file).with_overrides(["rounds=2"]),
        Experiment.parse(FILE, folder=folder, modules=["another"]),
    ):
        assert experiment.digest()
        with pytest.raises(ExperimentError, match=r"which is not allowed here \(allowed: "):
            _ = Assembly(experiment.with_overrides(["logic.min_updates=2"])).preset
    assert [one.owner for one in named_code(Experiment.read(file).components)] == ["beside"]
    assert not trace(folder)
    allowed = Experiment.read(file, modules=["leaves_trace"]).with_overrides(["rounds=2"])
    assert [type(hook).__name__ for hook in Assembly(allowed).preset.hooks] == ["Mine"]
    assert trace(folder)


@pytest.mark.usefixtures("forgotten")
def test_code_typed_after_set_needs_no_other_permission(folder: Path) -> None:
    experiment = Experiment.read(
        folder / "small.yaml", ["logic.hooks=['leaves_trace:Mine']"]
    ).with_overrides(["rounds=2"])
    assert [type(hook).__name__ for hook in Assembly(experiment).preset.hooks] == ["Mine"]
    other = Experiment.read(folder / "small.yaml", ["logic.hooks.0.x=1"])
    with pytest.raises(ExperimentError, match="not allowed here"):
        _ = Assembly(other).preset


def test_the_place_of_a_module_is_found_without_the_import_of_its_package(folder: Path) -> None:
    package = folder / "outer" / "inner"
    package.mkdir(parents=True)
    for init in (folder / "outer" / "__init__.py", package / "__init__.py"):
        init.write_text("raise AssertionError('was imported')")
    (package / "deep.py").write_text("raise AssertionError('was imported')")
    (folder / "yaml.py").write_text("raise AssertionError('was imported')")
    for name, owner, ending in (
        ("outer.inner.deep", "beside", "outer/inner/deep.py"),
        ("outer.inner", "beside", "outer/inner/__init__.py"),
        ("outer.none", "missing", None),
        ("yaml", "installed", "yaml/__init__.py"),
        ("nowhere_at_all", "missing", None),
    ):
        file = folder / "one.yaml"
        file.write_text(FILE.replace("leaves_trace", name))
        (code,) = named_code(Experiment.read(file).components)
        assert code.owner == owner
        assert code.file is None if ending is None else str(code.file).endswith(ending)


def test_the_code_of_fedmx_is_not_a_users_own() -> None:
    """Also if the experiment is beside it, in a copy of the sources."""
    found = own_code(ROOT)
    assert "tests/fedmx/experiment/test_own_code.py" in found
    assert not [name for name in found if name.startswith(("fedmx/", "layers/"))]
