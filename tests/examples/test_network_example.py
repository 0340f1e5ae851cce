"""The example of the network layer: two processes exchange messages, files and objects over TLS."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "network"
PATIENCE_S = 120.0

pytestmark = pytest.mark.timeout(300)


def started(name: str, folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(EXAMPLE / name), *words],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_processes_exchange_a_control_message_files_and_objects(tmp_path: Path) -> None:
    server = started("server.py", tmp_path)
    processes = [server]
    try:
        assert server.stdout is not None
        address = server.stdout.readline().removeprefix("listening on ").strip()
        client = started("client.py", tmp_path, address)
        processes.append(client)
        said = client.communicate(timeout=PATIENCE_S)
        told = server.communicate(timeout=PATIENCE_S)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0, 0], (said, told)
    events = [line.partition(" ")[2].partition(" (")[0] for line in told[0].splitlines()]
    assert events[0] == "joined"
    assert events[1].startswith("is ready with ")
    assert sorted(events[2:4]) == [
        "changed the weights by [1.0, 1.0, 1.0, 1.0], loss 0.5",
        "sent received/client-1/log.txt: added one",
    ]
    assert events[4].startswith("left: ")
    assert "the task: add one to each weight" in said[0].splitlines()
    assert "weights [0.0, 1.0, 2.0, 3.0]" in said[0].splitlines()
    assert (tmp_path / "tasks" / "task.txt").read_bytes() == (tmp_path / "task.txt").read_bytes()


def test_it_imports_the_network_layer_and_nothing_else_of_fedmx() -> None:
    modules = set()
    for path in EXAMPLE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ImportFrom):
                modules.add(node.module)
            elif isinstance(node, ast.Import):
                modules |= {name.name for name in node.names}
    assert {one for one in modules if one and one.startswith(("fedmx", "layers"))} == {
        "layers.network"
    }
