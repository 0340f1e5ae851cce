"""Mutation testing: which small faults of the code no test notices.

    python benchmarks/mutants.py layers/logic --tests tests/logic --out found.jsonl [--number 200]

A mutant is the code with one change: a comparison, a sign or a truth value is swapped, a number is
changed, or a statement is removed. All happens in a copy of the tree. The tests run once under
coverage, which records which test reaches which line, also in the processes that tests start.
Install it (`pip install coverage`) in the environment of the tests. Then each mutant
gets a fork of that process, where all tests are collected and all modules are loaded: the functions
get their changed code, and the tests that reach the line run, quickest first, until one fails. So a
mutant costs little more than these tests. The processes that tests start read the changed
file. A mutant in the body of a loaded module or class runs as a new process.

The output gets one line of JSON for each mutant; a second start continues where the first stopped,
and does not measure the tests again (`.reached`). "survived": no test failed; "untested": no test
reaches the line. A survivor may be equivalent, or one that slower or other tests would notice.

Existing tools do not fit: mutmut leaves out the body of classes and modules, where settings have
their defaults, and cosmic-ray starts pytest anew for each mutant; neither draws a sample by a seed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import coverage
import pytest

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
REMOVED = (ast.AugAssign, ast.Raise, ast.Delete, ast.Continue, ast.Break)
LEFT_OUT = {"annotation", "returns", "type_comment", "type_params"}
LONGER = 5.0  # the tests of a mutant may take so many times their duration,
START_S = 20.0  # and this long to prepare what other tests prepared before
NEW_START_S = 60.0  # in a new process
CO_NEWLOCALS = 0x2
COVERAGE = """
[run]
data_file = {data}
parallel = true
include = {copy}/fedmx/*, {copy}/layers/*
patch =
    _exit
    fork
sigterm = true
plugins = benchmarks.mutants
"""
QUIET = ("-x", "-q", "-p", "no:cacheprovider", "-W", "ignore")


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

    @property
    def lines(self) -> range:
        return range(self.line, self.line + self.before.count("\n") + 1)

    def of(self, source: bytes) -> bytes:
        """Return the changed text of the file."""
        return source[: self.start] + self.after.encode() + source[self.stop :]


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


@dataclass
class Reached:
    """The tests that reach each line of each file, the seconds of each test, and failed tests."""

    lines: dict[str, dict[str, list[str]]]
    seconds: dict[str, float]
    failed: list[str]


class Contexts(coverage.CoveragePlugin):
    """A plugin of coverage: what runs belongs to the test that pytest names in the environment."""

    def dynamic_context(self, frame: FrameType) -> str | None:
        test = os.environ.get("PYTEST_CURRENT_TEST")  # "NODE (call)"; processes inherit it
        if test is None or "/tests/" in frame.f_code.co_filename:  # a helper may outlive its test
            return None
        return test.rpartition(" ")[0]


def coverage_init(plugins: Any, options: Any) -> None:
    """Register the plugin; coverage calls this in each process."""
    plugins.add_dynamic_context(Contexts())


class Recorder:
    """A plugin of pytest that writes the lines that each test of a copy of the tree reaches."""

    def __init__(self, copy: Path, path: Path) -> None:
        config = copy.parent / "coverage.ini"
        config.write_text(COVERAGE.format(copy=copy, data=copy.parent / "coverage"))
        os.environ["COVERAGE_PROCESS_START"] = str(config)  # for the processes that tests start
        self._coverage = coverage.Coverage(config_file=str(config))
        self._copy, self._path = copy, path
        self._reached = Reached({}, {}, [])

    def pytest_collection_finish(self) -> None:
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        began = time.monotonic()
        result = yield
        self._reached.seconds[item.nodeid] = time.monotonic() - began
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._reached.failed.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        self._coverage.save()
        self._coverage.combine()
        data = self._coverage.get_data()
        for path in data.measured_files():
            name = os.path.relpath(path, self._copy)
            lines = data.contexts_by_lineno(path)
            self._reached.lines[name] = {
                str(line): list(filter(None, found)) for line, found in lines.items()
            }
        self._path.write_text(json.dumps(asdict(self._reached)))


class Mutation:
    """A plugin of pytest that runs mutants in the place of tests.

    Args:
        copy: the tree.
        mutants: what to run.
        reached: which tests reach which line.
        most_s: the time of the tests of one mutant, as they took without it.
        out: the file of the results.
    """

    def __init__(
        self, copy: Path, mutants: Sequence[Mutant], reached: Reached, most_s: float, out: Path
    ) -> None:
        self._copy, self._mutants, self._reached = copy, mutants, reached
        self._most_s, self._out = most_s, out
        self._functions: dict[str, list[FunctionType]] = defaultdict(list)
        self._failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        for one in gc.get_objects():
            if isinstance(one, FunctionType):
                self._functions[one.__code__.co_filename].append(one)
        self._loaded = {getattr(one, "__file__", None) for one in sys.modules.values()}
        gc.freeze()
        for mutant in self._mutants:
            began = time.monotonic()
            status, number = self._status(mutant, items)
            line = {"name": mutant.name, **asdict(mutant), "status": status, "tests": number}
            line["seconds"] = round(time.monotonic() - began, 2)
            with self._out.open("a") as lines:
                lines.write(json.dumps(line) + "\n")
            print(f"{status:9} {line['seconds']:6} s {mutant.name} {mutant.after[:60]!r}")
        return True

    def _status(self, mutant: Mutant, items: Mapping[str, pytest.Item]) -> tuple[str, int]:
        path = self._copy / mutant.file
        source = path.read_bytes()
        changed = _changed_functions(path, source, mutant.of(source))
        targets = [
            (function, new)
            for function in self._functions[str(path)]
            for old, new in changed
            if function.__code__.co_firstlineno == old.co_firstlineno
            and function.__code__.co_name == old.co_name
        ]
        chosen = [items[name] for name in self._tests(mutant, bool(changed)) if name in items]
        if not chosen:
            return "untested", 0
        limit_s = LONGER * sum(self._reached.seconds[item.nodeid] for item in chosen)
        path.write_bytes(mutant.of(source))
        try:
            if targets or str(path) not in self._loaded:
                return self._in_fork(targets, chosen, limit_s + START_S), len(chosen)
            return self._in_new_process(chosen, limit_s + NEW_START_S), len(chosen)
        finally:
            path.write_bytes(source)

    def _tests(self, mutant: Mutant, in_function: bool) -> list[str]:
        """Return passing tests that reach a mutant, or its file: the quickest first."""
        lines, seconds = self._reached.lines.get(mutant.file, {}), self._reached.seconds
        reaching = [str(line) for line in mutant.lines] if in_function else list(lines)
        names = {name for line in reaching for name in lines.get(line, ())} & seconds.keys()
        chosen: list[str] = []
        sum_s = 0.0
        for name in sorted(
            names.difference(self._reached.failed), key=lambda name: (seconds[name], name)
        ):
            sum_s += seconds[name]
            if sum_s > self._most_s and chosen:
                break
            chosen.append(name)
        return chosen

    def _in_fork(
        self,
        targets: Sequence[tuple[FunctionType, CodeType]],
        items: Sequence[pytest.Item],
        limit_s: float,
    ) -> str:
        child = os.fork()
        if not child:
            code = 1
            try:
                os.setsid()
                for stream in (1, 2):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
                for function, new in targets:
                    function.__code__ = new
                for item, following in zip(items, [*items[1:], None], strict=True):
                    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                    if self._failed:
                        break
                code = int(self._failed)
            finally:
                os._exit(code)
        return _end_of(child, limit_s)

    def _in_new_process(self, items: Sequence[pytest.Item], limit_s: float) -> str:
        names = [item.nodeid for item in items]
        command = [sys.executable, "-m", "pytest", *QUIET, *names]
        process = subprocess.Popen(
            command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        return _end_of(process.pid, limit_s)


def _changed_functions(path: Path, before: bytes, after: bytes) -> list[tuple[CodeType, CodeType]]:
    """Return the outermost functions that differ; none if the body of a module or class does."""
    changed: list[tuple[CodeType, CodeType]] = []
    bodies = [[compile(one, path, "exec", dont_inherit=True) for one in (before, after)]]
    while bodies:
        old, new = bodies.pop()
        inner = [
            [one for one in body.co_consts if isinstance(one, CodeType)] for body in (old, new)
        ]
        if _statements(old) != _statements(new) or len(inner[0]) != len(inner[1]):
            return []
        for a, b in zip(*inner, strict=True):
            if a != b and a.co_flags & CO_NEWLOCALS:  # not the body of a class
                changed.append((a, b))
            elif a != b:
                bodies.append([a, b])
    return changed


def _statements(body: CodeType) -> tuple[Any, ...]:
    """Return the code, names and constants of a body, without its functions."""
    values = [repr(one) for one in body.co_consts if not isinstance(one, CodeType)]
    return body.co_code, body.co_names, values


def _end_of(child: int, limit_s: float) -> str:
    """Wait for a process that runs tests, and end its children."""
    ends = time.monotonic() + limit_s
    done = status = 0
    while not done and time.monotonic() < ends:
        done, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0 if done else 0.005)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not done:
        os.waitpid(child, 0)
        return "too slow"
    return "killed" if status else "survived"


def _copy_of_tree(copy: Path) -> None:
    """Write a copy of the files that git knows."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="+", help="files or folders, from the top of the tree")
    parser.add_argument("--tests", nargs="+", default=["tests"])
    parser.add_argument("--number", type=int, help="draw so many mutants; all otherwise")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--most-s", type=float, default=10.0, help="seconds of tests for a mutant")
    parser.add_argument("--out", type=Path, default=Path("mutants.jsonl"))
    options = parser.parse_args()
    out: Path = options.out.resolve()
    reached = out.with_suffix(".reached")
    written = out.read_text().splitlines() if out.exists() else []
    done = {json.loads(line)["name"] for line in written}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder).resolve() / "tree"
        _copy_of_tree(copy)
        os.chdir(copy)
        sys.path[0] = str(copy)
        sys.dont_write_bytecode = True  # compiled code of one mutant is not for another
        # Commands that tests start must run the copy, wherever fedmx is installed from.
        paths = [str(copy), *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": os.pathsep.join(paths)}
        mutants = mutants_in(copy, options.parts)
        if options.number is not None:
            number = min(options.number, len(mutants))
            mutants = random.Random(options.seed).sample(mutants, number)
        if not reached.exists() and not os.fork():
            words = [*QUIET[1:], *options.tests]
            os._exit(pytest.main(words, plugins=[Recorder(copy, reached)]) > 1)
        elif not reached.exists():
            os.wait()
            if not reached.exists():
                sys.exit("the tests under coverage ended early: nothing was measured; name fewer")
        left = [mutant for mutant in mutants if mutant.name not in done]
        found = Reached(**json.loads(reached.read_text()))
        plugin = Mutation(copy, left, found, options.most_s, out)
        pytest.main([*QUIET, "-s", *options.tests], plugins=[plugin])
    lines = out.read_text().splitlines() if out.exists() else []
    statuses = [json.loads(line)["status"] for line in lines]
    print(dict(Counter(statuses)))


def mutants_in(root: Path, parts: Sequence[str]) -> list[Mutant]:
    """Return all mutants of these files and folders."""
    files = sorted(
        path
        for part in parts
        for path in ([root / part] if part.endswith(".py") else (root / part).rglob("*.py"))
    )
    return [
        mutant
        for path in files
        for mutant in mutants_of(path.relative_to(root).as_posix(), path.read_bytes())
    ]


if __name__ == "__main__":
    main()
