"""The file of a pack: one changed byte is found, and nothing is hidden in it."""

from __future__ import annotations

import io
import json
import zipfile
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmx.history.pack import (
    MANIFEST,
    MOST_MEMBERS,
    Data,
    Manifest,
    PackError,
    PackFile,
    members_of,
    packed,
    sha256,
    to_bytes,
)

MEMBERS = {
    "run.json": b'{"format": 4, "facts": {}}',
    "experiment.yaml": b"rounds: 1\n",
    "status.json": b"{}",
    "rounds.jsonl": b'{"round": 1}\n',
    "clients.jsonl": b'{"round": 1, "client": 0}\n',
    "model.safetensors": bytes(range(64)),
    "modules/mine.py": b"class Mine: ...\n",
    "modules/more/__init__.py": b"",
}


def small(**more: bytes) -> bytes:
    data = Data(name="d", sha256="0" * 64, partition_sha256=None, sizes=(1, 2), test=3)
    manifest = Manifest(run="small", members={}, data=data, weights=("w",), buffers=(), packages={})
    return packed(manifest, {**MEMBERS, **more})


CONTENT = small()


def test_what_is_packed_is_read_again_in_the_same_bytes() -> None:
    pack = PackFile.of_bytes(CONTENT)
    assert pack.members == MEMBERS
    assert pack.modules == {"mine.py": "class Mine: ...\n", "more/__init__.py": ""}
    assert pack.sha256 == sha256(CONTENT)
    assert packed(pack.manifest, dict(reversed(pack.members.items()))) == CONTENT


def test_the_same_members_are_the_same_bytes_on_every_machine() -> None:
    assert sha256(CONTENT) == "bf68ec058c65c865a7b780f81101daa91315e956bbdb79d04ae81cf40a2f9015"


def test_any_zip_program_opens_a_pack() -> None:
    with zipfile.ZipFile(io.BytesIO(CONTENT)) as archive:
        assert archive.testzip() is None
        assert {n: archive.read(n) for n in archive.namelist() if n != MANIFEST} == (MEMBERS)


def test_every_single_changed_byte_is_found() -> None:
    for place in range(len(CONTENT)):
        for flipped in (0x01, 0x80):
            changed = bytearray(CONTENT)
            changed[place] ^= flipped
            with pytest.raises(PackError):
                PackFile.of_bytes(bytes(changed))


@given(st.integers(0, len(CONTENT)), st.binary(max_size=8), st.integers(0, 8))
def test_bytes_put_in_or_left_out_anywhere_are_found(place: int, put_in: bytes, taken: int) -> None:
    changed = CONTENT[:place] + put_in + CONTENT[place + taken :]
    if changed != CONTENT:
        with pytest.raises(PackError):
            PackFile.of_bytes(changed)


def resealed(members: dict[str, bytes], **how: object) -> bytes:
    """A ZIP with any names, whose seal and table are right."""
    table = {n: {"bytes": len(one), "sha256": sha256(one)} for n, one in members.items()}
    manifest = json.loads(PackFile.of_bytes(CONTENT).manifest.to_bytes())
    text = json.dumps({**manifest, "members": table}).encode()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", **how) as archive:  # type: ignore[call-overload]
        for name, content in {MANIFEST: text, **members}.items():
            archive.writestr(zipfile.ZipInfo(name), content, archive.compression)
        archive.comment = b"fedmx pack " + sha256(text).encode()
    return file.getvalue()


@pytest.mark.parametrize(
    "name",
    [
        *("../outside.py", "/etc/passwd", "modules/../../outside.py", "modules/.hidden.py"),
        *("modules/a/../b.py", "modules\\a.py", "modules/a.so", "modules/a.pth"),
        *("modules/" + "a/" * 30 + "a.py", "modules/" + "a" * 190 + ".py", "modules/ü.py"),
        *("checkpoints/round-000001.txt", "lock", "RUN.JSON", ""),
    ],
)
def test_no_other_name_is_in_a_pack(name: str, tmp_path: Path) -> None:
    with pytest.raises(PackError, match=r"not a pack: it has the member|damaged|no name"):
        PackFile.of_bytes(resealed({**MEMBERS, name: b"x"}))
    with pytest.raises(PackError, match="no name of a pack's member"):
        small(**{name: b"x"})


