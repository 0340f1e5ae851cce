"""Packing: a run folder becomes one file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection
from pathlib import Path

from fedmx.output_file import check_output
from fedmx.pack.container import MODULES, RUN_FILES
from fedmx.pack.data_facts import data_facts
from fedmx.pack.errors import PackError
from fedmx.pack.manifest import Manifest
from fedmx.pack.own_modules import check_root, own_modules, roots_of
from fedmx.pack.pack_file import PackFile, of_any_machine, packed
from fedmx.pack.records import check_records
from fedmx.replay import RecordedRun
from fedmx.run import RunFolder
from fedmx.run.durable import document_text, write_bytes_durably
from fedmx.run.identity import FORMAT, Identity
from fedmx.shell_line import shell_line
from layers.compute.data.datasets import Files


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
        RunError: it is no run folder, or its data are others here.
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
    try:
        check_records(made, folder)
    except PackError as error:
        raise PackError(f"{folder.path}: {error}") from None
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
    for name in RUN_FILES:
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
