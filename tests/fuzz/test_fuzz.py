"""Reading untrusted bytes has no side effects.

These tests run the corpus and a fixed number of mutations; `make fuzz` searches further.
"""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import tracemalloc
import zlib
from pathlib import Path

import pytest

from tests.fuzz.corpus import FOLDER, VALID, inputs, write_valid
from tests.fuzz.mutations import mutations
from tests.fuzz.target import watched
from tests.fuzz.targets import TARGETS

MUTATIONS = 400
CORPUS_BYTES = 300_000


@pytest.mark.parametrize("name", TARGETS)
def test_every_valid_sample_is_accepted(name: str) -> None:
    target = TARGETS[name]
    samples = {file: data for file, data in inputs(name).items() if file.startswith(VALID)}
    assert samples
    for file, data in samples.items():
        assert target.accepts(data), file


@pytest.mark.parametrize("name", TARGETS)
def test_findings_stay_fixed(name: str) -> None:
    for data in inputs(name).values():
        TARGETS[name].accepts(data)


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_input_gives_only_documented_errors(name: str) -> None:
    target, corpus = TARGETS[name], list(inputs(name).values())
    refused = 0
    for data in mutations(corpus, MUTATIONS, zlib.crc32(name.encode())):
        refused += not target.accepts(data)
    assert refused > 0, "no mutation was refused: the target reads nothing"


@pytest.mark.parametrize("name", TARGETS)
def test_memory_is_bounded_by_the_input_size(name: str) -> None:
    target, corpus = TARGETS[name], list(inputs(name).values())
    target.accepts(corpus[0])
    tracemalloc.start()
    try:
        for data in mutations(corpus, MUTATIONS // 8, 1):
            tracemalloc.reset_peak()
            held = tracemalloc.get_traced_memory()[0]
            target.accepts(data)
            peak = tracemalloc.get_traced_memory()[1] - held
            assert peak < target.max_bytes + 64 * len(data), data
    finally:
        tracemalloc.stop()


def test_every_target_has_a_small_corpus() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(TARGETS)
    assert sum(path.stat().st_size for path in FOLDER.rglob("*")) < CORPUS_BYTES


def test_the_valid_samples_are_current(tmp_path: Path) -> None:
    write_valid(tmp_path)
    written = {path.relative_to(tmp_path): path for path in tmp_path.rglob(f"{VALID}*")}
    kept = {path.relative_to(FOLDER): path for path in FOLDER.rglob(f"{VALID}*")}
    assert written.keys() == kept.keys()
    for name, path in written.items():
        if name.parts[0] != "checkpoint":  # its library may choose another layout
            assert path.read_bytes() == kept[name].read_bytes(), name


def test_the_audit_hook_sees_files_processes_imports_sockets_and_code(tmp_path: Path) -> None:
    (tmp_path / "seldom_imported.py").write_text("")
    with pytest.MonkeyPatch.context() as patch, watched() as events:
        patch.syspath_prepend(tmp_path)
        __import__("seldom_imported")
        (tmp_path / "file").write_text("x")
        subprocess.run(["true"], check=True)
        exec(compile("1", "text", "exec"))  # noqa: S102
        pickle.loads(pickle.dumps(os.getpid))  # noqa: S301
        socket.socket().close()
    seen = {event for event, _ in events}
    assert {"import", "open", "subprocess.Popen", "compile", "exec"} <= seen
    assert {"pickle.find_class", "socket.__new__"} <= seen
