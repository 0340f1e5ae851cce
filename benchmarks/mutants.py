"""Mutation testing: whether the tests notice small faults in a sample of mutants.

    python benchmarks/mutants.py --seed 11 --number 400 --out mutants.jsonl [--reached FOLDER]

A mutant is the code with one change: a comparison, a sign or a truth value is swapped, a number is
changed, or a statement is removed. Each runs on a copy of the tree, never in the work tree, and the
result is one line of JSON. A second start with the same file continues where the first one stopped.
The tests of the folder that mirrors the module run first, then those of its layer. With --reached,
only tests that reach the changed line (or, if there are none, its file) run. The folder has
coverage's records:

    coverage run --rcfile=INI --data-file=FOLDER/logic -m pytest tests/logic
    with "[run]", "source = layers,fedmx" and "dynamic_context = test_function" in INI

Existing tools do not fit: mutmut leaves out the body of classes and modules, where settings have
their defaults, and cosmic-ray runs one command for all modules; neither draws a sample by a seed.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SWAPS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
# What pytest's exit codes mean for a mutant; with 4 or 5 no test was found. Any other kills it.
ENDS = {0: "survived", 4: "untested", 5: "untested"}
REMOVED = (ast.AugAssign, ast.Raise, ast.Delete, ast.Continue, ast.Break)
PRELOADED = (
    "pytest",
    "hypothesis.extra.numpy",
    "scipy.optimize",
    "sklearn.cluster",
    "fedmx.cli.main",
    "layers.compute.engines.mxnet.engine",
)
LEFT_OUT = {"annotation", "returns", "type_comment", "type_params"}


@dataclass(frozen=True)
class Mutant:
    """One change: the text between two places of a file, and its replacement."""

    file: str
    line: int
    kind: str
    before: str
    after: str
    start: int
    stop: int

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line}:{self.start}:{self.kind}"


def mutants_of(file: str, source: bytes) -> Iterator[Mutant]:
    """Yield all mutants of one file, in the order of its lines."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    tree = ast.parse(source)
    for node in _nodes(tree):
        for kind, changed in _changes(node):
            start = starts[node.lineno - 1] + node.col_offset
            stop = starts[node.end_lineno - 1] + node.end_col_offset
            before = source[start:stop].decode()
            after = changed if isinstance(changed, str) else f"({ast.unparse(changed)})"
            yield Mutant(file, node.lineno, kind, before, after, start, stop)


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that can be changed: no annotations, text or type-checking code."""
    if isinstance(node, (ast.JoinedStr, ast.Assert)):
        return
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if hasattr(node, "lineno"):
        yield node
    for name, value in ast.iter_fields(node):
        children = value if isinstance(value, list) else [value]
        for child in () if name in LEFT_OUT else children:
            if isinstance(child, ast.AST):
                yield from _nodes(child)


def _changes(node: ast.AST) -> Iterator[tuple[str, str | ast.AST]]:
    copy = deepcopy(node)
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        copy.ops[0] = SWAPS[type(node.ops[0])]()
        yield "comparison", copy
    elif isinstance(node, (ast.BinOp, ast.BoolOp)) and type(node.op) in SWAPS:
        if not (isinstance(node, ast.BinOp) and (_text(node.left) or _text(node.right))):
            copy.op = SWAPS[type(node.op)]()
            yield "sign" if isinstance(node, ast.BinOp) else "truth", copy
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)):
        yield "sign" if isinstance(node.op, ast.USub) else "truth", node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "truth", repr(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        other = node.value + 1 if isinstance(node.value, int) else node.value * 2 or 1.0
        yield "number", repr(other)
    elif isinstance(node, REMOVED) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield "removed", "pass"


def _text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
    )


def sample(root: Path, parts: Sequence[str], seed: int, number: int) -> list[Mutant]:
    """Return mutants of these folders, drawn with a seed, in the order drawn."""
    files = sorted(path for part in parts for path in (root / part).rglob("*.py"))
    found = [
        mutant
        for path in files
        for mutant in mutants_of(path.relative_to(root).as_posix(), path.read_bytes())
    ]
    return random.Random(seed).sample(found, min(number, len(found)))


def mirrored(root: Path, file: str) -> list[str]:
    """Return the folders of tests of a module: the one that mirrors it, then that of its layer."""
    parts = Path(file.removeprefix("layers/")).parent.parts
    folders = ["/".join(("tests", *parts[:n])) for n in range(len(parts), 0, -1)]
    return [folder for folder in folders if (root / folder).is_dir()]


class Reached:
    """Which tests reach a line, as coverage recorded it."""

    def __init__(self, folder: Path) -> None:
        import coverage

        self._lines: dict[str, dict[int, set[str]]] = {}
        for path in sorted(folder.iterdir()):
            data = coverage.CoverageData(str(path))
            data.read()
            for measured in data.measured_files():
                file = next(
                    measured[measured.rfind(p) :] for p in ("layers/", "fedmx/") if p in measured
                )
                lines = self._lines.setdefault(file, {})
                for line, contexts in data.contexts_by_lineno(measured).items():
                    lines.setdefault(line, set()).update(filter(None, contexts))

    def tests(self, mutant: Mutant) -> list[str]:
        """Return the tests that reach a mutant, or else its file, the mirroring ones first."""
        lines = self._lines.get(mutant.file, {})
        stop = mutant.line + mutant.before.count("\n")
        tests = {test for line in range(mutant.line, stop + 1) for test in lines.get(line, ())}
        tests = tests or {test for reached in lines.values() for test in reached}
        folders = mirrored(ROOT, mutant.file)
        names = [
            f"{'/'.join(test.split('.')[:-1])}.py::{test.split('.')[-1]}"
            for test in tests
            if _defines(test)  # pytest runs nothing if it does not find one of the names
        ]

        def far(name: str) -> tuple[int, str]:
            near = [place for place, folder in enumerate(folders) if name.startswith(folder)]
            return (min(near, default=len(folders)), name)

        return sorted(names, key=far)


def _defines(test: str) -> bool:
    """Return whether a test that coverage names is one of a module's functions."""
    *parts, name = test.split(".")
    path = ROOT.joinpath(*parts).with_suffix(".py")
    return path.is_file() and f"\ndef {name}(" in path.read_text()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--number", type=int, default=400)
    parser.add_argument("--parts", nargs="+", default=["layers", "fedmx"])
    parser.add_argument("--out", type=Path, default=Path("mutants.jsonl"))
    parser.add_argument("--reached", type=Path)
    parser.add_argument("--most", type=int, help="with --reached, so many tests, the nearest")
    parser.add_argument("--limit-s", type=float, default=300.0, help="seconds for one mutant")
    options = parser.parse_args()
    out = options.out.resolve()
    done = (
        {json.loads(line)["name"] for line in out.read_text().splitlines()} if out.exists() else ()
    )
    reached = Reached(options.reached) if options.reached else None
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = _copy_of_tree(Path(folder) / "tree")
        _preload(copy)
        for mutant in sample(copy, options.parts, options.seed, options.number):
            if mutant.name in done:
                continue
            targets = [[one] for one in mirrored(copy, mutant.file)]
            if reached:
                targets = [reached.tests(mutant)[: options.most]]
            began = time.monotonic()
            status = _status(copy, mutant, targets, options.limit_s)
            line = {"name": mutant.name, **asdict(mutant), "status": status}
            line["seconds"] = round(time.monotonic() - began, 1)
            line["tests"] = sum(map(len, targets))
            with out.open("a") as lines:
                lines.write(json.dumps(line) + "\n")
            print(
                f"{status:9} {line['seconds']:6} s {mutant.name} {mutant.after[:60]!r}", flush=True
            )
    statuses = [json.loads(line)["status"] for line in out.read_text().splitlines()]
    print({status: statuses.count(status) for status in sorted(set(statuses))})


