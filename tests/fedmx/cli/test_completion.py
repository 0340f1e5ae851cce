"""Tab completes commands, options, names and keys in a shell where completion was installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fedmx.command_line import ROOT, environment


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with `fedmx` on the path, in whose bash completion was installed by the command."""
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "fedmx"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fedmx "$@"\n')
    program.chmod(0o755)
    done = bash(
        tmp_path, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION=1 fedmx --install-completion bash"
    )
    assert "completion installed" in done
    return tmp_path


def bash(home: Path, script: str) -> str:
    """What a bash with this home prints."""
    path = f"{home / 'bin'}:/usr/bin:/bin"
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        cwd=home,
        env=environment(HOME=str(home), PATH=path, PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def offered(home: Path, line: str) -> list[str]:
    """What Tab offers at the end of a line, by the function that ~/.bashrc loads."""
    words = line.split(" ")
    typed = " ".join(f"'{word}'" for word in words)
    return bash(
        home,
        f"source ~/.bashrc; COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1};"
        " _fedmx_completion fedmx; printf '%s\\n' \"${COMPREPLY[@]}\"",
    ).split()


def test_bash_offers_commands_options_names_and_keys(home: Path) -> None:
    assert offered(home, "fedmx ru") == ["run", "runs"]
    assert {"--set", "--executor"} <= set(offered(home, "fedmx run --"))
    assert set(offered(home, "fedmx certs ")) >= {"all", "show"}
    assert offered(home, "fedmx explain fedn") == ["fednova"]
    assert offered(home, "fedmx explain compute.train.l") == ["compute.train.learning_rate"]
    assert offered(home, "fedmx list part") == ["partitions"]
