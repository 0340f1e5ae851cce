"""The last loss and accuracy of the runs in these folders, and the largest rise of each loss."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from fedmx import RunFolder

LATE = 50


def main(folders: list[str]) -> None:
    """Print a line per run."""
    late = f"last {LATE}, least to most"
    print(f"{'run':<42}{'rounds':>7}{'loss':>9}{'accuracy':>10}{late:>24}{'largest rise':>14}")
    for folder in folders:
        rounds = RunFolder.open(folder).rounds()
        measured = [round for round in rounds if round["loss"] is not None]
        loss = np.array([round["loss"] for round in measured])
        rise = np.diff(loss, prepend=loss[0]).max()
        least, most = loss[-LATE:].min(), loss[-LATE:].max()
        print(
            f"{Path(folder).name:<42}{rounds[-1]['round']:>7}{loss[-1]:>9.4f}"
            f"{measured[-1]['accuracy']:>10.2%}{least:>16.4f}{most:>8.4f}{rise:>14.4f}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
