"""The executor of an experiment's simulation: this process, or workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fedmx.assembly.assembly import Assembly
from fedmx.server.server import Scorer
from fedmx.simulation.executors.build import backend_of, require_portable
from fedmx.simulation.executors.executor import Executor, SerialExecutor
from fedmx.simulation.executors.parallel import Backend, ParallelExecutor
from fedmx.simulation.executors.worker import arrays_of, build_of, use_arrays


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
    executor = assembly.experiment.executor
    if backend is None and executor.name == "serial":
        yield SerialExecutor.of(assembly), None
        return
    require_portable(assembly.experiment)
    own = None
    if backend is None:
        backend = own = backend_of(executor)
    try:
        contents, arrays = arrays_of(assembly)
        use_arrays(assembly, contents, backend.open(build_of(assembly, contents), arrays))
        rows = len(assembly.data.test_samples)
        pool = ParallelExecutor(backend, assembly.sizes(), rows, own is not None)
        yield pool, pool.scores
    except BaseException:
        if own is not None:
            own.close()
        raise
