"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ExperimentFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="The experiment file.", show_default=False)
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Override a value, e.g. logic.select.fraction=0.2; may be repeated.",
    ),
]
CaFile = Annotated[Path | None, typer.Option("--ca", help="Certificate of the private CA (PEM).")]
CertificateFile = Annotated[
    Path | None, typer.Option("--cert", help="This end's certificate (PEM).")
]
KeyFile = Annotated[Path | None, typer.Option("--key", help="This end's private key (PEM).")]
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", help="File with a secret that all ends share.")
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Allow plain TCP beyond this machine.")]
