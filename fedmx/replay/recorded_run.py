"""A recorded run, opened to be run again: its folder, its experiment and its parts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fedmx.assembly.assembly import Assembly
from fedmx.experiment import Experiment
from fedmx.run import RunError, RunFolder
from fedmx.run.folder import kept_start
from layers.compute.data.datasets import Files


@dataclass(frozen=True)
class RecordedRun:
    """A run folder with the experiment that it recorded.

    Attributes:
        folder: the run folder.
        experiment: its experiment; what decides the result is as recorded.
        files: where data sets are.
    """

    folder: RunFolder
    experiment: Experiment
    files: Files = field(default_factory=Files)

    @classmethod
    def open(
        cls,
        run: str | Path | RunFolder,
        *,
        modules: Collection[str] | None = (),
        overrides: Sequence[str] = (),
        files: Files | None = None,
    ) -> RecordedRun:
        """Open a run folder.

        Args:
            run: the folder.
            modules: the modules whose code its experiment may name; None: all.
            overrides: ``PATH=VALUE`` texts that do not change the result, such as the executor.
            files: where data sets are; None: where the environment says.

        Raises:
            RunError: it is no run folder, or its experiment is not the recorded one.
            ExperimentError: the experiment cannot be read, or names code that is not allowed.
        """
        folder = run if isinstance(run, RunFolder) else RunFolder.open(run)
        source = folder.path / "experiment.yaml"
        experiment = Experiment.parse(
            folder.experiment_yaml,
            str(source),
            overrides,
            folder=folder.modules_path,
            modules=modules,
        )
        if experiment.digest() != folder.facts.get("digest"):
            raise RunError(
                f"{source}: this is not the experiment that the run began with; "
                "restore the file, or give another run"
            )
        return cls(folder, experiment, files or Files())

    @cached_property
    def assembly(self) -> Assembly:
        """The parts of the experiment, with the weights that the run began from.

        Raises:
            RunError: the weights that it began from are gone, or are other ones.
        """
        return Assembly(self.experiment, self.files, start_file=kept_start(self.folder))

    @property
    def deployed(self) -> bool:
        """Whether its clients were on other machines; otherwise they were simulated."""
        return self.folder.facts.get("mode") == "server"

    def round_records(self) -> dict[int, dict[str, Any]]:
        """Return the records of all rounds, by round."""
        return {record["round"]: record for record in self.folder.rounds()}

    def steps_back(self, first: int, last: int) -> int:
        """Return how often a simulation stepped back to just before rounds from `first` to `last`.

        The rounds that it ran before such a step are in no record. A deployed run is run again
        without its steps back.
        """
        if self.deployed:
            return 0
        records = self.round_records()
        rounds = [record for round, record in records.items() if first <= round <= last]
        return sum(len(record.get("stepped_back", ())) for record in rounds)
