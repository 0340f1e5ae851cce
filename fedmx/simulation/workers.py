"""The executor of an experiment's simulation: this process, or workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fedmx.assembly.assembly import Assembly
from fedmx.errors import ExperimentError
from fedmx.experiment import Experiment
from fedmx.server.server import Scorer
from fedmx.simulation.executors.cohort import CohortExecutor, groups_of
from fedmx.simulation.executors.colluding import ColludingExecutor
from fedmx.simulation.executors.executor import Executor, SerialExecutor
from fedmx.simulation.executors.parallel import Backend, ParallelExecutor
from fedmx.simulation.executors.worker import arrays_of, build_of, use_arrays
from layers.logic.core.attack import Collusion, attack_in


@contextmanager
def workers_of(
    assembly: Assembly, backend: Backend | None
) -> Iterator[tuple[Executor, Scorer | None]]:
    """Give the executor, and what evaluates models faster; new workers end if the block fails.

    Args:
        assembly: the parts of the experiment, whose `executor` does the work.
        backend: workers to use instead of new ones; the caller closes it.

    Raises:
        ExperimentError: a component cannot be made by workers.
    """
    executor, at_once = assembly.experiment.executor, assembly.at_once
    own = None
    if backend is None:
        backend = own = executor.start()
    if backend is None:
        one: Executor
        if at_once is None:
            one = SerialExecutor.of(assembly)
        else:
            one = CohortExecutor(groups_of(assembly), at_once)
        yield _colluding(one, assembly), None
        return
    try:
        require_portable(assembly.experiment)
        contents, arrays = arrays_of(assembly)
        use_arrays(assembly, contents, backend.open(build_of(assembly, contents), arrays))
        rows = len(assembly.evaluated_samples)
        pool = ParallelExecutor(backend, assembly.sizes(), rows, own is not None)
        many = pool if at_once is None else CohortExecutor(pool, at_once)
        yield _colluding(many, assembly), pool.scores
    except BaseException:
        if own is not None:
            own.close()
        raise


def _colluding(executor: Executor, assembly: Assembly) -> Executor:
    """Return the executor, which replaces the updates of liars if the experiment has such."""
    attack = attack_in(assembly.preset.hooks)
    if not isinstance(attack, Collusion):
        return executor
    return ColludingExecutor(executor, attack, assembly.experiment.seed)


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
