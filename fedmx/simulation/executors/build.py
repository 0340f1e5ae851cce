"""The workers of an experiment, made from its ``executor`` section."""

from __future__ import annotations

from fedmx.errors import ExperimentError
from fedmx.experiment import ExecutorSection, Experiment
from fedmx.simulation.executors.parallel import Backend
from fedmx.simulation.executors.processes import ProcessBackend
from fedmx.simulation.executors.ray_actors import RayBackend
from layers.compute.engines.mxnet.runtime import one_thread


def backend_of(executor: ExecutorSection) -> Backend:
    """Return the workers; they are started at once, and load while this process loads."""
    if executor.ray is not None:
        with one_thread():
            pass  # Ray forks, which starts MXNet; inside this block MXNet starts without output
        return RayBackend(executor.ray.workers, executor.ray.address)
    return ProcessBackend(executor.number)


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
