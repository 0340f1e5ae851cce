"""A progress bar, in a notebook or on a terminal."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

from fedmx.run.ending import Ending
from fedmx.server.callback import Callback, Running
from fedmx.server.round import Round


@dataclass
class ProgressBar(Callback):
    """Shows the rounds, the accuracy and the time that is left, by tqdm.

    In a notebook it is a widget if ipywidgets is installed, and else a line of text.
    """

    _bar: Any = field(default=None, init=False, repr=False)

    def on_begin(self, run: Running) -> None:
        """Show the bar."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the line of text needs nothing installed
            from tqdm.auto import tqdm
        self._bar = tqdm(total=run.last_round, initial=run.state.round, unit="round", leave=True)

    def on_round(self, round: Round) -> None:
        """Move the bar to this round, which is an earlier one after a step back."""
        if round.accuracy is not None:
            self._bar.set_postfix_str(f"accuracy {round.accuracy:.2%}", refresh=False)
        self._bar.update(round.round - self._bar.n)

    def on_end(self, status: Ending, reason: str) -> None:
        """Leave the bar as it is."""
        if self._bar is not None:
            self._bar.close()
