"""A run becomes one file that proves itself: what is in it, and what is not."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedmx import Experiment
from fedmx.errors import ExperimentError, FedmxError
from fedmx.history import PackError, PackFile, pack
from fedmx.history.packing import own_modules
from fedmx.report import write_report
from fedmx.run import RunFolder
from tests.fedmx.command_line import fedmx
from tests.fedmx.pack.packed_runs import run
from tests.fedmx.recorded_runs import TREE


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run whose hook is imported here; what is imported is forgotten afterwards."""
    path = list(sys.path)
    yield run(tmp_path_factory.mktemp("run"), '["mine:Mine"]')
    sys.path[:] = path
    for name in ("mine", "shared_by_mine"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def file(folder: Path) -> Path:
    path = folder.parent.parent / "x.fedmx"
    pack(folder, path, modules=["mine"])
    return path


def test_the_same_run_gives_the_same_bytes(folder: Path, file: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(folder, tmp_path / folder.name)
    for path in moved.iterdir():
        path.touch()
    made = pack(moved, tmp_path / "y.fedmx", modules=["mine"])
    assert (tmp_path / "y.fedmx").read_bytes() == file.read_bytes()
    assert made == PackFile.read(file)


def test_a_pack_holds_records_model_and_modules_as_they_are(folder: Path, file: Path) -> None:
    members = PackFile.read(file).members
    for name in ("experiment.yaml", "rounds.jsonl", "clients.jsonl", "model.safetensors"):
        assert members[name] == (folder / name).read_bytes(), name
    own = folder.parent.parent
    assert {name for name in members if name.startswith("modules/")} == {
        "modules/mine.py",
        "modules/shared_by_mine.py",
    }
    assert members["modules/mine.py"] == (own / "mine.py").read_bytes()


def test_a_pack_knows_the_data_by_checksum_and_holds_no_sample(file: Path) -> None:
    data = PackFile.read(file).manifest.data
    assert (data.name, data.test, sum(data.sizes)) == ("digits", 355, 1442)  # type: ignore[arg-type]
    # 1,442 images of 784 bytes would be 1.1 MB; the model alone is 31 kB.
    assert file.stat().st_size < 60_000


def test_a_pack_does_not_say_where_the_run_was(folder: Path, file: Path) -> None:
    assert str(folder.parent.parent).encode() not in file.read_bytes()


def test_an_unpacked_pack_is_a_run_folder(file: Path, folder: Path, tmp_path: Path) -> None:
    done = fedmx("unpack", file, "opened", cwd=tmp_path)
    assert (done.code, done.out) == (0, "run folder: opened\n"), done.err
    assert [path.name for path in tmp_path.iterdir()] == ["opened"]
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))
    opened, original = RunFolder.open(tmp_path / "opened"), RunFolder.open(folder)
    assert opened.rounds() == original.rounds()
    assert list(opened.clients()) == list(original.clients())
    assert (opened.status, opened.damage) == ("done", ())
    assert opened.modules_path == tmp_path / "opened" / "modules"
    opened.check(opened.model_path)
    write_report([opened], tmp_path / "report.html")


def test_an_unpacked_run_can_be_moved(file: Path, tmp_path: Path) -> None:
    PackFile.read(file).unpack(tmp_path / "opened")
    (tmp_path / "opened").rename(tmp_path / "moved")
    done = fedmx("replay", "moved", "--own-modules", cwd=tmp_path)
    assert (done.code, done.out.splitlines()[-1][:1]) == (0, "3"), done.err
    assert "replayed to the recorded bits" in done.out


def test_the_command_packs_with_permission_only(folder: Path, file: Path, tmp_path: Path) -> None:
    own = folder.parent.parent
    refused = fedmx("pack", folder, "-o", "z.fedmx", cwd=tmp_path).error_text
    assert refused.endswith("if you trust it, allow it: --own-modules"), refused
    with pytest.raises(ExperimentError, match="not allowed"):
        pack(folder, tmp_path / "z.fedmx").manifest  # noqa: B018
    done = fedmx("pack", folder, "-o", "z.fedmx", "--own-modules", "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    assert json.loads(done.out) == {
        "pack": "z.fedmx",
        "bytes": file.stat().st_size,
        "sha256": PackFile.read(file).sha256,
    }
    assert (tmp_path / "z.fedmx").read_bytes() == (own / "x.fedmx").read_bytes()


