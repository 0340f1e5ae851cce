"""The workers of an experiment, made from its ``executor`` section."""

from __future__ import annotations

from importlib import import_module

from fedmx.errors import ExperimentError
from fedmx.experiment import ExecutorSection, Experiment
from fedmx.simulation.executors.parallel import Backend


def backend_of(executor: ExecutorSection) -> Backend:
    """Start the workers of an executor; they load while this process loads.

    The executor NAME is the function `backend` of the module `fedmx.simulation.executors.NAME`.
    """
    backend: Backend = import_module(f"{__package__}.{executor.name}").backend(executor)
    return backend


def require_portable(experiment: Experiment) -> None:
    """Check that workers can make every component of the experiment.

    Raises:
        ExperimentError: a component is an object, which cannot be sent by name.
    """
    try:
        experiment.require_portable()
    except ExperimentError as error:
        lines = [f"{problem} (or run it with executor: serial)" for problem in error.problems]
        raise ExperimentError.of("experiment", lines) from None
