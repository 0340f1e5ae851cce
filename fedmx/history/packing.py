"""Packing: a run folder becomes one file, once its records fit together."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.metadata
import os
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from fedmx.assembly.assembly import Assembly
from fedmx.assembly.data import data_sha256, partition_sha256
from fedmx.components.user_code import NamedCode, is_installed, named_code, owner_of
from fedmx.experiment import Experiment
from fedmx.history.pack import (
    FEDMX,
    MODULES,
    RUN_FILES,
    Data,
    Manifest,
    PackError,
    PackFile,
    check_root,
    fork_round,
    is_name,
    of_any_machine,
    packed,
    roots_of,
)
from fedmx.history.recorded import RecordedRun
from fedmx.history.records import CheckedRecords
from fedmx.journal.chain import CHAIN, model_hash
from fedmx.output_file import check_output
from fedmx.privacy.published import is_confidential
from fedmx.run import CheckpointError, RunError, RunFolder
from fedmx.run.checkpoint import read_checkpoint
from fedmx.run.durable import document_text, write_bytes_durably
from fedmx.run.identity import FORMAT, Identity
from fedmx.shell_line import shell_line
from layers.compute.data.datasets import Dataset, Files
from layers.compute.data.partitions.partition import GroupedRows


def pack(
    run: str | os.PathLike[str] | RunFolder,
    path: str | os.PathLike[str],
    *,
    modules: Collection[str] | None = (),
    files: Files | None = None,
) -> PackFile:
    """Write a run that is done into one file, which `verify` can run again.

    It holds the experiment, the user's own modules as text, the records with their hashes, the
    final model, and versions and machine. Of the data it holds the name, the sizes and checksums,
    and no sample. The same run gives the same bytes.

    Args:
        run: the run folder.
        path: the file to write; its name ends in ``.fedmx``.
        modules: the modules whose code the experiment may name, as the data are loaded for their
            checksum, and the model is built; None: all.
        files: where data sets are; None: where the environment says.

    Returns:
        The pack, as it was written.

    Raises:
        FedmxError: the file's name ends otherwise, or fedmx did not write the file that is there.
        PackError: the run is not done, is damaged or has no hashes; or the file cannot be written.
        RunError: it is not a run folder, or its data differ on this machine.
        ExperimentError: the experiment names code that is not allowed.
        DataError: its data are not here.
    """
    check_output(Path(path), "a pack is a .fedmx file", (".fedmx",))
    recorded = RecordedRun.open(
        run if isinstance(run, RunFolder) else Path(run), modules=modules, files=files
    )
    folder = recorded.folder
    status = folder.status
    if status != "done":
        resume = shell_line("fedmx", "resume", folder.path)
        advice = "wait until it ends" if status == "running" else f"go on with it: {resume}"
        raise PackError(f"{folder.path}: the run is not done ({status}); {advice}")
    if is_confidential(recorded.experiment, recorded.deployed):
        raise PackError(
            f"{folder.path}: the records name who took part in each round and have the hashes of "
            "single updates, which the privacy of the run does not cover; publish the model "
            "(fedmx export) instead"
        )
    recorded.experiment.require_portable()
    data = recorded.assembly.data
    recorded.folder.check_data(data.dataset.name, data.sha256)
    code = own_modules(folder.path / "experiment.yaml", folder.modules_path or folder.path)
    sha256 = {
        name.removeprefix(MODULES): hashlib.sha256(text).hexdigest()
        for name, text in code.files.items()
    }
    if changed := folder.other_code(sha256):
        raise PackError(
            f"{folder.path}: {', '.join(changed)}: not as when the run began, so that the pack "
            "would not end in the same bits; restore the file, or run it again"
        )
    for root in roots_of(code.files):
        check_root(root)
    members = {**_run_files(folder), **code.files}
    engine = recorded.assembly.engine
    manifest = Manifest(
        run=folder.name,
        members={},
        data=data_facts(recorded.assembly),
        weights=tuple(tensor.name for tensor in engine.layout),
        buffers=tuple(tensor.name for tensor in engine.buffers_layout),
        packages=code.packages,
    )
    content = packed(manifest, members)
    made = PackFile.of_bytes(content)
    check_records(made, recorded.records)
    try:
        write_bytes_durably(Path(path), content)
    except OSError as error:
        raise PackError(f"{path}: cannot write it ({error.strerror})") from None
    return made


def _run_files(folder: RunFolder) -> dict[str, bytes]:
    """Return the files of a run folder that go into a pack, by name.

    Raises:
        PackError: one of them cannot be read.
    """
    members = {}
    begin = folder.forked_after
    first = [f"checkpoints/{folder.checkpoint_path(begin).name}"] if begin else []
    for name in (*RUN_FILES, *first):
        path = folder.path / name
        if path.exists():
            try:
                members[name] = path.read_bytes()
            except OSError as error:
                raise PackError(f"{path}: cannot read it ({error.strerror})") from None
    identity = Identity.read(folder.path)
    facts = of_any_machine(identity.facts)
    document = {"format": FORMAT, "facts": facts, "files": dict(identity.files)}
    members["run.json"] = document_text(document, "run.json").encode()
    return members


@dataclass
class OwnModules:
    """What an experiment names that is not fedmx's.

    Attributes:
        files: the content of each module, by the name of its member in a pack.
        packages: name and version of the installed package that each other module is from.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)


