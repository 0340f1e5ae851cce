"""A checkpoint is exact, and the last good one survives whatever happens to the next."""

from __future__ import annotations

import json
import math
import signal
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save_file

from fedmx import RunFolder
from fedmx.run import CheckpointError
from fedmx.run.checkpoint import (
    METADATA_KEY,
    Keep,
    _digest,
    decode_tree,
    encode_tree,
    read_checkpoint,
    write_checkpoint,
)
from tests.fedmx.command_line import ROOT, Started, ended, environment

DTYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", ">f4", ">i8"]

arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(np.dtype(dtype), hnp.array_shapes(min_dims=0, min_side=0, max_side=4))
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(2**5000), max_value=2**5000)
    | st.floats()
    | st.text()
)
leaves = (
    scalars
    | st.binary(max_size=40)
    | arrays
    | st.sampled_from(DTYPES[:12]).flatmap(
        lambda dtype: hnp.arrays(np.dtype(dtype), ()).map(lambda array: array[()])
    )
    | st.lists(scalars, max_size=4)
    | st.lists(scalars, max_size=4).map(tuple)
)
keys = st.text(max_size=5) | st.integers(min_value=-(2**63), max_value=2**63 - 1)
trees = st.dictionaries(
    keys,
    st.recursive(leaves, lambda inner: st.dictionaries(keys, inner, max_size=4), max_leaves=10),
    max_size=4,
)


