"""What a stranger sees when `make` cannot set itself up, and what CI sees when a test skips."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NEEDED = ("setup.py", "constraints.txt", "pyproject.toml", "fedmx/version.py", ".ci/venv.sh")


class Machine:
    """A copy of the project on a machine that has only the programs given to it."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project with spaces"
        self.programs = folder / "bin"
        self.home = folder / "home"
        self.programs.mkdir(parents=True)
        for name in NEEDED:
            copy = self.project / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy)
        tools = "sh dirname cat cksum grep sed head tail rm uname mkdir chmod cp env"
        for tool in tools.split():
            (self.programs / tool).symlink_to(shutil.which(tool) or tool)

    def install_python(
        self, name: str, version: str, *, venv: bool = True, pip: str = "", mxnet: bool = True
    ) -> Path:
        """Put a stand-in for an interpreter in place; `pip` is what its pip says before it fails.

        It gives its version, makes environments that hold a copy of itself, and counts the calls of
        its pip, which finds no wheel of MXNet where `mxnet` is false.
        """
        no_wheel = "ERROR: No matching distribution found for mxnet"
        program = self.programs / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(
            f"""#!/bin/sh
            case "$*" in
            *sys.executable*) echo "{version} $0" ;;
            *ensurepip*) {"true" if venv else "false"} ;;
            "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
            "-m pip --version") ;;
            *find_spec*) {str(mxnet).lower()} ;;
            *"--no-deps mxnet"*)
                echo "$*" >>"{self.home}.pip"
                {"true" if mxnet else f"echo '{no_wheel}'; exit 1"}
                ;;
            *"-m pip"*)
                echo "$*" >>"{self.home}.pip"
                {f"echo '{pip}'; exit 1" if pip else "echo installed"}
                ;;
            *"import fedmx, mxnet"*)
                [ -e "{self.home}.gomp" ] && exit 0
                echo "Traceback (most recent call last):" >&2
                echo "OSError: libgomp.so.1: cannot open shared object file: No such file" >&2
                exit 1
                ;;
            esac
            """
        )
        program.chmod(0o755)
        return program

    def install_uv(self, *, works: bool) -> None:
        """Put a stand-in for uv in place, which notes its calls."""
        program = self.programs / "uv"
        end = "exit 0" if works else "echo 'error: no index' >&2; exit 2"
        program.write_text(f"""#!/bin/sh\necho "$*" >>"{self.home}.uv"\n{end}\n""")
        program.chmod(0o755)

    def install_libgomp(self) -> None:
        Path(f"{self.home}.gomp").touch()

    @property
    def pip_commands(self) -> list[str]:
        commands = Path(f"{self.home}.pip")
        return commands.read_text().splitlines() if commands.exists() else []

    @property
    def pip_calls(self) -> int:
        return len(self.pip_commands)

    def make_venv(self, **environment: str) -> tuple[int, str]:
        """Exit code and output of the script that `make` runs first."""
        done = subprocess.run(
            [str(self.programs / "sh"), str(self.project / ".ci" / "venv.sh")],
            env={"PATH": str(self.programs), "HOME": str(self.home), **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.stdout == ""
        return done.returncode, done.stderr


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_a_suitable_python_one_line_says_what_was_looked_for(machine: Machine) -> None:
    machine.install_python("python3", "3.14.0")
    code, said = machine.make_venv()
    assert code == 2
    assert said.count("\n") == 1
    assert "no Python 3.10 to 3.13 found" in said
    assert "python3 is 3.14.0" in said
    assert "make PYTHON=" in said
    assert not (machine.project / ".venv").exists()


def test_without_any_python_one_line_says_so(machine: Machine) -> None:
    code, said = machine.make_venv()
    assert (code, said.count("\n")) == (2, 1)
    assert "none starts" in said


@pytest.mark.parametrize(
    ("version", "says"),
    [("3.9.18", "is Python 3.9.18; fedmx needs 3.10 to 3.13"), (None, "does not start")],
)
def test_a_python_that_was_named_is_used_or_refused_never_replaced(
    machine: Machine, version: str | None, says: str
) -> None:
    machine.install_python("python3.11", "3.11.7")
    if version is not None:
        machine.install_python("mine", version)
    code, said = machine.make_venv(PYTHON="mine")
    assert (code, said.count("\n")) == (2, 1)
    assert says in said


def test_a_python_without_venv_names_the_package_to_install(machine: Machine) -> None:
    machine.install_python("python3.11", "3.11.7", venv=False)
    code, said = machine.make_venv()
    assert (code, said.count("\n")) == (2, 1)
    assert "python3.11-venv" in said


@pytest.mark.parametrize(
    ("pip", "says"),
    [
        (
            "Retrying after connection broken by NewConnectionError",
            "could not reach the package index",
        ),
        ("ERROR: [Errno 28] No space left on device", "the disk is full"),
        (
            "ERROR: No matching distribution found for mxnet==1.9.1",
            "no MXNet 1.9.1 for this machine",
        ),
        ("ERROR: something else", "ERROR: something else"),
    ],
)
def test_a_failing_pip_is_explained_and_tried_again_next_time(
    machine: Machine, pip: str, says: str
) -> None:
    machine.install_libgomp()
    machine.install_python("python3.11", "3.11.7", pip=pip)
    code, said = machine.make_venv()
    assert code == 2
    assert says in said
    assert "Traceback" not in said
    assert machine.make_venv()[0] == 2
    assert machine.pip_calls == 2


def test_without_a_terminal_the_steps_are_told_line_by_line(machine: Machine) -> None:
    pip = "\n".join([*(f"Collecting p{n} (from fedmx)" for n in range(1, 43)), "Installing p1"])
    machine.install_python("python3.11", "3.11.7", pip=pip)
    _, said = machine.make_venv()
    steps = [line for line in said.splitlines() if "package" in line and "fedmx: " in line]
    assert [re.findall(r"package (\d+): Collecting (p\d+)$", line) for line in steps[:3]] == [
        [("1", "p1")],
        [("21", "p21")],
        [("41", "p41")],
    ]
    assert "unpacking 42 packages" in steps[3]


@pytest.mark.parametrize("works", [True, False])
def test_uv_installs_if_it_is_there_and_pip_if_uv_cannot(machine: Machine, works: bool) -> None:
    machine.install_libgomp()
    machine.install_python("python3.11", "3.11.7")
    machine.install_uv(works=works)
    code, said = machine.make_venv()
    assert code == 0
    calls = Path(f"{machine.home}.uv").read_text().splitlines()
    assert any("-c constraints.txt" in call and ".[test,docs]" in call for call in calls)
    assert machine.pip_calls == (0 if works else 2)
    assert ("no index" in said) == (not works)


def test_a_missing_system_library_is_named_with_its_package(machine: Machine) -> None:
    machine.install_python("python3.10", "3.10.13")
    code, said = machine.make_venv()
    assert code == 2
    assert "libgomp.so.1" in said
    assert "apt-get install libgomp1" in said
    assert "Traceback" not in said
    machine.install_libgomp()
    assert machine.make_venv()[0] == 0


def test_an_environment_is_made_once_and_again_when_the_versions_change(machine: Machine) -> None:
    machine.install_libgomp()
    machine.install_python("python3.11", "3.11.7")
    assert machine.make_venv()[0] == 0
    calls = machine.pip_calls
    assert calls > 0
    assert machine.make_venv() == (0, "")
    assert machine.pip_calls == calls
    with (machine.project / "constraints.txt").open("a") as constraints:
        constraints.write("# changed\n")
    assert machine.make_venv()[0] == 0
    assert machine.pip_calls == 2 * calls


def test_an_environment_of_another_python_is_made_anew_when_one_is_named(machine: Machine) -> None:
    machine.install_libgomp()
    machine.install_python("python3.11", "3.11.7")
    other = machine.install_python("python3.10", "3.10.13")
    assert machine.make_venv()[0] == 0
    code, said = machine.make_venv(PYTHON=str(other))
    assert code == 0
    assert "for Python 3.10.13" in said


@pytest.mark.parametrize("version", ["3.10.13", "3.11.7", "3.12.1", "3.13.0"])
def test_each_python_of_the_four_makes_an_environment(machine: Machine, version: str) -> None:
    machine.install_libgomp()
    name = "python" + ".".join(version.split(".")[:2])
    machine.install_python(name, version)
    assert machine.make_venv()[0] == 0
    # With its dependencies, MXNet would ask pip for a numpy that Python 3.13 does not have.
    alone = [one for one in machine.pip_commands if "--no-deps mxnet" in one]
    assert len(alone) == (version == "3.13.0")


@pytest.mark.parametrize("version", ["3.12.1", "3.13.0"])
def test_a_machine_without_mxnet_gets_an_environment_and_the_name_of_its_engine(
    machine: Machine, version: str
) -> None:
    machine.install_python("python3", version, mxnet=False)
    code, said = machine.make_venv()
    assert code == 0, said
    (line,) = (line for line in said.splitlines() if "MXNet" in line)
    assert "the engine is numpy" in line
    assert machine.make_venv() == (0, "")


def test_of_several_pythons_the_one_of_the_past_releases_is_taken(machine: Machine) -> None:
    machine.install_libgomp()
    for version in ("3.13.0", "3.12.1", "3.11.7", "3.10.13"):
        machine.install_python("python" + ".".join(version.split(".")[:2]), version)
    assert "for Python 3.11.7" in machine.make_venv()[1]


def test_a_python_of_pyenv_is_found(machine: Machine) -> None:
    machine.install_libgomp()
    hidden = machine.home / ".pyenv" / "versions" / "3.10.13" / "bin" / "python"
    machine.install_python(str(hidden), "3.10.13")
    assert machine.make_venv()[0] == 0


SKIPS = """
import pytest
def test_skips(): pytest.skip("no data")
@pytest.mark.xfail(reason="known", strict=True)
def test_fails_as_expected(): assert False
"""
SKIPS_WHOLE = 'import pytest\npytest.skip("not here", allow_module_level=True)\n'


SKIPS_BY_RIGHT = """
import pytest
@pytest.mark.needs_second_python
@pytest.mark.skipif(True, reason="one interpreter")
def test_compares(): pass
"""


def test_only_a_comparison_of_interpreters_may_skip_where_nothing_else_may(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_skips.py").write_text(SKIPS_BY_RIGHT)
    done = run_pytest(tmp_path, FEDMX_NO_SKIPS="1")
    assert done.returncode == 0, done.stdout
    assert "1 skipped" in done.stdout
    assert "one interpreter" in done.stdout


@pytest.mark.parametrize(("no_skips", "code"), [("0", 0), ("1", 1)])
def test_a_skip_fails_where_nothing_may_skip(tmp_path: Path, no_skips: str, code: int) -> None:
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_skips.py").write_text(SKIPS)
    done = run_pytest(tmp_path, FEDMX_NO_SKIPS=no_skips)
    assert done.returncode == code, done.stdout
    assert "no data" in done.stdout
    assert "1 xfailed" in done.stdout


def test_a_file_that_skips_as_a_whole_fails_where_nothing_may_skip(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_whole.py").write_text(SKIPS_WHOLE)
    done = run_pytest(tmp_path, FEDMX_NO_SKIPS="1")
    assert done.returncode not in (0, 5), done.stdout
    assert "not here" in done.stdout


WITHOUT_MXNET = """
import pytest
def test_needs_it(): raise ModuleNotFoundError("No module named 'mxnet'")
def test_prints_it():
    print("the package mxnet is not installed")
    assert False
@pytest.mark.needs_mxnet
def test_is_marked(): assert False
def test_is_wrong(): assert False
"""


def test_where_mxnet_is_missing_only_tests_that_need_it_are_skipped(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "hide_it.py").write_text("import sys\nsys.modules['mxnet'] = None\n")
    (tmp_path / "test_without.py").write_text(WITHOUT_MXNET)
    done = run_pytest(tmp_path, "-p", "hide_it", FEDMX_NO_SKIPS="0", PYTHONPATH=str(tmp_path))
    assert "FAILED test_without.py::test_is_wrong" in done.stdout
    assert "1 failed, 3 skipped" in done.stdout
    with_it = run_pytest(tmp_path, FEDMX_NO_SKIPS="0", PYTHONPATH=str(tmp_path))
    assert "4 failed" in with_it.stdout


# cat ends when its input does, and the thread when the process does that keeps `left`.
LEAVES = {
    "process": """
import subprocess
left = []
def test_leaves(): left.append(subprocess.Popen(["cat"], stdin=subprocess.PIPE))
""",
    "thread": """
import threading
def test_leaves():
    main = threading.main_thread()
    threading.Thread(target=main.join, name="mine").start()
""",
}


def test_what_a_test_leaves_running_is_reported(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    for left, text in LEAVES.items():
        (tmp_path / f"test_leaves_{left}.py").write_text(text)
    done = run_pytest(tmp_path)
    assert done.returncode == 1, done.stdout
    assert "2 passed, 2 errors" in done.stdout
    for left in LEAVES:
        assert f"left running: {left}" in done.stdout


def test_processes_that_share_the_tests_keep_the_same_rules(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_skips.py").write_text(SKIPS)
    (tmp_path / "test_whole.py").write_text(SKIPS_WHOLE)
    for left, text in LEAVES.items():
        (tmp_path / f"test_leaves_{left}.py").write_text(text)
    done = run_pytest(tmp_path, "-n", "2", "--dist", "loadfile", FEDMX_NO_SKIPS="1")
    assert done.returncode == 1, done.stdout
    assert "no data" in done.stdout
    assert "not here" in done.stdout
    for left in LEAVES:
        assert f"left running: {left}" in done.stdout
    assert "skipped" not in done.stdout.splitlines()[-1]


INTERRUPTED = """
import _thread, signal, pytest
def test_ctrl_c_is_heard(interruptible):
    with pytest.raises(KeyboardInterrupt):
        _thread.interrupt_main()
def test_only_by_those_that_ask_for_it():
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
"""


def test_where_ctrl_c_is_ignored_tests_that_need_it_hear_it(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_interrupted.py").write_text(INTERRUPTED)
    done = run_pytest(tmp_path, start=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN) and None)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


HANGS = """
import ctypes
def test_hangs(): ctypes.PyDLL(None).pause()  # no other thread of Python runs
def test_ends(): pass
"""


def test_a_test_that_hangs_outside_of_python_is_ended_with_its_stack(tmp_path: Path) -> None:
    (tmp_path / "test_hangs.py").write_text(HANGS)
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    words = ("-n", "1", "--timeout", "1", "test_hangs.py")
    done = run_pytest(tmp_path, *words, config="pyproject.toml")
    assert done.returncode == 1
    assert "in test_hangs" in done.stderr
    assert "test_hangs.py::test_hangs" in done.stdout
    assert "1 failed, 1 passed" in done.stdout, "the others go on in a new process"


def test_every_test_has_a_time_limit(request: pytest.FixtureRequest) -> None:
    limits = [float(request.config.getini("timeout"))]
    for item in request.session.items:
        marker = item.get_closest_marker("timeout")
        limits += [float(marker.args[0])] if marker is not None else []
    assert all(0 < limit <= 900 for limit in limits)


def run_pytest(
    folder: Path,
    *words: str,
    config: str = os.devnull,
    start: Callable[[], None] | None = None,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-ra", "-c", config, f"--rootdir={folder}", *words],
        cwd=folder,
        env={**os.environ, **environment},
        preexec_fn=start,
        capture_output=True,
        text=True,
        timeout=100,
    )
