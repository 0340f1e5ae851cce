"""``fedmx export``: the model of a run folder in a format that other programs read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedmx.cli.terminal.permission import Modules, OwnModules, allowed_modules

NAMES = ("onnx", "torch", "safetensors")
"""The formats; `fedmx.export` has a function for each."""
_FILES = {
    "onnx": ("--to onnx writes ONNX", (".onnx",)),
    "torch": ("a state_dict is written as .safetensors, and not as a pickle", (".safetensors",)),
    "safetensors": ("--to safetensors writes safetensors", (".safetensors",)),
}


def export(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="onnx, torch (a state_dict and its module) or safetensors.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="The file to write. [default: the model's name, in this folder]",
        ),
    ] = None,
    module: Modules = None,
    own_modules: OwnModules = False,
) -> None:
    """Write the model of a run for ONNX, PyTorch or others."""
    from fedmx.components.text import unknown
    from fedmx.errors import FedmxError
    from fedmx.output_file import check_output
    from fedmx.run import RunFolder

    if to not in NAMES:
        raise FedmxError(unknown("format", to, NAMES))
    if out is not None:
        check_output(out, *_FILES[to])
    folder = RunFolder.open(path)
    modules = allowed_modules(
        folder.path / "experiment.yaml",
        (),
        module,
        own_modules,
        folder.modules_path,
    )

    # Not before: this imports MXNet, and a wrong folder should be shown at once.
    from fedmx.export import FORMATS, TrainedModel
    from fedmx.run.durable import write_bytes_durably

    model = TrainedModel.of(folder, modules)
    ending, make = FORMATS[to]
    file = out or Path(f"{model.name}{ending}")
    check_output(file, *_FILES[to])
    exported = make(model, file)
    for one, content in exported.files.items():
        try:
            write_bytes_durably(one, content)
        except OSError as error:
            raise FedmxError(f"{one}: cannot write it ({error.strerror})") from None
    if not model.last:
        typer.echo(f"the run is not done: this is its model after round {model.round}", err=True)
    typer.echo(f"model:  {file}, of round {model.round}", err=bool(exported.source))
    if exported.source:
        typer.echo(f"module: {file.with_suffix('.py')}", err=True)
        typer.echo(exported.source, nl=False)
    else:
        typer.echo(f"input:  {model.notes['input']}")
        typer.echo(f"output: {model.notes['output']}")