def test_a_module_in_the_place_of_one_of_pythons_or_fedmxs_is_refused() -> None:
    for name in ("modules/json.py", "modules/fedmx/__init__.py", "modules/layers/errors.py"):
        with pytest.raises(PackError, match="has the name of one of Python's or fedmx's"):
            PackFile.of_bytes(small(**{name: b""}))


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    bomb = resealed({**MEMBERS, "course.jsonl": bytes(50 << 20)}, compression=zipfile.ZIP_DEFLATED)
    assert len(bomb) < 1 << 20
    with pytest.raises(PackError, match="not stored as it is"):
        PackFile.of_bytes(bomb)
    many = {f"modules/m{number}.py": b"" for number in range(MOST_MEMBERS)}
    with pytest.raises(PackError, match="it has 1009 members; a pack has at most 1000"):
        PackFile.of_bytes(resealed({**MEMBERS, **many}))
    with pytest.raises(PackError, match="it has 1009 members; a pack has at most 1000"):
        small(**many)


def test_two_members_of_one_name_are_refused() -> None:
    file = io.BytesIO(CONTENT)
    with zipfile.ZipFile(file, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("rounds.jsonl", b"another")
    with pytest.raises(PackError, match=r"it has the member 'rounds.jsonl'"):
        PackFile.of_bytes(file.getvalue())


def test_what_is_hidden_between_the_members_is_found() -> None:
    file = io.BytesIO(CONTENT)
    with zipfile.ZipFile(file, "a") as archive:  # the directory moves behind what is put in
        archive.fp.seek(archive.start_dir)  # type: ignore[union-attr]
        archive.fp.write(b"hidden")  # type: ignore[union-attr]
        archive.start_dir += 6
        archive._didModify = True
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
    with pytest.raises(PackError, match="more in the file than its members"):
        PackFile.of_bytes(file.getvalue())


def with_members(changed: dict[str, bytes | None]) -> bytes:
    members = members_of(CONTENT) | changed
    return to_bytes({name: one for name, one in members.items() if one is not None})


def with_manifest(**changed: object) -> bytes:
    manifest = json.loads(members_of(CONTENT)[MANIFEST]) | changed
    kept = {key: one for key, one in manifest.items() if one != ...}
    return with_members({MANIFEST: json.dumps(kept).encode()})


def sealed_as(seal: bytes, **left_out: object) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members_of(CONTENT).items():
            if name not in left_out:
                archive.writestr(zipfile.ZipInfo(name), content)
        archive.comment = seal
    return file.getvalue()


DATA = {"name": "d", "sha256": "0" * 64, "partition_sha256": None, "sizes": [1, 2], "test": 3}


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (CONTENT + b"x", "more in the file"),
        (CONTENT.replace(b'"round"', b'"rounD"', 1), "rounds.jsonl"),
        (sealed_as(b""), "seal"),
        (sealed_as(b"fedmx pack " + b"0" * 64), "seal"),
        (sealed_as(b"fedmx pack " + b"0" * 64, **{MANIFEST: 1}), "no manifest"),
        (with_members({"status.json": None}), "status.json"),
        (with_members({"status.json": b"{ }"}), "status.json"),
        (with_members({"words.json": b"[]"}), "words.json is not in its manifest"),
        (with_members({MANIFEST: b"text"}), "manifest"),
        (with_manifest(format=2, new=1), "format 2"),
        (with_manifest(run=...), "run"),
        (with_manifest(more=1), "more"),
        (with_manifest(data={**DATA, "test": -1}), "data.test"),
        (with_manifest(data={**DATA, "sha256": "0" * 63}), "data.sha256"),
    ],
)
def test_what_is_damaged_is_named(content: bytes, named: str) -> None:
    with pytest.raises(PackError) as caught:
        PackFile.of_bytes(content)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"PK", b"x" * 1000, b"[]", CONTENT[:-1]])
def test_another_file_is_no_pack(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.fedmx"
    path.write_bytes(content)
    with pytest.raises(PackError, match=r"x\.fedmx: (not a pack|damaged)"):
        PackFile.read(path)
    with pytest.raises(PackError, match="cannot read it"):
        PackFile.read(tmp_path / "nothing.fedmx")


def test_a_file_beyond_the_size_of_any_pack_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("fedmx.history.pack"), "MOST_BYTES", 1000)
    path = tmp_path / "x.fedmx"
    path.write_bytes(b"x" * 2001)
    with pytest.raises(PackError, match=r"x\.fedmx: .* 2001 bytes"):
        PackFile.read(path)


def test_unpacking_leaves_nothing_if_it_is_no_run_folder(tmp_path: Path) -> None:
    with pytest.raises(PackError, match=r"^the pack holds no run: run\.json: damaged"):
        PackFile.of_bytes(CONTENT).unpack(tmp_path / "folder")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "there").mkdir()
    with pytest.raises(PackError, match="it exists"):
        PackFile.of_bytes(CONTENT).unpack(tmp_path / "there")
