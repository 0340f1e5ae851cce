"""A simulation: the server and all clients of an experiment in this process."""

from __future__ import annotations

from collections.abc import Sequence

from fedmx.assembly.assembly import Assembly
from fedmx.experiment import Experiment
from fedmx.server.callback import Callback
from fedmx.server.of_experiment import server_of
from fedmx.server.server import Server
from fedmx.server.survey import normalised
from fedmx.simulation.executors.parallel import Backend
from fedmx.simulation.simulated_clients import SimulatedClients
from fedmx.simulation.workers import workers_of


def simulate(
    experiment: Experiment | Assembly,
    backend: Backend | None = None,
    *,
    callbacks: Sequence[Callback] = (),
) -> Server:
    """Return the server of a simulation; iterate over it to run it.

    ::

        with simulate(Experiment.read("examples/quickstart.yaml")) as simulation:
            for round in simulation:
                print(round.round, round.accuracy)
        simulation.weights

    The experiment's `executor` does the clients' work: in this process, one client after the other,
    so that a breakpoint in a hook works; or on workers, which end with the simulation. The result
    is the same, bit for bit.

    Args:
        experiment: what to simulate.
        backend: workers to use instead of new ones, for several simulations one after the other;
            the caller closes it.
        callbacks: called after each round; they may end the run.

    Raises:
        CallbackError: a callback is none, or has a misspelt method.
        ExperimentError: a part of the experiment cannot be made, or cannot be made by workers.
    """
    assembly = experiment if isinstance(experiment, Assembly) else Assembly(experiment)
    assembly = normalised(assembly, simulate)
    with workers_of(assembly, backend) as (workers, scores):
        sizes, without = assembly.population(), assembly.experiment.without
        given = [one for one in sizes if one not in without] if assembly.assets else ()
        assets = assembly.assets.values()
        file_bytes = sum(asset.wire_bytes(one) for asset in assets for one in given)
        clients = SimulatedClients(workers, sizes, assembly.clock(), file_bytes)
        return server_of(assembly, clients, scores, callbacks, clients.memory_of)
