"""The code of the pages runs as printed; every command exists."""

from __future__ import annotations

import ast
import contextlib
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import typer.main

from fedmx.cli.main import app
from tests.examples.free_port import free_port
from tests.fedmx.processes import until

pytestmark = pytest.mark.timeout(300)  # many processes on a busy machine

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("examples/*/*.md")])
DOCS = ROOT / "docs"
# The pages whose files are put into one folder: one page imports what another shows.
SHARING = [DOCS / f"{name}.md" for name in ("tutorial", "extending", "python", "metrics")]
SHARING += sorted(DOCS.glob("own-*.md"))
# The snippets of each tuple run one after the other.
CODE = {
    "README": (ROOT / "README.md",),
    "python": (DOCS / "python.md", DOCS / "run-folder.md"),
    "own": (DOCS / "own-model-and-data.md",),
}
PATIENCE_S = 120.0


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[tuple[str | None, str]]:
    """The page's code blocks in these languages, and the file name with which each begins."""
    found = re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    texts = [text for language, text in found if language in languages]
    names = [re.match(r"# ([\w.-]+\.(?:py|yaml))\n", text) for text in texts]
    return [(name and name[1], text) for name, text in zip(names, texts, strict=True)]


def write_files(pages: Iterable[Path], folder: Path) -> list[Path]:
    """Write the pages' named blocks into a folder, as a reader would."""
    paths = []
    for page in pages:
        for name, text in blocks(page, "python", "yaml"):
            if name is not None:
                path = folder / name
                assert not path.exists(), f"{name} is there twice"
                path.write_text(text)
                paths.append(path)
    return paths


def run_python(code: str, folder: Path) -> str:
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}",
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("pages", [[ROOT / "README.md"], SHARING], ids=["README", "docs"])
def test_every_experiment_file_of_the_pages_runs(pages: list[Path], tmp_path: Path) -> None:
    files = [path.name for path in write_files(pages, tmp_path) if path.suffix == ".yaml"]
    code = (
        "from fedmx import Experiment, simulate\n"
        f"for file in {files!r}:\n"
        "    *_, last = simulate(Experiment.read(file, ['rounds=2'], modules=None))\n"
        "    print(file, last.round)\n"
    )
    assert run_python(code, tmp_path).splitlines() == [f"{file} 2" for file in files]


