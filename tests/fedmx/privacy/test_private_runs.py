"""Private runs: the same bits on every executor, killed and resumed, forked and replayed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fedmx import (
    Assembly,
    Experiment,
    ExperimentError,
    FedmxError,
    RunFolder,
    recorded,
    simulate,
)
from fedmx.callbacks.trackers import Tracker, files_of
from fedmx.history import fork, replay
from fedmx.monitoring.reading import status_of_run
from fedmx.privacy.accounting import epsilon_of
from fedmx.report import write_report
from fedmx.run import RunError
from fedmx.run.released import Released
from layers.compute.data.targets import Targets
from layers.logic import LogicError
from layers.logic.core.messages import Update
from layers.logic.core.privacy import Mechanism
from layers.logic.round.exchange import ClientLost, SendTask
from tests.fedmx.command_line import fedmx
from tests.fedmx.processes import Deployment, until
from tests.fedmx.recorded_runs import record
from tests.network.conftest import Certificates

pytestmark = pytest.mark.timeout(300)
PRIVACY = {"name": "central", "clip": 0.5, "delta": 1e-2, "noise": 1.1}
ADAPTIVE = {**PRIVACY, "quantile": 0.5, "bit_noise": 1.0}
MECHANISM = Mechanism(1.1, 0.5)
LOCAL = {"name": "local", "clip": 0.5, "delta": 1e-2, "noise": 4.0}
IN_PUBLIC = {"selector": {"name": "uniform", "fraction": 0.5}, "aggregator": "median"}
TREE: dict[str, Any] = {
    "name": "private",
    "seed": 3,
    "rounds": 4,
    "clients": 6,
    "compute": {
        "model": "logistic",
        "data": "digits",
        "normalise": {"scale": 16},
        "train": {"steps": 3},
    },
    "privacy": PRIVACY,
    "logic": {
        "preset": {"name": "fedavg", "weights": "uniform"},
        "selector": {"name": "poisson", "probability": 0.5},
        "min_updates": 0,
    },
}


def experiment(**changed: Any) -> Experiment:
    return Experiment.from_dict({**TREE, **changed})


def spent(rounds: int) -> float:
    return epsilon_of([(MECHANISM, rounds)], 1e-2)


def weights(one: Experiment) -> bytes:
    with simulate(one) as simulation:
        list(simulation)
        return simulation.weights.tobytes()


@pytest.mark.parametrize("adaptive", [False, True])
def test_a_run_that_was_killed_goes_on_in_the_same_bits_with_its_account_on_every_executor(
    adaptive: bool,
) -> None:
    privacy = ADAPTIVE if adaptive else PRIVACY
    with simulate(experiment(privacy=privacy)) as simulation:
        rounds = iter(simulation)
        next(rounds)
        kept = simulation.checkpoint()
        told = [(one.epsilon, one.record().get("clip")) for one in rounds]
        expected = simulation.weights.tobytes()
    assert len({clip for _, clip in told}) == (3 if adaptive else 1)
    assert adaptive or [epsilon for epsilon, _ in told] == [spent(2), spent(3), spent(4)]
    with simulate(experiment(privacy=privacy, executor={"processes": 2})) as simulation:
        simulation.restore(kept)
        assert [(one.epsilon, one.record().get("clip")) for one in simulation] == told
        assert simulation.weights.tobytes() == expected


def test_the_bits_of_a_private_run_are_those_of_every_executor_and_of_its_seed() -> None:
    alone = weights(experiment())
    assert weights(experiment(executor={"processes": 2})) == alone
    assert weights(experiment(seed=4)) != alone
    assert weights(experiment(privacy={**PRIVACY, "noise": 1.2})) != alone
    assert weights(experiment(privacy=None)) != alone


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return record(experiment(), tmp_path_factory.mktemp("runs"))


def test_epsilon_is_in_each_record_and_in_what_is_shown(run: RunFolder) -> None:
    assert [one["epsilon"] for one in run.rounds()] == [spent(round) for round in range(1, 5)]
    assert all(one["train_loss"] is None for one in run.rounds())  # no loss leaves a client
    shown = fedmx("status", str(run.path), cwd=run.path)
    assert f"epsilon {spent(4):.4f}" in shown.out
    document = fedmx("status", str(run.path), "--json", cwd=run.path).out
    assert json.loads(document)["epsilon"] == spent(4)
    write_report([run], run.report_path)
    assert "Privacy spent against rounds" in run.report_path.read_text()


def test_the_progress_line_and_explain_say_what_is_spent_and_seen(tmp_path: Path) -> None:
    (tmp_path / "private.yaml").write_text(experiment(rounds=1).to_yaml())
    done = fedmx("run", "private.yaml", cwd=tmp_path)
    assert f"epsilon {spent(1):.2f}" in done.err
    words = "explain", "private.yaml", "--set", "privacy.epsilon=3"
    lines = fedmx(*words, cwd=tmp_path).out.splitlines()[:3]
    assert [line.split(" see")[0] for line in lines] == [
        "The server",
        "Other clients, and whoever gets the model,",
        "The network",
    ]
    assert "clipped" in lines[0]
    assert "epsilon 3" in lines[1]
    assert json.loads(fedmx(*words, "--json", cwd=tmp_path).out)["seen"] == lines
    plain = fedmx("explain", "private.yaml", "--set", "privacy=null", cwd=tmp_path).out
    assert "without a bound" in plain


def test_a_private_run_replays_to_the_same_bits(run: RunFolder) -> None:
    assert replay(run).same is True


def test_a_fork_counts_what_the_run_before_it_has_released(run: RunFolder) -> None:
    made = fork(run, 2, ["compute.train.learning_rate=0.01"])
    counted = f"Epsilon counts what {run.name} has released in 4 rounds, too."
    assert [*made.origin.lines()] == [counted]
    removed = fork(run, 0, without=[1]).origin
    assert removed.note.startswith("Exact removal of client 1: ")
    assert removed.note.endswith(f"all clients. {counted}")
    assert [one.epsilon for one in made.rounds()] == [spent(4 + 1), spent(4 + 2)]
    assert replay(made.folder).same is True
    with pytest.raises(ExperimentError, match="privacy"):
        fork(run, 2, ["privacy=null"])


def test_a_sweep_says_what_all_its_runs_spend_together(tmp_path: Path) -> None:
    (tmp_path / "private.yaml").write_text(experiment(rounds=2).to_yaml())
    words = "sweep", "private.yaml", "--vary", "privacy.clip=0.3,0.5", "--seeds", "1"
    document = json.loads(fedmx(*words, "--json", cwd=tmp_path).out)
    assert document["epsilon"] == pytest.approx(2 * spent(2))
    again = fedmx("sweep", document["folder"], cwd=tmp_path)
    assert f"epsilon {2 * spent(2):.4f}" in again.out


def test_a_budget_gives_the_noise_and_ends_the_run_with_the_last_model_within_it() -> None:
    budget = {**PRIVACY, "noise": None, "epsilon": 1.5}
    with simulate(experiment(privacy=budget)) as simulation:
        told = [one.epsilon for one in simulation]
        assert len(told) == 4
        assert 1.49 < told[-1] <= 1.5
    short = {**PRIVACY, "epsilon": (spent(2) + spent(3)) / 2}
    with simulate(experiment(privacy=short)) as simulation:
        assert [one.epsilon for one in simulation] == [spent(1), spent(2)]
        assert "round 3 would spend more than epsilon" in simulation.reason
    with simulate(experiment(privacy={**PRIVACY, "epsilon": 0.1})) as simulation:
        start = simulation.weights.tobytes()
        assert list(simulation) == []
        assert simulation.weights.tobytes() == start


def test_an_empty_round_is_a_round() -> None:
    rare = {
        **TREE["logic"],
        "selector": {"name": "poisson", "probability": 1e-6},
        "max_update": None,
    }
    with simulate(experiment(logic=rare)) as simulation:
        told = list(simulation)
    assert [one.participants for one in told] == [(), (), (), ()]
    assert len({one.model_sha256 for one in told}) == 4


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"clock": {"deadline_s": 5.0}}, "deadline"),
        ({"logic": {**TREE["logic"], "preset": "fedavg"}}, "weighs updates by samples"),
        ({"logic": {**TREE["logic"], "preset": "scaffold"}}, "Mean|Scaffold"),
        ({"logic": {**TREE["logic"], "preset": "fedfv"}}, "FedFV"),
        ({"logic": {**TREE["logic"], "selector": "uniform"}}, "poisson"),
        ({"logic": {**TREE["logic"], "selector": "power-of-choice"}}, "poisson"),
        ({"logic": {**TREE["logic"], "min_updates": 1}}, "min_updates"),
        ({"logic": {**TREE["logic"], "own": ["head"]}}, "logic.own"),
        ({"compute": {**TREE["compute"], "evaluate": {"per_client": True}}}, "per_client"),
        ({"privacy": {"name": "central", "clip": 0.5, "delta": 0.5, "noise": 1}}, "delta"),
        ({"privacy": LOCAL, "logic": {"preset": "fedbuff"}}, "several tasks in a round"),
    ],
)
def test_what_would_make_epsilon_untrue_is_refused(changed: dict[str, Any], named: str) -> None:
    with pytest.raises(ExperimentError, match=named) as caught:
        simulate(experiment(**changed))
    assert "\n" not in str(caught.value)


def test_a_model_with_buffers_is_refused() -> None:
    compute = {**TREE["compute"], "model": "gluon:resnet18_v1", "data": "cifar-10"}
    with pytest.raises(ExperimentError, match="BatchNorm"):
        _ = Assembly(
            experiment(compute=compute), shape=(3, 32, 32), targets=Targets("classes", 10)
        ).logic


def test_local_privacy_has_the_same_bits_everywhere_and_counts_every_round() -> None:
    local = experiment(privacy=LOCAL, logic=IN_PUBLIC)
    alone = weights(local)
    assert weights(experiment(privacy=LOCAL, logic=IN_PUBLIC, executor={"processes": 2})) == alone
    with simulate(local) as simulation:
        told = [one.epsilon for one in simulation]
    assert told == [epsilon_of([(Mechanism(2.0, 1.0), n)], 1e-2) for n in range(1, 5)]
    lying = experiment(privacy=LOCAL, logic=IN_PUBLIC, attack={"name": "sign-flip", "clients": 0.2})
    assert weights(lying) != alone


def test_each_pass_of_a_round_is_a_release_of_its_own() -> None:
    asking = {"selector": {"name": "astraea", "gamma": 2, "mediator_epochs": 3}}
    private = {**LOCAL, "label_epsilon": 0.25}
    given = experiment(privacy=private, logic={**asking, "aggregator": "mean"}, rounds=2)
    with simulate(given) as simulation:
        told = [one.epsilon for one in simulation]
    rounds = [epsilon_of([(Mechanism(2.0, 1.0), 3 * n)], 1e-2) for n in (1, 2)]
    assert told == pytest.approx([one + 0.25 for one in rounds], abs=1.01e-4)


def test_answers_about_labels_are_counted_and_explained(tmp_path: Path) -> None:
    private = {**LOCAL, "label_epsilon": 0.25, "labels": 8}
    asking = {"selector": {"name": "astraea", "gamma": 2}, "aggregator": "mean"}
    given = experiment(privacy=private, logic=asking, rounds=2)
    with simulate(given) as simulation:
        told = [one.epsilon for one in simulation]
    rounds = [epsilon_of([(Mechanism(2.0, 1.0), n)], 1e-2) for n in (1, 2)]
    assert told == pytest.approx([one + 8 * 0.25 for one in rounds], abs=1.01e-4)
    (tmp_path / "private.yaml").write_text(given.to_yaml())
    server = fedmx("explain", "private.yaml", cwd=tmp_path).out.splitlines()[0]
    assert "labels by randomised response (epsilon 0.25 each)" in server
    with pytest.raises(ExperimentError, match="label_epsilon"):
        simulate(experiment(privacy=LOCAL, logic=asking))


def test_a_deployed_local_run_counts_and_cannot_be_replayed_elsewhere(
    tmp_path: Path, certificates: Certificates
) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(experiment(privacy=LOCAL, logic=IN_PUBLIC, clients=2, rounds=2).to_yaml())
    with Deployment(tmp_path, file, certificates) as deployment:
        server = deployment.serve()
        clients = [deployment.client(number, 2) for number in range(2)]
        for process in (server, *clients):
            assert process.code() == 0, process.output
        assert [one["epsilon"] for one in deployment.run.rounds()] == [
            epsilon_of([(Mechanism(2.0, 1.0), n)], 1e-2) for n in (1, 2)
        ]
        with pytest.raises((FedmxError, LogicError), match="secret of each client"):
            replay(deployment.run)


TREE_NOISE: dict[str, Any] = {
    "privacy": {"name": "dp-ftrl", "clip": 0.5, "delta": 1e-2, "noise": 4.0},
    "logic": {**TREE["logic"], "selector": {"name": "cyclic", "period": 2}},
}


def goes_on(given: Experiment, run: RunFolder, without: tuple[int, ...] = ()) -> None:
    """Resume a run as its deployed server does; no update of `without` reaches it any more."""
    with simulate(given) as server:
        server.network.untrusted = True  # type: ignore[misc]
        carry = server.network.exchange

        def exchange(commands: Any) -> Any:
            event, at_s = carry(commands)
            if isinstance(event, Update) and event.client in without:
                event = ClientLost(event.round, event.client, "it is away")
            return event, at_s

        server.network.exchange = exchange  # type: ignore[method-assign]
        list(recorded(server, run))


def lose_checkpoints(run: RunFolder, after: int, how: str) -> None:
    for round in run.checkpoint_rounds:
        if round > after and how == "removed":
            run.checkpoint_path(round).unlink()
        elif round > after:
            content = bytearray(run.checkpoint_path(round).read_bytes())
            content[-1] ^= 1
            run.checkpoint_path(round).write_bytes(content)


@pytest.mark.parametrize(
    ("changed", "after", "how"),
    [
        ({}, 3, "damaged"),
        ({}, 1, "removed"),
        ({"privacy": ADAPTIVE}, 3, "removed"),
        (TREE_NOISE, 3, "removed"),
        ({"privacy": LOCAL, "logic": IN_PUBLIC}, 3, "removed"),
    ],
    ids=["damaged", "central", "adaptive", "dp-ftrl", "local"],
)
def test_a_model_that_clients_may_have_is_not_followed_by_another_of_its_round(
    changed: dict[str, Any], after: int, how: str, tmp_path: Path
) -> None:
    given = experiment(**changed)
    run = record(given, tmp_path, deployed=True)
    told = [(one["epsilon"], one["model_sha256"]) for one in run.rounds()]
    (first, *_) = (one for one in run.rounds() if one["round"] > after and one["participants"])
    lose_checkpoints(run, after, how)
    for _ in range(2):  # also once its records are gone
        with pytest.raises(RunError, match=rf"round {first['round']} was run again") as caught:
            goes_on(given, run, tuple(first["participants"][:1]))
        assert "\n" not in str(caught.value)
        assert max(run.checkpoint_rounds, default=0) < first["round"]
        assert status_of_run(run.path)["epsilon"] == told[-1][0]
    goes_on(given, run)  # with the same clients, the release is the same
    assert [(one["epsilon"], one["model_sha256"]) for one in run.rounds()] == told


def test_a_private_server_that_cannot_know_what_it_has_released_does_not_go_on(
    tmp_path: Path,
) -> None:
    run = record(experiment(), tmp_path, deployed=True)
    path = run.path / "released.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    assert [json.loads(line)["round"] for line in lines] == [1, 2, 3, 4]
    lose_checkpoints(run, 3, "removed")
    for kept, missing in (([], "round 1"), (lines[:2], "round 3"), ([lines[0], *lines[2:]], "2")):
        path.write_bytes(b"".join(kept))
        with pytest.raises(RunError, match=rf"released\.jsonl: .*{missing} is missing"):
            goes_on(experiment(), run)
    path.write_bytes(b"".join([*lines[:3], lines[3].replace(b"4", b"5", 1)]))
    with pytest.raises(RunError, match="line 4 is missing or damaged"):
        goes_on(experiment(), run)
    path.write_bytes(b"".join(lines)[:-9])  # a power cut: nobody has got what was not noted
    goes_on(experiment(), run)
    assert path.read_bytes().splitlines(keepends=True) == lines


def test_what_clients_may_have_is_noted_before_a_task_of_the_next_round_leaves(
    tmp_path: Path,
) -> None:
    noted: list[int] = []
    given = experiment()
    folder = RunFolder.create(tmp_path, "noted", given.to_yaml(), {})
    with simulate(given) as server:
        server.network.untrusted = True  # type: ignore[misc]
        carry = server.network.exchange

        def exchange(commands: Any) -> Any:
            if any(isinstance(one, SendTask) for one in commands):
                noted.append(Released(folder.path).last - server.state.round)
            return carry(commands)

        server.network.exchange = exchange  # type: ignore[method-assign]
        list(recorded(server, folder))
    assert set(noted) == {0}


def test_a_fork_counts_the_rounds_that_a_deployed_run_has_begun_and_forgotten(
    tmp_path: Path,
) -> None:
    run = record(experiment(), tmp_path, deployed=True)
    lose_checkpoints(run, 2, "removed")
    run.truncate_after(2)  # as a restart does, before its first round
    made = fork(run, 0, ["compute.train.learning_rate=0.01"])
    assert next(made.rounds()).epsilon == spent(4 + 1 + 1)


def test_trackers_and_tensorboard_get_of_a_private_deployment_what_follows_from_its_models(
    tmp_path: Path,
) -> None:
    told: list[dict[str, float]] = []

    class Sent(Tracker):
        def on_begin(self, run: Any) -> None:
            self._go_on(run, 0)

        def _send(self, round: int, numbers: Any) -> None:
            told.append(dict(numbers))

    def shown(deployed: bool) -> tuple[set[str], set[str], set[str]]:
        told.clear()
        given = experiment(rounds=1, privacy=ADAPTIVE)
        folder = RunFolder.create(tmp_path, "private", given.to_yaml(), {})
        with simulate(given, callbacks=[Sent()]) as server:
            server.network.untrusted = deployed  # type: ignore[misc]
            list(recorded(server, folder))
            files = {file.name for file in files_of(server)}
        events = EventAccumulator(str(folder.events_path))
        events.Reload()
        return set(told[0]), set(events.Tags()["scalars"]), files

    numbers, tags, files = shown(deployed=True)
    assert numbers == tags == {"accuracy", "loss", "epsilon", "learning_rate"}
    assert files == {"experiment.yaml", "model.safetensors"}
    numbers, tags, files = shown(deployed=False)
    assert {"up_bytes", "selected", "clip"} <= numbers
    assert {"clients/participants", "hooks/clip"} <= tags
    assert "report.html" in files


def killed_and_resumed(given: Experiment, tmp_path: Path, certificates: Certificates) -> RunFolder:
    """The run of a deployed server that is killed after three rounds, and goes on without the
    checkpoint of its last one."""
    file = tmp_path / "experiment.yaml"
    file.write_text(given.to_yaml())
    with Deployment(tmp_path, file, certificates) as deployment:
        server = deployment.serve()
        clients = [deployment.client(number, given.clients) for number in range(given.clients)]
        until(lambda: deployment.rounds() >= 3, lambda: server.output)
        server.kill()
        released = (deployment.run.path / "released.jsonl").read_bytes()
        lose_checkpoints(deployment.run, deployment.run.checkpoint_rounds[0] - 1, "damaged")
        resumed = deployment.resume()
        for process in (resumed, *clients):
            assert process.code() == 0, process.output
        assert (deployment.run.path / "released.jsonl").read_bytes().startswith(released)
        return deployment.run


def test_a_deployed_private_run_is_killed_resumed_and_replayed(
    tmp_path: Path, certificates: Certificates
) -> None:
    given = experiment(rounds=6, clients=3)
    run = killed_and_resumed(given, tmp_path, certificates)
    assert [one["epsilon"] for one in run.rounds()] == [spent(n) for n in range(1, 7)]
    assert replay(run, modules=None).same is True
    simulated = record(given, tmp_path / "simulated")
    # Another secret: other cohorts, and other noise.
    assert [one["participants"] for one in run.rounds()] != [
        one["participants"] for one in simulated.rounds()
    ]
    refused = fedmx("pack", str(run.path), "--out", "run.fedmx", cwd=tmp_path)
    assert refused.code != 0
    assert "who took part" in refused.err


def test_a_resumed_server_releases_no_second_model_of_a_round_when_another_client_is_away(
    certificates: Certificates, tmp_path: Path
) -> None:
    logic = {**TREE["logic"], "selector": {"name": "poisson", "probability": 0.9}}
    network = {"rejoin_s": 0.5, "wait_for": 2}
    given = experiment(rounds=100_000, clients=3, logic=logic, network=network)
    file = tmp_path / "experiment.yaml"
    file.write_text(given.to_yaml())
    with Deployment(tmp_path, file, certificates) as deployment:
        server = deployment.serve()
        clients = [deployment.client(number, 3) for number in range(3)]
        until(lambda: deployment.rounds() >= 4, lambda: server.output)
        server.kill()
        run = deployment.run
        last = run.checkpoint_rounds[-1]
        lose_checkpoints(run, last - 1, "removed")
        (again,) = (one for one in run.rounds() if one["round"] == last)
        clients[again["participants"][0]].kill()
        told = (run.path / "released.jsonl").read_bytes()
        resumed = deployment.resume()
        assert resumed.code() == 2, resumed.output
        assert f"round {last} was run again" in resumed.output
        assert (run.path / "released.jsonl").read_bytes() == told


def test_the_noise_is_that_of_the_formula() -> None:
    quiet = {**PRIVACY, "clip": 1e-9}
    with simulate(experiment(privacy={**quiet, "noise": 1e9}, rounds=1)) as simulation:
        before = simulation.weights.copy()
        list(simulation)
        moved = simulation.weights - before
    # sigma C / (q N), with updates that are clipped to nothing.
    assert np.std(moved) == pytest.approx(1.0 / (0.5 * 6), rel=0.1)