def own_modules(experiment: Path, folder: Path) -> OwnModules:
    """Return the modules that an experiment names, and those of the user's own that they import.

    A module that Python or an installed package provides is named with its version only. What a
    module imports is read from its ``import`` statements.

    Args:
        experiment: the experiment file.
        folder: where its own modules are.

    Raises:
        PackError: a module is not there, or cannot be in a pack.
    """
    found = OwnModules()
    for code in named_code(Experiment.read(experiment, folder=folder).components):
        _add(found, code.root, folder, code)
    return found


def _add(found: OwnModules, root: str, folder: Path, code: NamedCode | None = None) -> None:
    """Add a module or package and the user's modules that it imports; `code` names it."""
    if root in FEDMX or root in sys.stdlib_module_names or root in found.packages:
        return
    _, file = owner_of(root, folder)
    if file is None:
        if code is None:
            return  # an optional import of a module that is not here
        raise PackError(f"{code.name}: there is no module {root} in {folder}; restore it")
    if is_installed(file):
        if code is not None:
            found.packages[root] = _version(root)
        return
    place = file.parent if file.name == "__init__.py" else file
    if f"{MODULES}{root}.py" in found.files or f"{MODULES}{root}/" in _folders(found.files):
        return
    paths = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    texts: dict[Path, bytes] = {}
    for path in paths:
        inside = path.relative_to(place.parent).as_posix()
        if not is_name(f"{MODULES}{inside}"):
            if all(part.removesuffix(".py").isidentifier() for part in inside.split("/")):
                raise PackError(f"{path}: a pack holds modules of plain ASCII names; rename it")
            continue  # a script: no name of it could be imported
        texts[path] = found.files[f"{MODULES}{inside}"] = path.read_bytes()
    for path, text in texts.items():
        for imported in _imports(text, path):
            _add(found, imported, folder)


def _folders(names: dict[str, bytes]) -> set[str]:
    return {"/".join(name.split("/")[:2]) + "/" for name in names if name.count("/") > 1}