def test_a_run_that_is_not_done_or_is_damaged_is_not_packed(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "a copy")
    (copy / "status.json").unlink()
    with pytest.raises(PackError, match=r"the run is not done .*; go on with it: fedmx resume '/"):
        pack(copy, tmp_path / "z.fedmx", modules=["mine"])
    under_way = RunFolder.open(copy)
    with (
        under_way.lock(),
        pytest.raises(PackError, match=r"not done \(running\); wait until it ends$"),
    ):
        pack(under_way, tmp_path / "z.fedmx", modules=["mine"])
    copy = shutil.copytree(folder, tmp_path / "copy2")
    lines = (copy / "clients.jsonl").read_bytes().replace(b'"steps": ', b'"steps": 1', 1)
    (copy / "clients.jsonl").write_bytes(lines)
    with pytest.raises(PackError, match=r"records are damaged: .*clients.jsonl:1"):
        pack(copy, tmp_path / "z.fedmx", modules=["mine"])
    assert not (tmp_path / "z.fedmx").exists()


def test_a_deployed_run_with_privacy_is_not_packed(tmp_path: Path) -> None:
    logic = {"selector": {"name": "poisson", "probability": 0.5}, "min_updates": 0}
    logic |= {"aggregator": {"name": "mean", "weights": "uniform"}}
    privacy = {"name": "central", "clip": 0.5, "delta": 0.01, "noise": 1.1}
    given = Experiment(**{**TREE, "logic": logic, "privacy": privacy})
    facts = {"mode": "server", "digest": given.digest()}
    private = RunFolder.create(tmp_path, "private", given.to_yaml(), facts)
    private.finish("done")
    with pytest.raises(PackError, match=r"privacy .*fedmx export"):
        pack(private, tmp_path / "z.fedmx")
    assert not (tmp_path / "z.fedmx").exists()


def test_a_file_that_cannot_be_read_or_written_is_named(
    folder: Path, file: Path, tmp_path: Path
) -> None:
    below = tmp_path / "text" / "z.fedmx"
    below.parent.write_text("mine")
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "model.safetensors").unlink()
    (copy / "model.safetensors").mkdir()
    for path, problem, attempt in (
        (below, "write", lambda: pack(folder, below, modules=["mine"])),
        (below, "write", lambda: PackFile.read(file).unpack(below)),
        (
            copy / "model.safetensors",
            "read",
            lambda: pack(copy, tmp_path / "z.fedmx", modules=["mine"]),
        ),
    ):
        with pytest.raises(PackError) as caught:
            attempt()
        assert str(caught.value).startswith(f"{path}: cannot {problem} it")
    assert {path.name for path in tmp_path.iterdir()} == {"text", "copy"}


def experiment_file(folder: Path, hooks: str) -> Path:
    file = folder / "e.yaml"
    file.write_text(
        f"rounds: 1\nclients: 2\ncompute: {{model: 2nn, data: digits}}\nlogic: {{hooks: {hooks}}}\n"
    )
    return file


def test_packages_modules_and_their_imports_are_found_without_running_them(tmp_path: Path) -> None:
    package = tmp_path / "ideas"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("import beside_it\nfrom . import inner\n")
    (package / "inner" / "__init__.py").write_text("import os, numpy, not_here_at_all\n")
    (package / "inner" / "deep.py").write_text("def f():\n    from beside_two.x import y\n")
    (package / "a-script.py").write_text("raise SystemExit\n")
    (package / "data.csv").write_text("1,2\n")
    (tmp_path / "beside_it.py").write_text("import ideas\nraise RuntimeError\n")
    (tmp_path / "beside_two").mkdir()
    (tmp_path / "beside_two" / "x.py").write_text("y = 1\n")
    hooks = "['ideas.inner.deep:Hook', 'hypothesis.core:given', 'stc']"
    found = own_modules(experiment_file(tmp_path, hooks), tmp_path)
    assert set(found.files) == {
        *("modules/ideas/__init__.py", "modules/ideas/inner/__init__.py"),
        *("modules/ideas/inner/deep.py", "modules/beside_it.py", "modules/beside_two/x.py"),
    }
    assert list(found.packages) == ["hypothesis"]
    assert found.packages["hypothesis"].startswith("hypothesis 6")


@pytest.mark.parametrize(
    ("module", "named"),
    [
        ("gone_from_here", "gone_from_here:Hook: there is no module gone_from_here"),
        ("with_null", r"/with_null\.py.*: it is not Python \(.*null"),
    ],
)
def test_a_module_that_is_gone_or_wrong_is_named(tmp_path: Path, module: str, named: str) -> None:
    (tmp_path / "with_null.py").write_bytes(b"x = 1\n\0")
    with pytest.raises(PackError, match=named):
        own_modules(experiment_file(tmp_path, f"['{module}:Hook']"), tmp_path)


@pytest.mark.parametrize("name", ["mine.yaml", "mine.fedmx"])
def test_a_pack_replaces_no_file_that_fedmx_did_not_write(tmp_path: Path, name: str) -> None:
    mine = tmp_path / name
    mine.write_text("rounds: 3\n")
    with pytest.raises(FedmxError, match=rf"{name}: (a pack is a .fedmx file|fedmx did not write)"):
        pack(tmp_path, mine)
    assert mine.read_text() == "rounds: 3\n"