def fingerprint(value: Any) -> Any:
    """A form of ``value`` in which two values are equal only when every type and bit is."""
    if isinstance(value, dict):
        return "dict", [(type(key), key, fingerprint(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [fingerprint(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        native = np.asarray(value, dtype=value.dtype.newbyteorder("="))
        return type(value), native.dtype, native.shape, native.tobytes()
    if isinstance(value, float):
        return float, "nan" if math.isnan(value) else struct.pack("d", value)
    return type(value), value


def state(number: int) -> dict[str, Any]:
    return {"weights": np.full(20_000, number, dtype=np.float32), "round": number}


def saved(folder: RunFolder) -> list[str]:
    return sorted(path.name for path in folder.checkpoints_path.iterdir())


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path, "digits", "name: digits\n", {})


@settings(deadline=None)
@given(tree=trees)
def test_a_state_comes_back_exactly(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[Any, Any]
) -> None:
    path = tmp_path_factory.mktemp("state") / "x.safetensors"
    write_checkpoint(path, 7, tree)
    checkpoint = read_checkpoint(path)
    assert checkpoint.round == 7
    assert fingerprint(checkpoint.state) == fingerprint(tree)


def test_arrays_in_any_memory_order_come_back_exactly(folder: RunFolder) -> None:
    grid = np.arange(24.0).reshape(4, 6)
    tree = {"transposed": grid.T, "stepped": grid[::2, ::-3], "broadcast": np.broadcast_to(1.5, 9)}
    folder.save_checkpoint(1, tree)
    checkpoint = folder.latest_checkpoint()
    assert fingerprint(checkpoint.state) == fingerprint(tree)
    checkpoint.state["broadcast"][0] = 2.0  # an owner of its memory, not a view of the file


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (object(), r"state\.hooks\.x: object"),
        ({1.5: 0}, r"key 1\.5"),
        ({True: 0}, "key True"),
        (np.array(["a"]), "dtype <U1"),
        (np.array([None]), "dtype object"),
        (np.zeros(2, dtype="c16"), "dtype complex128"),
        ("\ud800", "not valid Unicode"),
        ({1, 2}, "set cannot be kept"),
    ],
)
def test_what_cannot_be_kept_exactly_is_refused_by_its_path(
    folder: RunFolder, value: object, reason: str
) -> None:
    folder.save_checkpoint(1, state(1))
    with pytest.raises(CheckpointError, match=reason):
        folder.save_checkpoint(2, {"hooks": {"x": value}})
    assert saved(folder) == ["round-000001.safetensors"]


def test_the_newest_are_kept(folder: RunFolder) -> None:
    for number in range(1, 6):
        folder.save_checkpoint(number, state(number), keep=Keep(2))
    assert saved(folder) == ["round-000004.safetensors", "round-000005.safetensors"]
    checkpoint = folder.latest_checkpoint()
    assert (checkpoint.round, checkpoint.warnings) == (5, ())


@settings(deadline=None)
@given(data=st.data())
def test_any_flipped_or_missing_byte_is_found_out(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("damage") / "x.safetensors"
    write_checkpoint(path, 1, {"w": np.arange(20, dtype=np.float32), "n": 3})
    good = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, len(good) - 1))
    if data.draw(st.booleans()):
        good[position] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(good)
    else:
        path.write_bytes(good[:position])
    with pytest.raises(CheckpointError, match="damaged"):
        read_checkpoint(path)


def test_a_damaged_newest_checkpoint_gives_a_warning_and_the_one_before(folder: RunFolder) -> None:
    folder.save_checkpoint(1, state(1))
    newest = folder.save_checkpoint(2, state(2))
    content = bytearray(newest.read_bytes())
    content[-1] ^= 1
    newest.write_bytes(content)
    checkpoint = folder.latest_checkpoint()
    assert checkpoint.round == 1
    assert fingerprint(checkpoint.state) == fingerprint(state(1))
    assert len(checkpoint.warnings) == 1
    assert str(newest) in checkpoint.warnings[0]


def test_a_damaged_checkpoint_does_not_push_out_a_good_one(folder: RunFolder) -> None:
    folder.save_checkpoint(1, state(1))
    folder.save_checkpoint(2, state(2)).write_bytes(b"")
    folder.truncate_after(folder.latest_checkpoint().round)
    folder.save_checkpoint(3, state(3)).write_bytes(b"")
    assert folder.latest_checkpoint().round == 1


def test_no_good_checkpoint_at_all_is_an_error_not_a_fresh_start(folder: RunFolder) -> None:
    for number in (1, 2):
        folder.save_checkpoint(number, state(number)).write_bytes(b"\0" * 100)
    with pytest.raises(CheckpointError, match="no checkpoint can be used") as caught:
        folder.latest_checkpoint()
    assert "\n" not in str(caught.value)


def test_a_future_format_is_refused(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedmx.run.checkpoint.FORMAT", 99)
    path = folder.save_checkpoint(1, state(1))
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="format 99"):
        read_checkpoint(path)


def test_the_text_of_a_state_is_the_one_that_is_described() -> None:
    array = np.zeros(2, np.float32)
    cases: dict[Any, tuple[Any, str]] = {
        "none": (None, "null"),
        "yes": (True, "true"),
        "least": (-(2**63), "-9223372036854775808"),
        "less": (-(2**63) - 1, '{"int":"-0x8000000000000001"}'),
        "most": (2**63 - 1, "9223372036854775807"),
        "more": (2**63, '{"int":"0x8000000000000000"}'),
        "half": (0.5, "0.5"),
        "infinity": (math.inf, '{"float":"inf"}'),
        "less than all": (-math.inf, '{"float":"-inf"}'),
        "no number": (math.nan, '{"float":"nan"}'),
        "text": ("ä", '"\\u00e4"'),
        "lists": ([1, (2,)], '[1,{"tuple":[2]}]'),
        "array": (array, '{"array":"0"}'),
        "again": ({7: array}, '{"dict":[[7,{"array":"0"}]]}'),
        "scalar": (np.float64(0.5), '{"scalar":"1"}'),
        "bytes": (b"x", '{"bytes":"2"}'),
        "flag": (np.bool_(True), '{"scalar":"3"}'),
    }
    text, arrays = encode_tree({key: value for key, (value, _) in cases.items()})
    items = ",".join(f'["{key}",{node}]' for key, (_, node) in cases.items())
    assert text == f'{{"dict":[{items}]}}'
    dtypes = {name: one.dtype.name for name, one in arrays.items()}
    assert dtypes == {"0": "float32", "1": "float64", "2": "uint8", "3": "bool"}


@settings(deadline=None)
@given(text=st.text() | st.sampled_from(["{}", '{"array": "9"}', '{"int": "0x1", "float": "inf"}']))
def test_a_text_that_is_no_state_is_a_value_error(text: str) -> None:
    try:
        decode_tree(text, {})
    except ValueError:
        return
    assert text.strip()[0] in '"[-0123456789tfn{'


def child(code: str, folder: RunFolder) -> Started:
    preamble = """
import os, signal, sys
import numpy as np
from fedmx.run import CheckpointError, RunFolder
import fedmx.run.checkpoint, fedmx.run.durable
folder = RunFolder.open(sys.argv[1])
def state(number):
    return {"weights": np.full(20_000, number, dtype=np.float32), "round": number}
def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    return Started([str(folder.path)], ROOT, environment(), main=preamble + code)


def test_a_full_disk_costs_neither_checkpoint(folder: RunFolder) -> None:
    folder.save_checkpoint(1, state(1))
    folder.save_checkpoint(2, state(2))
    before = {path.name: path.read_bytes() for path in folder.checkpoints_path.iterdir()}
    process = child(
        """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    folder.save_checkpoint(3, state(3))
except CheckpointError as error:
    print(error)
""",
        folder,
    )
    output = ended(process).out
    assert "cannot write the checkpoint" in output
    assert "File too large" in output
    assert output.endswith("free disk space; resume the run\n")
    assert {p.name: p.read_bytes() for p in folder.checkpoints_path.iterdir()} == before


HALF = "lambda arrays, path, metadata: die(path.write_bytes(b'half a checkpoint'))"


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ("fedmx.run.checkpoint.save_file = die", 2),
        (f"fedmx.run.checkpoint.save_file = {HALF}", 2),
        ("fedmx.run.durable.os.fsync = die", 2),
        ("fedmx.run.durable.os.replace = die", 2),
        ("fedmx.run.durable.sync_folder = die", 3),
    ],
    ids=["before writing", "half written", "before it is synced", "before the rename", "after it"],
)
def test_a_process_killed_while_it_saves_costs_no_checkpoint(
    folder: RunFolder, moment: str, expected: int
) -> None:
    for number in (1, 2):
        folder.save_checkpoint(number, state(number), keep=Keep(2))
    process = child(f"{moment}\nfolder.save_checkpoint(3, state(3))\n", folder)
    assert ended(process).code == -signal.SIGKILL
    checkpoint = folder.latest_checkpoint()
    assert checkpoint.warnings == ()
    assert fingerprint(checkpoint.state) == fingerprint(state(expected))
    folder.save_checkpoint(4, state(4), keep=Keep(2))
    assert saved(folder) == [f"round-00000{expected}.safetensors", "round-000004.safetensors"]


def test_a_process_killed_at_any_moment_leaves_what_it_said_was_saved(folder: RunFolder) -> None:
    process = child(
        """
for number in range(1, 1_000_000):
    folder.save_checkpoint(number, state(number))
    print(number, flush=True)
""",
        folder,
    )
    for _ in range(5):
        process.stdout.readline()
    process.kill()
    told = [int(line) for line in ended(process).out.splitlines(keepends=True) if line[-1] == "\n"]
    checkpoint = folder.latest_checkpoint()
    assert checkpoint.round in {max(told, default=5), max(told, default=5) + 1}
    assert fingerprint(checkpoint.state) == fingerprint(state(checkpoint.round))


def test_the_same_state_gives_the_same_file(folder: RunFolder) -> None:
    first = folder.save_checkpoint(1, state(1)).read_bytes()
    assert folder.save_checkpoint(1, state(1)).read_bytes() == first
    assert METADATA_KEY.encode() in first


def test_one_and_the_same_memory_is_written_once_and_views_of_it_are_not_mixed_up() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    tree = {
        "a": array,
        "again": array,
        "view": array.view(),
        "turned": array.T,
        "part": array[:2],
        "as int": array.view(np.int32),
        "equal": array.copy(),
    }
    text, arrays = encode_tree(tree)
    assert len(arrays) == 5
    back = decode_tree(text, arrays)
    for key, value in tree.items():
        assert back[key].dtype == value.dtype
        assert np.array_equal(back[key], value)


def of_tree(tree: str) -> str:
    return json.dumps({"format": 1, "round": 2, "tree": tree})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[]", "not a checkpoint of fedmx"),
        ('{"format": 1, "round": 2}', "not a checkpoint of fedmx"),
        ('{"format": 2, "round": 2, "tree": "1"}', "has format 2, this fedmx reads up to 1"),
        ("no JSON", "cannot be read (Expecting value"),
        (of_tree('{"array": "6"}'), "not a node of a state tree: {'array': '6'}"),
        (of_tree('{"int": "0x1", "float": "inf"}'), "not a node of a state tree: {'int': '0x1'"),
        (of_tree('{"dict": [[1]]}'), "not an entry of a state tree: [1]"),
        (of_tree('{"dict": [[[], 1]]}'), "not an entry of a state tree: [[], 1]"),
        (of_tree("[" * 100_000), "nested too deeply"),
    ],
    ids=lambda text: text[:30],
)
def test_a_file_with_a_right_digest_that_is_no_checkpoint_is_refused(
    tmp_path: Path, content: str, says: str
) -> None:
    path = tmp_path / "round-000001.safetensors"
    save_file({}, path, metadata={METADATA_KEY: f"{_digest(content, {})}\n{content}"})
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert says in str(caught.value)
    for metadata in (None, {METADATA_KEY: content}, {METADATA_KEY: f"{'0' * 64}\n{content}"}):
        save_file({}, path, metadata=metadata)
        with pytest.raises(CheckpointError, match="is damaged"):
            read_checkpoint(path)