def _imports(text: bytes, path: Path) -> Iterator[str]:
    """Yield the first name of each absolute import in a module's text."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise PackError(f"{path}:{error.lineno}: it is not Python ({error.msg})") from None
    except ValueError as error:  # a null byte, before Python 3.12
        raise PackError(f"{path}: it is not Python ({error})") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]


def _version(root: str) -> str:
    """Return the name and version of the installed package that a module is from."""
    # Python 3.10 knows the modules of those packages alone that list them.
    for name in importlib.metadata.packages_distributions().get(root, [root]):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return f"{name} {importlib.metadata.version(name)}"
    return f"{root} of an unknown version"


def data_facts(assembly: Assembly) -> Data:
    """Return the facts that identify the data of an experiment.

    Raises:
        DataError: the data are not at hand, or are wrong.
    """
    dataset = assembly.data.dataset
    partition = None
    if isinstance(dataset, Dataset):
        partition = partition_sha256(GroupedRows.joined(assembly.parts[0]))
        sizes: tuple[int, ...] | int = tuple(len(one) for one in assembly.parts[0])
    else:
        each = dataset.sizes
        sizes = each if isinstance(each, int) else tuple(each.tolist())
    return Data(
        name=dataset.name,
        sha256=data_sha256(dataset),
        partition_sha256=partition,
        sizes=sizes,
        test=len(dataset.test),
    )


MODEL = "model.safetensors"


@dataclass(frozen=True)
class Recorded:
    """What the records of a run say.

    Attributes:
        rounds: how many rounds there are.
        chain: the last link of the chain.
        model_sha256: of the model after the last round.
    """

    rounds: int
    chain: str
    model_sha256: str


def check_records(pack: PackFile, records: CheckedRecords) -> Recorded:
    """Check that the records in a pack fit together, and that its model is the last round's.

    Args:
        pack: the pack.
        records: those of the run folder that was packed, or that the pack was unpacked to.

    Raises:
        PackError: they do not.
    """
    try:
        return _checked(pack, records)
    except RunError as error:
        raise PackError(str(error)) from None
    except PackError as error:
        raise PackError(str(records.error(str(error)))) from None


def _checked(pack: PackFile, records: CheckedRecords) -> Recorded:
    folder, last = records.folder, records.last
    if folder.status != "done":
        raise PackError(f"its run is not done ({folder.status})")
    forked_after = fork_round(folder.facts)
    if not isinstance(folder.facts.get("builds"), dict):
        raise PackError("its run.json does not say which builds of libraries it ran on")
    records.check_chain(last)
    if not last:
        raise PackError("its run has no rounds")
    if forked_after:
        _check_begin(folder, forked_after, records)
    end = records.rounds[last]
    if _model_in(pack) != end["model_sha256"]:
        raise PackError(f"{MODEL} is not the model after round {last}")
    return Recorded(last, end[CHAIN], end["model_sha256"])


def _check_begin(folder: RunFolder, round: int, records: CheckedRecords) -> None:
    """Check that a fork begins with the recorded model.

    Raises:
        PackError: it has no checkpoint of the model after this round.
    """
    try:
        server = read_checkpoint(folder.checkpoint_path(round)).state["server"]
        found = model_hash(server["weights"], server["buffers"])
        recorded = records.rounds[round]["model_sha256"] if round < records.last else None
    except (CheckpointError, LookupError, TypeError, ValueError, AttributeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise PackError(f"its fork has no checkpoint of round {round} ({reason})") from None
    if found != recorded:
        raise PackError(f"its fork does not begin with the model after round {round}")


def _model_in(pack: PackFile) -> str:
    """Return the hash of the model in a pack.

    Raises:
        PackError: it has none, or not the tensors that its manifest names.
    """
    try:
        tensors = load(pack.members.get(MODEL, b""))
    except (SafetensorError, LookupError, TypeError, ValueError) as error:
        raise PackError(f"{MODEL} cannot be read ({' '.join(str(error).split())})") from None
    names = (*pack.manifest.weights, *pack.manifest.buffers)
    if len(set(names)) != len(names) or set(names) != set(tensors):
        raise PackError(f"{MODEL} does not have the tensors that the manifest names")
    if any(tensor.dtype != np.float32 for tensor in tensors.values()):
        raise PackError(f"{MODEL} has a tensor that is not float32")
    weights, buffers = (
        np.concatenate([np.zeros(0, np.float32), *(tensors[name].reshape(-1) for name in part)])
        for part in (pack.manifest.weights, pack.manifest.buffers)
    )
    return model_hash(weights, buffers)
