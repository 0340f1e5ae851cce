"""`Experiment`: everything that a run needs to know, typed, checked and frozen."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator

from fedmx.components.component import Component, Source
from fedmx.components.section import Count, Rules, Section, Takes, WholeNumber, component_at
from fedmx.components.text import Where, shown
from fedmx.display import card
from fedmx.errors import ExperimentError
from fedmx.experiment.keys import PlacedError, experiment_error, keys_in
from fedmx.experiment.overrides import apply_overrides
from fedmx.experiment.reader import parse_text, read_text, yaml_of
from fedmx.experiment.sections import (
    ClockSection,
    ComputeSection,
    ExecutorSection,
    LogicSection,
    NetworkSection,
    RunSection,
    StopSection,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from fedmx.experiment.arguments import ExperimentKeys

NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"
NAME_LENGTH = 100
_Section = TypeVar("_Section", bound=Section)


def _name_of(file: str) -> str:
    """Return a name for the experiment in a file; empty: the file's has no letter of a name."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", PurePath(file).stem).lstrip(".-")[:NAME_LENGTH]


def _ascending(clients: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(set(clients)))


class Experiment(Section):
    """An experiment, the same for a simulation, a server and its clients.

    In Python, sections are mappings, and a component may be an object. Components of fedmx and a
    `Dataset` are checked at once; whatever must be loaded or imported is checked when needed::

        Experiment(rounds=5, clients=20, compute={"model": MyNet, "data": "digits"})

    Raises:
        ExperimentError: something is wrong; the error has one line for each problem.
    """

    name: Annotated[
        str,
        Field(pattern=NAME_PATTERN, max_length=NAME_LENGTH),
        Takes("letters, digits and `._-`, at most 100"),
        Rules("never"),
    ] = "experiment"
    """Names the run folder and the report; if a file leaves it out, it is the file's own name,
    without the ending."""
    seed: Annotated[
        int,
        Field(ge=0, lt=2**63),
        Takes("whole number from 0"),
        Rules(fixed="the rounds before it were drawn from the seed"),
    ] = 1
    """Every random draw is derived from it."""
    rounds: Count
    """Rounds to run."""
    clients: Annotated[
        Count, Rules(fixed="the samples are divided among them; without leaves clients out")
    ]
    """Clients in the population."""
    without: Annotated[
        tuple[WholeNumber, ...],
        AfterValidator(_ascending),
        Takes("list of clients"),
        Rules("unless default"),
    ] = ()
    """Clients to leave out, as if the run had never had them
    ([more](time-travel.md#without-a-client)); simulations only."""
    attack: Annotated[
        Annotated[Component, component_at("attack")] | None, Rules("unless default")
    ] = None
    """Clients that lie, as `{name: sign-flip, clients: 0.2}` ([more](algorithms/attacks.md));
    simulations only. null: none does."""
    privacy: Annotated[
        Annotated[Component, component_at("privacy")] | None,
        Rules("unless default", "the rounds before it were counted with it"),
    ] = None
    """Differential privacy, as `{name: central, clip: 0.4, delta: 1e-6, epsilon: 2}`
    ([more](algorithms/privacy.md)), or `{name: secure-sum}` ([more](algorithms/secure-sum.md)).
    null: none."""
    stop: StopSection = StopSection()
    compute: ComputeSection
    logic: LogicSection = LogicSection()
    clock: ClockSection = ClockSection()
    executor: Annotated[ExecutorSection, Rules("never")] = ExecutorSection()
    network: Annotated[NetworkSection, Rules("never")] = NetworkSection()
    run: Annotated[RunSection, Rules("never")] = RunSection()

    def __init__(self, **values: Unpack[ExperimentKeys]) -> None:
        self._fill(values, Source())

    @classmethod
    def read(
        cls,
        path: str | os.PathLike[str],
        overrides: Sequence[str] = (),
        *,
        folder: Path | None = None,
        modules: Collection[str] | None = (),
    ) -> Experiment:
        """Read an experiment file (YAML). Your own code in it is imported when it is used.

        Args:
            path: the file.
            overrides: ``PATH=VALUE`` texts, as after ``--set``.
            folder: where to look for modules that the file names; None: the file's own folder.
            modules: see `parse`.

        Raises:
            ExperimentError: the file cannot be read, or something in it is wrong.
        """
        if not isinstance(path, str | os.PathLike):
            raise ExperimentError(
                f"{shown(path)}: is not the path of an experiment file; write it as "
                "'experiment.yaml'"
            )
        text = read_text(path)
        folder = folder or Path(path).resolve().parent
        tree, origin = parse_text(text, str(path), folder)
        limit = None if modules is None else frozenset(modules)
        return cls._of(tree, overrides, replace(origin, modules=limit))

    @classmethod
    def parse(
        cls,
        text: str,
        source: str = "experiment",
        overrides: Sequence[str] = (),
        *,
        folder: Path | None = None,
        modules: Collection[str] | None = (),
        varied: Sequence[str] = (),
    ) -> Experiment:
        """Read an experiment from YAML text. Nothing that it names is imported before it is used.

        Args:
            text: the text.
            source: what messages call the text.
            overrides: ``PATH=VALUE`` texts, as after ``--set``.
            folder: where to look for modules that the text names.
            modules: the modules whose code the text may name as ``package.module:Name``, with
                their submodules; None, for a text of your own, allows all. Names in overrides are
                always allowed.
            varied: further overrides, the values of a sweep's cell.

        Raises:
            ExperimentError: something in the text is wrong.
        """
        tree, origin = parse_text(text, source, folder)
        limit = None if modules is None else frozenset(modules)
        return cls._of(tree, overrides, replace(origin, modules=limit), varied)

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any], overrides: Sequence[str] = ()) -> Experiment:
        """Return the experiment that a mapping holds; a component may be an object.

        Raises:
            ExperimentError: something in it is wrong.
        """
        return cls._of(tree, overrides, Source())

    def with_overrides(self, overrides: Sequence[str]) -> Experiment:
        """Return a copy of this experiment with ``PATH=VALUE`` overrides, checked as a whole.

        Raises:
            ExperimentError: an override is wrong, or does not fit the rest.
        """
        origins = (component.source for component in self.components)
        origin = next((one for one in origins if one.modules is not None), Source())
        return self._of(self.tree(), overrides, Source("", origin.folder, origin.modules))

    def allowing(self, modules: Collection[str]) -> Experiment:
        """Return a copy whose components may import these modules, with their submodules."""
        limit = frozenset(modules)
        return _replaced(self, lambda one: replace(one, source=replace(one.source, modules=limit)))

    def tree(self) -> dict[str, Any]:
        """Return all values as a mapping that `from_dict` takes, with components as they are."""
        return tree_of(self, lambda component: component)

    def to_yaml(self) -> str:
        """Return the whole experiment, defaults included, as the text of an equal file.

        If a file cannot hold some component, the text says ``portable: false``.
        """
        tree = tree_of(self, Component.reference)
        return yaml_of(tree if self.portable else {**tree, "portable": False})

    def digest(self) -> str:
        """Return the SHA-256 (hex) of all keys but name, executor, network and run."""
        text = json.dumps(_deciding(self), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(b"fedmx experiment 1\n" + text.encode("ascii")).hexdigest()

    @property
    def portable(self) -> bool:
        """Whether a file can hold all components, so that `to_yaml` is complete."""
        return all(component.portable for component in self.components)

    def require_portable(self) -> None:
        """Check that another machine can build all components.

        Raises:
            ExperimentError: it cannot; the error names the components.
        """
        problems = [
            component.problem(component.not_portable_reason)
            for component in self.components
            if component.not_portable_reason is not None
        ]
        if problems:
            raise ExperimentError.of("experiment", problems)

    def __repr__(self) -> str:
        return f"<Experiment {self.name!r}: {', '.join(f'{k} {v}' for k, v in self._rows())}>"

    __str__ = __repr__  # pydantic's has every key

    def _repr_html_(self) -> str:
        """Return the view for a notebook, in which all keys are folded."""
        return card(f"Experiment {self.name!r}", self._rows(), ("all keys", self.to_yaml()))

    def _rows(self) -> list[tuple[str, object]]:
        logic, compute = self.logic, self.compute
        parts = {
            "model": compute.model,
            "data": compute.data,
            "partition": compute.partition,
            "preset": logic.preset,
            "selector": logic.selector,
            "aggregator": logic.aggregator,
        }
        rows: list[tuple[str, object]] = [("rounds", self.rounds), ("clients", self.clients)]
        rows += [(key, part.name) for key, part in parts.items() if part is not None]
        if logic.hooks:
            rows.append(("hooks", ", ".join(hook.name for hook in logic.hooks)))
        return [*rows, ("seed", self.seed)]

    @property
    def components(self) -> tuple[Component, ...]:
        """The components, in the order of the file."""
        return tuple(components_of(self))

    @property
    def clients_awaited(self) -> int:
        """How many clients must be connected before round 1."""
        wait_for = self.network.wait_for
        return self.clients - len(self.without) if wait_for == "all" else wait_for

    @model_validator(mode="after")
    def _check_together(self) -> Experiment:
        """Check the values that depend on others."""
        problems: dict[Where, str] = {}
        for where, text in (
            *self._client_counts(),
            *self._without_devices(),
            *self._not_measured(),
            *self._given_data(),
        ):
            problems.setdefault(where, text)
        if problems:
            raise PlacedError(problems)
        return self

    def _client_counts(self) -> Iterator[tuple[Where, str]]:
        unknown = [client for client in self.without if client >= self.clients]
        if unknown:
            yield ("without",), f"must be clients from 0 to {self.clients - 1}, not {unknown[0]}"
            return
        if len(self.without) == self.clients:
            yield ("without",), "leaves out all clients; keep some"
            return
        most = f"clients ({self.clients})"
        if self.without:
            most += f" less those of without ({len(self.without)})"
        for where, number in (
            (("network", "wait_for"), self.clients_awaited),
            (("logic", "min_updates"), self.logic.min_updates),
        ):
            if number > self.clients - len(self.without):
                yield where, f"must be at most {most}, not {number}"

    def _without_devices(self) -> Iterator[tuple[Where, str]]:
        clock = self.clock
        if clock.devices is not None:
            return
        for key, changed in (
            ("availability", clock.availability.name != "always"),
            ("uploads", clock.uploads is not None and clock.uploads.name != "parallel"),
            ("dropout", clock.dropout > 0),
        ):
            if changed:
                yield ("clock", key), "needs simulated devices; set clock.devices"

    def _not_measured(self) -> Iterator[tuple[Where, str]]:
        evaluate = self.compute.evaluate
        measured = evaluate.per_client or evaluate.clients is not None
        if self.stop.client_accuracy is not None and not measured:
            text = "is not measured; set compute.evaluate.per_client or compute.evaluate.clients"
            yield ("stop", "client_accuracy"), text
        for key in ("per_client", "personal"):
            for other in ("validation", "clients"):
                if getattr(evaluate, key) and getattr(evaluate, other) is not None:
                    text = f"reads the test split in each round; leave out it or {other}"
                    yield ("compute", "evaluate", key), text
        if (evaluate.per_client or evaluate.personal) and evaluate.sample is not None:
            text = "needs all test samples; leave compute.evaluate.sample out"
            yield ("compute", "evaluate", "per_client"), text

    def _given_data(self) -> Iterator[tuple[Where, str]]:
        if self.compute.data.object is not None:
            # Not at the top: only an object of Python code needs the layers for this.
            from fedmx.experiment.given_data import data_problems

            yield from data_problems(self.compute, self.logic, self.clients, self.seed)

    @classmethod
    def _of(
        cls,
        tree: Mapping[str, Any],
        overrides: Sequence[str],
        source: Source,
        varied: Sequence[str] = (),
    ) -> Experiment:
        """Return the experiment of a mapping.

        Args:
            tree: the mapping.
            overrides: ``PATH=VALUE`` texts.
            source: of the mapping.
            varied: further overrides, the values of a sweep's cell.

        Raises:
            ExperimentError: something is wrong; the error has one line for each problem.
        """
        values, source, problems = apply_overrides(tree, overrides, cls, source, varied)
        if values.get("portable") is False:  # a note by to_yaml; the components say it, too
            del values["portable"]
        if name := _name_of(source.name):
            values.setdefault("name", name)
        experiment = cls.__new__(cls)
        try:
            experiment._fill(values, source)
        except ExperimentError as error:
            problems += error.problems
        if problems:
            raise ExperimentError.of(source.name, problems)
        return experiment

    def _fill(self, values: Mapping[str, Any], source: Source) -> None:
        """Validate and set the values, as BaseModel's constructor does.

        The context gives each component its source.
        """
        try:
            self.__pydantic_validator__.validate_python(
                dict(values), self_instance=self, context={"source": source}
            )
        except ValidationError as error:
            raise experiment_error(error, type(self), source) from None


def tree_of(section: BaseModel, spell: Callable[[Component], Any]) -> dict[str, Any]:
    """Return a section as a plain mapping.

    Args:
        section: the section, or the whole experiment.
        spell: what to write for a component.
    """

    def spelled(value: Any) -> Any:
        if isinstance(value, BaseModel):
            return tree_of(value, spell)
        if isinstance(value, Component):
            return spell(value)
        if isinstance(value, tuple):
            return [spelled(item) for item in value]
        return str(value) if isinstance(value, PurePath) else value

    return {name: spelled(getattr(section, name)) for name in type(section).model_fields}


def components_of(section: BaseModel) -> Iterator[Component]:
    """Yield the components of a section, and those in their settings, in the order of the file."""
    for name in type(section).model_fields:
        value = getattr(section, name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, BaseModel):
                yield from components_of(item)
            elif isinstance(item, Component):
                yield item
                yield from item.all_inner()


def _replaced(section: _Section, change: Callable[[Component], Component]) -> _Section:
    """Return a copy of a section with changed components."""

    def changed(value: Any) -> Any:
        if isinstance(value, Section):
            return _replaced(value, change)
        if isinstance(value, tuple):
            return tuple(map(changed, value))
        return change(value) if isinstance(value, Component) else value

    return section.model_copy(
        update={name: changed(getattr(section, name)) for name in type(section).model_fields}
    )


def _deciding(section: Section) -> dict[str, Any]:
    """Return the keys of a section that its digest has, as a plain mapping."""
    tree = tree_of(section, Component.reference)
    for name, key in keys_in(type(section)).items():
        rule, value = key.rules.in_digest, getattr(section, name)
        if rule == "never" or (rule == "unless default" and value == key.field.get_default()):
            del tree[name]
        elif isinstance(value, Section):
            tree[name] = _deciding(value)
    return tree


NOT_IN_DIGEST = tuple(
    name for name, key in keys_in(Experiment).items() if key.rules.in_digest == "never"
)
"""The keys that do not determine the result."""