@pytest.mark.parametrize("pages", CODE.values(), ids=CODE)
def test_the_python_of_the_pages_runs_from_top_to_bottom(
    pages: tuple[Path, ...], tmp_path: Path
) -> None:
    write_files(pages if pages == CODE["README"] else SHARING, tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    snippets = [
        text.replace('quickstart.yaml"', 'quickstart.yaml", ["rounds=2"]')
        for page in pages
        for name, text in blocks(page, "python")
        if name is None
    ]
    assert snippets
    assert run_python("\n".join(snippets), tmp_path)


def test_the_hook_of_the_readme_is_the_example() -> None:
    (hook,) = [text for name, text in blocks(ROOT / "README.md", "python") if name]
    name, _, code = hook.partition("\n")
    assert code == (ROOT / "examples" / name.removeprefix("# ")).read_text()


def test_the_pages_on_extending_show_the_examples_and_their_tests_pass(
    tmp_path: Path,
) -> None:
    written = write_files(SHARING, tmp_path)
    tests = [path for path in written if path.name.startswith("test_")]
    assert len(tests) == 5
    shown_as_example: list[str] = []
    for path in written:
        lines = [line for line in path.read_text().splitlines() if line.strip()]
        if path.suffix == ".py":
            assert len(lines) < 40, f"{path.name} is too long to be taken in at a glance"
        example = ROOT / "examples" / path.name
        if example.exists():
            shown_as_example.append(path.name)
            assert path.read_text().partition("\n")[2] == example.read_text()
    assert len(shown_as_example) == 6
    (tmp_path / "conftest.py").write_text("")  # as in a folder of its own
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", *tests],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{ROOT}:{tmp_path}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout
    assert "12 passed" in done.stdout


def test_the_round_of_the_design_is_the_code() -> None:
    (told,) = [
        text for _, text in blocks(ROOT / "docs" / "design.md", "python") if "run_round(" in text
    ]
    code = ast.parse((ROOT / "layers" / "logic" / "round" / "round.py").read_bytes())
    (real,) = [node for node in code.body if getattr(node, "name", "") == "run_round"]
    (shown_one,) = ast.parse(told).body
    for function in (real, shown_one):
        assert isinstance(function, ast.FunctionDef)
        if ast.get_docstring(function):
            del function.body[0]
    assert ast.unparse(shown_one) == ast.unparse(real)


def test_the_server_and_the_clients_of_the_page_on_python_meet(tmp_path: Path) -> None:
    port = free_port()
    write_files(SHARING, tmp_path)
    for path in tmp_path.glob("*_idea.py"):
        path.write_text(path.read_text().replace("7070", str(port)))
    experiment = tmp_path / "idea.yaml"
    experiment.write_text(experiment.read_text() + f"network: {{address: '127.0.0.1:{port}'}}\n")
    processes: list[subprocess.Popen[str]] = []

    def start(*command: str) -> None:
        processes.append(
            subprocess.Popen(
                [sys.executable, "-W", "ignore", *command],
                cwd=tmp_path,
                env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )

    def listens() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return True
        return processes[0].poll() is not None

    try:
        start("serve_idea.py")
        until(listens, lambda: "the server does not listen")  # clients wait ever longer for it
        start("join_idea.py", "0")
        start("join_idea.py", "1")
        outputs = [process.communicate(timeout=PATIENCE_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0, 0, 0], outputs
    assert [line.split()[0] for line in outputs[0][0].splitlines()] == ["1", "2"]
    assert "all 2 rounds were run" in outputs[1][0]


def commands_of(page: Path) -> list[str]:
    """Every `fedmx ...` in a page's shell blocks and code spans, without the `fedmx`."""
    shell = "\n".join(text for _, text in blocks(page, "sh")).replace("\\\n", " ")
    commands = re.findall(r"^fedmx (.+?)(?: *[&#>].*)?$", shell, re.MULTILINE)
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [*commands, *re.findall(r"`fedmx ([^`\n]+)`", prose)]


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_every_command_of_a_page_exists(page: Path) -> None:
    whole = typer.main.get_command(app)
    for command in commands_of(page):
        words = shlex.split(command)
        node, name = whole, "fedmx"
        while words and hasattr(node, "commands") and words[0].islower() and words[0][0] != "-":
            name = words.pop(0)
            assert name in node.commands, f"fedmx {command}: there is no {name}"
            node = node.commands[name]
        options = {spelling for option in node.params for spelling in option.opts}
        for word in words:
            if re.match(r"-{1,2}[a-z]", word) and word not in ("--debug", "--help"):
                assert word.split("=")[0] in options, f"fedmx {command}: {name} has no {word}"


EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))


def test_users_import_from_fedmx_alone() -> None:
    layer = ROOT / "examples" / "network"  # it shows one layer alone
    codes = [(shown(path), path.read_text()) for path in EXAMPLES if path.parent != layer]
    codes += [(shown(page), text) for page in PAGES for _, text in blocks(page, "python")]
    assert len(codes) > len(EXAMPLES) > 5
    statement = re.compile(r"^\s*(?:from|import) +layers\b.*$", re.MULTILINE)
    assert [(where, line) for where, text in codes for line in statement.findall(text)] == []


def test_the_page_on_deployment_writes_the_servers_address_where_the_unit_reads_it() -> None:
    deploy = ROOT / "examples" / "deploy"
    (read,) = re.findall(
        r"^EnvironmentFile=(\S+)$", (deploy / "fedmx-client@.service").read_text(), re.MULTILINE
    )
    written = re.findall(
        r"^echo FEDMX_SERVER=\S+ > (\S+)$", (deploy / "README.md").read_text(), re.M
    )
    assert written == [read]
