"""``Experiment``: everything that a run needs to know, typed, checked and frozen."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from fedmx.components.component import Component
from fedmx.components.source import Source
from fedmx.errors import ExperimentError
from fedmx.experiment import writer
from fedmx.experiment.overrides import apply_overrides
from fedmx.experiment.problems import PlacedError, translated
from fedmx.experiment.reader import parse_text, read_text
from fedmx.experiment.sections import (
    ClockSection,
    ComputeSection,
    Count,
    ExecutorSection,
    LogicSection,
    NetworkSection,
    RunSection,
    Section,
    StopSection,
)


class Experiment(Section):
    """One experiment, the same for a simulation, a server and its clients.

    From Python, sections are given as mappings and components also as objects::

        Experiment(rounds=5, clients=20, compute={"model": MyNet, "data": "digits"})

    Whatever is wrong is raised as one ExperimentError that has a line for each problem.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=100)] = (
        "experiment"
    )
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    rounds: Count
    clients: Count
    stop: StopSection = StopSection()
    compute: ComputeSection
    logic: LogicSection = LogicSection()
    clock: ClockSection = ClockSection()
    executor: ExecutorSection = ExecutorSection()
    network: NetworkSection = NetworkSection()
    run: RunSection = RunSection()

    def __init__(self, **values: Any) -> None:
        self._fill(values, Source())

    @classmethod
    def read(
        cls,
        path: str | os.PathLike[str],
        overrides: Sequence[str] = (),
        *,
        folder: Path | None = None,
    ) -> Experiment:
        """The experiment in the YAML file at ``path``, with ``PATH=VALUE`` overrides put in.

        Modules that it names are also looked for in ``folder``, by default the file's own.
        """
        text = read_text(path)
        folder = folder or Path(path).resolve().parent
        return cls.parse(text, str(path), overrides, folder=folder)

    @classmethod
    def parse(
        cls,
        text: str,
        source: str = "experiment",
        overrides: Sequence[str] = (),
        *,
        folder: Path | None = None,
        modules: Collection[str] | None = None,
    ) -> Experiment:
        """The experiment that YAML ``text`` holds; messages call the text ``source``.

        ``modules`` limits what ``package.module:Name`` may import, for text that came from
        elsewhere: these modules and what is inside them, nothing for ``()``, all for None.
        """
        tree, origin = parse_text(text, source, folder)
        limit = None if modules is None else frozenset(modules)
        return cls._of(tree, overrides, replace(origin, modules=limit))

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any], overrides: Sequence[str] = ()) -> Experiment:
        """The experiment that a mapping holds; objects may stand for components."""
        return cls._of(tree, overrides, Source())

    def with_overrides(self, overrides: Sequence[str]) -> Experiment:
        """This experiment with ``PATH=VALUE`` overrides put in, checked as a whole again."""
        return self._of(self.tree(), overrides, Source())

    def tree(self) -> dict[str, Any]:
        """All values as a mapping that ``from_dict`` takes; components stay components."""
        return writer.tree_of(self, lambda component: component)

    def to_yaml(self) -> str:
        """The whole experiment, defaults included, as a file that reads back equal."""
        return writer.to_yaml(self)

    def digest(self) -> str:
        """SHA-256 (hex) of all that determines the result: not of name, executor, network
        and run."""
        return writer.digest(self)

    @property
    def portable(self) -> bool:
        """Whether ``to_yaml`` loses nothing: no component is an object that a file cannot hold."""
        return all(component.portable for component in self.components)

    def require_portable(self) -> None:
        """Raises ExperimentError naming the components that another machine could not build."""
        problems = [
            component.source.problem(component.where, component.obstacle)
            for component in self.components
            if component.obstacle is not None
        ]
        if problems:
            raise ExperimentError.of("experiment", problems)

    @property
    def components(self) -> tuple[Component, ...]:
        """Every component that is named, in the order of the file."""
        return tuple(writer.components_of(self))

    @property
    def clients_awaited(self) -> int:
        """The clients that must be connected before round 1."""
        wait_for = self.network.wait_for
        return self.clients if wait_for == "all" else wait_for

    @model_validator(mode="after")
    def _the_clients_suffice(self) -> Experiment:
        for where, number in (
            (("network", "wait_for"), self.clients_awaited),
            (("logic", "min_updates"), self.logic.min_updates),
        ):
            if number > self.clients:
                text = f"must be at most clients ({self.clients}), not {number}"
                raise PlacedError(where, text)
        return self

    @model_validator(mode="after")
    def _what_is_simulated_has_devices(self) -> Experiment:
        clock = self.clock
        if clock.devices is None:
            for key, changed in (
                ("availability", clock.availability.name != "always"),
                ("uploads", clock.uploads.name != "parallel"),
                ("dropout", clock.dropout > 0),
            ):
                if changed:
                    text = "needs devices, whose time it is about; set clock.devices"
                    raise PlacedError(("clock", key), text)
        return self

    @model_validator(mode="after")
    def _what_stops_a_run_is_measured(self) -> Experiment:
        evaluate = self.compute.evaluate
        if self.stop.client_accuracy is not None and not evaluate.per_client:
            text = "is not measured; set compute.evaluate.per_client to true"
            raise PlacedError(("stop", "client_accuracy"), text)
        if evaluate.per_client and evaluate.sample is not None:
            text = "needs all test samples; leave compute.evaluate.sample out"
            raise PlacedError(("compute", "evaluate", "per_client"), text)
        return self

    @classmethod
    def _of(cls, tree: Mapping[str, Any], overrides: Sequence[str], source: Source) -> Experiment:
        values, source = apply_overrides(tree, overrides, cls, source)
        if values.get("portable") is False:  # to_yaml's note; the components themselves tell
            del values["portable"]
        experiment = cls.__new__(cls)
        experiment._fill(values, source)
        return experiment

    def _fill(self, values: Mapping[str, Any], source: Source) -> None:
        """What BaseModel's constructor does, with the source for the components to remember."""
        try:
            self.__pydantic_validator__.validate_python(
                dict(values), self_instance=self, context={"source": source}
            )
        except ValidationError as error:
            raise translated(error, type(self), source) from None
