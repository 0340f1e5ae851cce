"""``fedmx pack`` makes one file of a run, ``fedmx verify`` runs it again, ``unpack`` opens it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedmx.cli.terminal.exit_codes import NOT_RUN, OTHER_BITS
from fedmx.cli.terminal.json_lines import say
from fedmx.cli.terminal.options import ExecutorName, executor_override
from fedmx.cli.terminal.permission import Modules, OwnModules, allowed_modules
from fedmx.cli.terminal.restart import restart_on
from fedmx.shell_line import shell_line

if TYPE_CHECKING:
    from fedmx.pack import Verification

PackPath = Annotated[
    Path, typer.Argument(metavar="PACK", help="The pack, as x.fedmx.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def pack(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.")],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FILE", help="The file to write.", show_default=False),
    ],
    module: Modules = None,
    own_modules: OwnModules = False,
    as_json: AsJson = False,
) -> None:
    """Make one file of a run that is done, which anybody can verify."""
    from fedmx.experiment import Experiment
    from fedmx.run import RunFolder

    folder = RunFolder.open(path)
    place = folder.modules_path
    source = folder.path / "experiment.yaml"
    modules = allowed_modules(source, (), module, own_modules, place)
    experiment = Experiment.parse(
        folder.experiment_yaml, str(source), folder=place, modules=modules
    )
    restart_on(experiment.compute.bits)

    # Not before: this imports MXNet, and a wrong folder should be shown at once.
    from fedmx.cli.terminal.downloads import files_with_progress
    from fedmx.pack import pack as make

    with files_with_progress() as files:
        made = make(folder, out, modules=modules, files=files)
    size = out.stat().st_size
    if as_json:
        typer.echo(json.dumps({"pack": str(out), "bytes": size, "sha256": made.sha256}))
        return
    typer.echo(f"pack:    {out}, {size:,} bytes")
    typer.echo(f"sha256:  {made.sha256}")
    typer.echo(f"data:    {made.manifest.data.name}, by its SHA-256; none of its samples")
    if made.modules:
        typer.echo(f"modules: {', '.join(made.modules)}, as text")


def verify(
    path: PackPath,
    trust: Annotated[
        bool,
        typer.Option("--trust", help="Run the pack's own code, too, with all your rights."),
    ] = False,
    executor: ExecutorName = None,
    as_json: AsJson = False,
) -> None:
    """Check a pack, run it again, and compare the bits."""
    from fedmx.pack import verify as check

    def tell(round: int, rounds: int) -> None:
        say("verified", f"round {round}/{rounds}  the same bits", round=round, rounds=rounds)

    found = check(path, trust, overrides=executor_override(executor), on_round=tell)
    if as_json:
        typer.echo(json.dumps(found.record()))
    else:
        for line in lines(found):
            typer.echo(line)
    if not found.same:
        raise typer.Exit(OTHER_BITS if found.outcome == "other bits" else NOT_RUN)


def unpack(
    path: PackPath,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The new run folder.", show_default=False)
    ],
) -> None:
    """Make a run folder of a pack; none of its code runs."""
    from fedmx.pack.pack_file import PackFile

    made = PackFile.read(path).unpack(folder)
    typer.echo(f"run folder: {made.path}")


def lines(found: Verification) -> list[str]:
    """Return what was found about a pack, as text."""
    from fedmx.cli.terminal.error_text import one_line

    recorded = found.recorded
    rounds = f"{recorded.rounds} round{'s' if recorded.rounds != 1 else ''}"
    text = [
        f"pack:     {found.pack} is whole; SHA-256 {found.sha256}",
        f"records:  {found.run}: {rounds}, whose hashes fit, up to {recorded.chain}",
        f"model:    the one after the last round; SHA-256 {recorded.model_sha256}",
    ]
    if found.versions:
        text.append(f"versions: the pack against here: {', '.join(found.versions)}")
    else:
        text.append("versions: the same here, and the same instructions")
    if found.code and found.outcome == "not run":
        text += [f"code:     {one}" for one in found.code]
    if found.ended:
        text.append(f"ended:    {found.ended}")
    if found.same:
        text.append(f"result:   the same bits, in all of {rounds}")
    elif found.outcome == "other bits":
        text.append(f"result:   other bits: {found.reason}")
    else:
        text.append(f"result:   not run again: {found.reason}")
        if found.code:
            text.append(f"          read it: {shell_line('fedmx', 'unpack', found.pack)} FOLDER")
            trusted = shell_line("fedmx", "verify", found.pack, "--trust")
            text.append(f"          if you trust it: {trusted}")
    return [one_line(line) for line in text]  # of the pack's own words none makes a line