def _copy_of_tree(copy: Path) -> Path:
    """Return a copy of the files that git knows, with their compiled code."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    subprocess.run(
        [sys.executable, "-m", "compileall", "-q", "layers", "fedmx"], cwd=copy, check=True
    )
    return copy


def _preload(copy: Path) -> None:
    """Import what costs seconds, once, and forget our own modules, which each mutant reads anew."""
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # compiled code of one mutant is not for another
    sys.dont_write_bytecode = True
    # Commands that tests start must run the copy, wherever fedmx is installed from.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(copy), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    os.chdir(copy)
    sys.path[0] = str(copy)
    for name in PRELOADED:
        import_module(name)
    for name in [one for one in sys.modules if one.split(".")[0] in ("fedmx", "layers")]:
        del sys.modules[name]


def _status(copy: Path, mutant: Mutant, targets: Sequence[Sequence[str]], limit_s: float) -> str:
    path = copy / mutant.file
    source = path.read_bytes()
    path.write_bytes(source[: mutant.start] + mutant.after.encode() + source[mutant.stop :])
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        compiled.unlink()
    try:
        for tests in filter(None, targets):
            status = _run(copy, tests, limit_s)
            if status != "survived":
                return status
        return "survived" if any(targets) else "untested"
    finally:
        path.write_bytes(source)


def _run(copy: Path, tests: Sequence[str], limit_s: float) -> str:
    """Run tests in a separate process until one fails; return how it ended."""
    child = os.fork()
    if not child:
        os.setsid()
        nothing = os.open(copy.parent / "last.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(nothing, stream)
        import pytest

        os._exit(int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests])))
    ends = time.monotonic() + limit_s
    while time.monotonic() < ends:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            _end(child)
            return ENDS.get(os.waitstatus_to_exitcode(status), "killed")
        time.sleep(0.05)
    _end(child)
    os.waitpid(child, 0)
    return "too slow"


def _end(group: int) -> None:
    """End what a run of tests has left."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    main()
