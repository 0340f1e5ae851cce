"""A client's own policy: which experiments it takes part in, and what it lets them spend."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, time
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from fedmx.components.build import build
from fedmx.components.component import Component, Source
from fedmx.components.section import Count, NotNegative, Positive, Section, Share, component_at
from fedmx.components.text import shown
from fedmx.components.user_code import is_allowed, named_code
from fedmx.errors import FedmxError
from fedmx.experiment import Experiment
from fedmx.experiment.keys import experiment_error
from fedmx.experiment.reader import parse_text, read_text
from layers.logic.core.privacy import DifferentialPrivacy
from layers.logic.privacy.local import Local

_HOUR = "([01][0-9]|2[0-3]):[0-5][0-9]"
HOURS = f"^{_HOUR}-{_HOUR}$"
Names = tuple[Annotated[str, Field(min_length=1)], ...]


class RefusedByPolicy(FedmxError):
    """The client's own limits exclude an experiment or a task; the text is one line."""


class Policy(Section):
    """What a client accepts, whatever a server sends; null: no limit."""

    experiments: Names | None = None
    """Names or digests of the experiments."""
    authors: Names | None = None
    """Names of the operators whose experiments it takes part in: the jobs of a federation that one
    of them has signed."""
    privacy: Annotated[Component, component_at("privacy")] | None = None
    """The experiment's section `privacy`, with equal settings."""
    noise: NotNegative | None = None
    """The least noise of `privacy: {name: local}`, as a multiple of its clip."""
    epsilon: Positive | None = None
    """The most that all runs together spend, by noise of the clients: `privacy: {name: local}`, or
    `secure-sum` with `noise`."""
    delta: Share = 1e-5
    """The delta at which `epsilon` counts."""
    data: Names | dict[str, Path | None] | None = None
    """Names of the data sets (`compute.data`). As a mapping, a name with a file is one of this
    machine's own, which an experiment names by `compute.data.local`; a name with null is that of a
    data set."""
    modules: Names | None = None
    """Modules of this machine that an experiment may name, with their submodules."""
    rounds: Count | None = None
    """The most rounds of an experiment."""
    hours: Annotated[str, Field(pattern=HOURS)] | None = None
    """When it takes part in a new job of a federation, such as `22:00-06:00`, by its own clock."""
    jobs: Count = 1
    """In how many jobs of a federation it takes part at a time; it trains for one at a time."""
    job_seconds: Positive | None = None
    """The most seconds of one job of a federation."""
    job_megabytes: Count | None = None
    """The most memory of the process of one job of a federation, in MiB."""
    seconds: Positive | None = None
    """The most seconds of work on one task."""
    statistics: Count | None = None
    """It tells statistics only if it has this many samples, whatever a server asks for; null: if it
    has as many as the server says."""

    @model_validator(mode="after")
    def _check_jobs(self) -> Policy:
        if self.jobs > 1 and self.epsilon is not None:  # jobs at a time would spend the same rest
            raise ValueError("jobs: must be 1 with epsilon, which one job after the other spends")
        return self

    @classmethod
    def of(cls, path: Path | None, epsilon: float | None = None) -> Policy:
        """Return the policy of a file (YAML), and of an option.

        Args:
            path: the file; None: a policy without limits.
            epsilon: replaces the epsilon of the file; None: does not.

        Raises:
            ExperimentError: the file cannot be read, or something in it is wrong.
        """
        tree: dict[str, Any] = {}
        source = Source()
        if path is not None:
            tree, source = parse_text(read_text(path), str(path))
        if epsilon is not None:
            tree = {**tree, "epsilon": epsilon}
        try:
            found = cls.model_validate(tree, context={"source": source})
        except ValidationError as error:
            raise experiment_error(error, cls, source) from None
        if path is None or not found.local:
            return found
        assert isinstance(found.data, dict)
        local = {name: (path.parent / file).resolve() for name, file in found.local.items()}
        for name, file in local.items():
            if not file.is_file():
                raise FedmxError(f"{path}: data.{name}: there is no file {file}")
        return found.model_copy(update={"data": {**found.data, **local}})

    def check(self, experiment: Experiment) -> None:
        """Check an experiment, without an import of what it names, but for what it spends.

        Raises:
            RefusedByPolicy: it is not allowed.
        """
        name, data = experiment.name, experiment.compute.data.name
        if self.experiments is not None and not {name, experiment.digest()} & {*self.experiments}:
            raise refused("experiments", f"the experiment {shown(name)} is not listed")
        if self.authors is not None:
            raise refused("authors", "only the jobs of a federation are signed by an author")
        own = experiment.compute.data.settings.get("local")
        if self.data is not None:
            listed = data in self.data and data not in self.local
            if not (own in self.local if own is not None else listed):
                raise refused("data", f"the data set {shown(own or data)} is not listed")
        if self.rounds is not None and experiment.rounds > self.rounds:
            raise refused("rounds", f"the experiment has {experiment.rounds}, not {self.rounds}")
        for code in named_code(experiment.components):
            if not is_allowed(code.name, self.modules):
                raise refused("modules", f"{shown(code.name)} is in none that is listed")
        given = noise_of_clients(experiment)
        if self.privacy is not None:
            one = experiment.privacy
            named = () if one is None or one.name != self.privacy.name else (one, self.privacy)
            if len({build("privacy", each) for each in named}) != 1:
                raise refused("privacy", "the experiment's section privacy is another one")
        kind = "no privacy" if experiment.privacy is None else experiment.privacy.name
        if self.epsilon is not None and given is None:
            raise refused("epsilon", f"the experiment has {kind}, and no noise of this client")
        if self.noise is not None:
            if (local := local_of(experiment)) is None:
                text = f"the experiment has {kind}, and only local hides an update here"
                raise refused("noise", text)
            if local.noise < self.noise:
                text = f"the experiment has {local.noise:g}, less than {self.noise:g}"
                raise refused("noise", text)

    def check_statistics(self, samples: int) -> None:
        """Check that statistics of this many samples may be told.

        Raises:
            RefusedByPolicy: they are too few.
        """
        if self.statistics is not None and samples < self.statistics:
            text = f"there are {samples} samples, and statistics are of {self.statistics} at least"
            raise refused("statistics", text)

    @property
    def local(self) -> dict[str, Path]:
        """The files of this machine, by their local names."""
        found = self.data if isinstance(self.data, dict) else {}
        return {name: path for name, path in found.items() if path is not None}

    def is_open(self, now: time | None = None) -> bool:
        """Return whether a time of the day is within `hours`.

        Args:
            now: the time; None: now, by this machine's clock.
        """
        if self.hours is None:
            return True
        now = datetime.now().time() if now is None else now
        begin, end = (time.fromisoformat(one) for one in self.hours.split("-"))
        return begin <= now < end if begin < end else now >= begin or now < end

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Limit the seconds of the work inside; the main thread alone can.

        Raises:
            RefusedByPolicy: it takes longer, or runs in another thread.
        """
        if self.seconds is None:
            yield
            return
        if threading.current_thread() is not threading.main_thread():
            raise refused("seconds", "only a client in the main thread can limit them")

        def end(number: int, frame: FrameType | None) -> None:
            raise refused("seconds", f"the task takes more than {self.seconds:g} s")

        before = signal.signal(signal.SIGALRM, end)
        try:
            signal.setitimer(signal.ITIMER_REAL, self.seconds)
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def refused(key: str, text: str) -> RefusedByPolicy:
    """Return the refusal by a key of the policy."""
    return RefusedByPolicy(f"the client's policy, {key}: {text}")


def local_of(experiment: Experiment) -> Local | None:
    """Return the local privacy of an experiment, which a client carries out; None: it has none."""
    if experiment.privacy is None or experiment.privacy.name != Local.name:
        return None
    found: Local = build("privacy", experiment.privacy)
    return found


def noise_of_clients(experiment: Experiment) -> float | None:
    """Return the noise that each client adds to an update, as the accountant takes it; None: none.

    It imports no code that the experiment names.
    """
    if experiment.privacy is None or ":" in experiment.privacy.name:
        return None
    found = build("privacy", experiment.privacy)
    return found.noise_of_clients if isinstance(found, DifferentialPrivacy) else None
