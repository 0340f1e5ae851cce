"""A simulation: the server and all clients of an experiment in this process."""

from __future__ import annotations

from fedmx.assembly import Assembly
from fedmx.experiment import Experiment
from fedmx.server import Server, Stop
from fedmx.simulated_clients import SimulatedClients
from fedmx.workers import Serial


def simulate(experiment: Experiment | Assembly) -> Server:
    """Return the server of a simulation; iterate over it to run it.

    ::

        simulation = simulate(Experiment.read("examples/quickstart.yaml"))
        for round in simulation:
            print(round.round, round.accuracy)
        simulation.weights

    The clients train in this process, one after the other, so that a breakpoint in a hook works.
    """
    assembly = experiment if isinstance(experiment, Assembly) else Assembly(experiment)
    workers = Serial(assembly.logic, assembly.engine, assembly.samples_of)
    clients = SimulatedClients(workers, assembly.sizes(), assembly.clock())
    return server_of(assembly, clients)


def server_of(assembly: Assembly, clients: object) -> Server:
    """Return the server of an experiment over `clients`, simulated or deployed."""
    experiment = assembly.experiment
    evaluate, stop = experiment.compute.evaluate, experiment.stop
    return Server(
        network=clients,  # type: ignore[arg-type]
        logic=assembly.logic,
        compute=assembly.server_compute(),
        last=experiment.rounds,
        evaluate_every=evaluate.every,
        evaluate_batch=evaluate.batch_size,
        client_rows=assembly.parts[1] if evaluate.per_client else None,
        stop=Stop(stop.accuracy, stop.loss, stop.seconds, stop.client_accuracy, stop.clock_s),
    )
