"""A simulation: the server and all clients of an experiment in this process."""

from __future__ import annotations

from fedmx.assembly.assembly import Assembly
from fedmx.experiment import Experiment
from fedmx.server.server import Scorer, Server, Stop
from fedmx.simulation.executors import Pool, Serial, Workers
from fedmx.simulation.executors.backend import Crew
from fedmx.simulation.executors.build import build_of, crew_of, require_portable
from fedmx.simulation.simulated_clients import SimulatedClients


def simulate(experiment: Experiment | Assembly, crew: Crew | None = None) -> Server:
    """Return the server of a simulation; iterate over it to run it.

    ::

        with simulate(Experiment.read("examples/quickstart.yaml")) as simulation:
            for round in simulation:
                print(round.round, round.accuracy)
        simulation.weights

    The clients' work is done where the experiment's `engine` says: in this process, one after the
    other, so that a breakpoint in a hook works; or by workers, which end with the simulation. It
    changes no bit of the result.

    Args:
        experiment: what to simulate.
        crew: workers in place of the engine's, for several simulations one after the other; whoever
            made them closes them.

    Raises:
        ExperimentError: a part of the experiment cannot be had, or not by workers.
    """
    assembly = experiment if isinstance(experiment, Assembly) else Assembly(experiment)
    engine = assembly.experiment.engine
    if crew is None and engine.name == "serial":
        return _simulation(assembly, Serial.of(assembly))
    require_portable(assembly.experiment)
    own = None
    if crew is None:
        crew = own = crew_of(engine)
    try:
        pool = _pool(assembly, crew, own is not None)
        return _simulation(assembly, pool, pool.scores)
    except BaseException:
        if own is not None:
            own.close()
        raise


def _pool(assembly: Assembly, crew: Crew, closes: bool) -> Pool:
    build, sizes = build_of(assembly), assembly.sizes()
    return Pool(crew, build, sizes, len(assembly.test_rows), closes)


def _simulation(assembly: Assembly, workers: Workers, scores: Scorer | None = None) -> Server:
    shared, sizes = assembly.shared, assembly.sizes()
    file_bytes = 0 if shared is None else sum(map(shared.wire_bytes, sizes))
    clients = SimulatedClients(workers, sizes, assembly.clock(), file_bytes)
    return server_of(assembly, clients, scores)


def server_of(assembly: Assembly, clients: object, scores: Scorer | None = None) -> Server:
    """Return the server of an experiment over `clients`, simulated or deployed."""
    experiment = assembly.experiment
    evaluate, stop = experiment.compute.evaluate, experiment.stop
    return Server(
        network=clients,  # type: ignore[arg-type]
        logic=assembly.server_logic,
        compute=assembly.server_compute(),
        last=experiment.rounds,
        evaluate_every=evaluate.every,
        evaluate_batch=evaluate.batch_size,
        client_rows=assembly.parts[1] if evaluate.per_client else None,
        scores=scores,
        stop=Stop(stop.accuracy, stop.loss, stop.seconds, stop.client_accuracy, stop.clock_s),
    )
