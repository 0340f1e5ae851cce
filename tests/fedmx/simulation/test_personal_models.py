"""Personal models: trainers and own tensors in the file, and what each client's model is worth."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from fedmx import Assembly, Experiment, ExperimentError, FedmxError, simulate
from fedmx.cli.main import main as command
from fedmx.run import RunFolder
from fedmx.server.personal import worst_tenth
from layers.compute.data.dataset import Samples
from tests.fedmx.kinds import MODELS, TREE

NEAR = """
from dataclasses import dataclass

import numpy as np

from fedmx import LocalSgd


@dataclass(frozen=True)
class Near(LocalSgd):
    pull: float = 0.1

    def train(self, job):
        task, engine, context = job.task, job.engine, job.context
        engine.load(context.memory.get("personal", task.weights), task.buffers)
        for batch in engine.batches(job.data, task.training, task.seed):
            engine.step(batch)
        context.keep(personal=engine.weights - np.float32(self.pull) * engine.weights)
        engine.load(task.weights, task.buffers)
        return super().train(job)

    def personal(self, job):
        own = job.context.memory.get("personal", job.task.weights)
        job.engine.load(own, job.task.buffers)
"""
MEASURES = (
    *("personal_accuracy_mean", "personal_accuracy_variance", "personal_accuracy_worst_tenth"),
    *("personal_loss_mean", "newcomer_accuracy_mean", "newcomer_loss_mean"),
    *("client_accuracy_mean", "client_accuracy_worst_tenth", "client_loss_mean"),
)


def experiment(folder: Path, logic: dict[str, Any], **changed: Any) -> Experiment:
    compute = {**TREE["compute"], "evaluate": {"personal": True}, **changed.pop("compute", {})}
    text = json.dumps({**TREE, "compute": compute, "logic": logic, **changed})
    return Experiment.parse(text, "personal.yaml", folder=folder, modules=None)


def measures(experiment: Experiment) -> list[list[float]]:
    with simulate(experiment) as simulation:
        records = [round.record() for round in simulation]
    return [[record[name] for name in MEASURES] for record in records]


@pytest.mark.parametrize(
    "logic",
    [
        {"preset": {"name": "fedavg", "fraction": 0.7}, "trainer": {"name": "near:Near"}},
        {"preset": {"name": "apfl", "fraction": 0.7, "adaptive": True}},
    ],
)
def test_workers_keep_the_personal_models_that_one_process_does(tmp_path, logic) -> None:
    (tmp_path / "near.py").write_text(NEAR)
    alone = measures(experiment(tmp_path, logic))
    assert measures(experiment(tmp_path, logic, executor={"processes": 2})) == alone
    without = measures(experiment(tmp_path, {"preset": {"name": "fedavg", "fraction": 0.7}}))
    assert [one[0] for one in without] != [one[0] for one in alone]


def test_a_personal_model_is_the_global_one_with_the_clients_own_tensors(tmp_path) -> None:
    assembly = Assembly(experiment(tmp_path, {"preset": {"name": "fedper", "fraction": 0.5}}))
    with simulate(assembly) as simulation:
        *_, last = simulation
        state, memory_of = simulation.state, simulation.network.memory_of
    travels, engine = assembly.logic.local_tensors.travels, assembly.engine
    test = assembly.data.test_samples
    own_models, newcomers = [], []
    for client, rows in enumerate(assembly.parts[1]):
        own = Samples(test.x[rows], test.y[rows])
        weights = state.weights.copy()
        engine.load(weights, state.buffers)
        newcomers.append(engine.evaluate(own))  # the server's head is the initial one
        weights[~travels] = (
            memory_of(client, state).memory.get("mask", {}).get("own", weights[~travels])
        )
        engine.load(weights, state.buffers)
        own_models.append(engine.evaluate(own))
    of_own, of_newcomers = ([one.accuracy for one in models] for models in (own_models, newcomers))
    assert last.measured == pytest.approx(
        {
            "personal_accuracy_mean": np.mean(of_own),
            "personal_accuracy_variance": np.var(of_own),
            "personal_accuracy_worst_tenth": min(of_own),
            "personal_loss_mean": np.mean([one.loss for one in own_models]),
            "newcomer_accuracy_mean": np.mean(of_newcomers),
            "newcomer_loss_mean": np.mean([one.loss for one in newcomers]),
            # The global model is the one that a newcomer uses.
            "client_accuracy_worst_tenth": min(of_newcomers),
            "client_loss_mean": np.mean([one.loss for one in newcomers]),
        },
        rel=1e-6,
    )
    assert {*last.measured} == {name for name in MEASURES if name != "client_accuracy_mean"}
    assert last.measured["newcomer_accuracy_mean"] != last.measured["personal_accuracy_mean"]


def test_the_worst_tenth_has_at_least_one_client() -> None:
    assert worst_tenth([0.5, 0.25, 1.0]) == 0.25
    assert worst_tenth([0.1 * one for one in range(20)]) == pytest.approx(0.05)


def test_a_clients_own_tensors_and_buffers_are_sent_neither_way(tmp_path) -> None:
    (tmp_path / "norm_models.py").write_text(MODELS)  # a process knows one module of a name
    compute = {"model": "norm_models:Normed", "evaluate": {}}
    whole, norm = (
        simulate(experiment(tmp_path, {"preset": name}, compute=compute, rounds=2))
        for name in ("fedavg", "fedbn")
    )
    with whole, norm:
        own = 4 * 16 * 4  # gamma, beta, and two statistics of 16 units, in float32
        for before, after in zip(whole, norm, strict=True):
            less = before.down_bytes - after.down_bytes, before.up_bytes - after.up_bytes
            assert less == (own * len(after.participants),) * 2
        initial = norm.compute.engine.initial(norm.logic.seed)[1]
        assert np.array_equal(norm.state.buffers, initial), "the server's are the initial ones"


def test_own_tensors_that_start_from_a_file_come_with_the_first_task(tmp_path) -> None:
    with simulate(experiment(tmp_path, {"preset": "fedavg"}, rounds=1)) as simulation:
        list(simulation)
        started = simulation.weights

        layout = simulation.compute.engine.layout
        tensors = {one.name: started[one.start : one.stop].reshape(one.shape) for one in layout}
        save_file(tensors, tmp_path / "start.safetensors")
    start = str(tmp_path / "start.safetensors")
    logic = {"preset": {"name": "fedper", "fraction": 1.0}}
    with simulate(experiment(tmp_path, logic, compute={"start": start}, rounds=2)) as simulation:
        first, second = (one.down_bytes for one in simulation)
        assert first - second > 0, "later tasks bring what travels"
        head = ~simulation.logic.local_tensors.travels
        assert np.array_equal(simulation.weights[head], started[head])


@pytest.mark.parametrize(
    ("own", "said"), [(["tail.*"], "tail"), (["norm"], "norm"), (["head", "body"], "all tensors")]
)
def test_patterns_that_stand_for_nothing_or_for_everything_are_refused(tmp_path, own, said) -> None:
    with pytest.raises(ExperimentError, match=said):
        Assembly(experiment(tmp_path, {"own": own})).logic  # noqa: B018


def test_a_logic_behind_the_experiments_back_is_refused(tmp_path) -> None:
    assembly = Assembly(experiment(tmp_path, {}))
    with pytest.raises(ExperimentError, match="trainer"):
        assembly.logic = replace(assembly.logic, min_updates=2)
    with simulate(assembly) as simulation:
        simulation.logic = replace(simulation.logic, min_updates=2)
        with pytest.raises(FedmxError, match="replaced"):
            next(iter(simulation))


def test_a_new_key_changes_no_digest_and_a_trainer_does(tmp_path) -> None:
    plain = experiment(tmp_path, {})
    assert experiment(tmp_path, {"trainer": None, "own": None}).digest() == plain.digest()
    others = ({"trainer": "local-sgd"}, {"own": ["head"]}, {"trainer": {"name": "ditto", "lam": 1}})
    assert len({plain.digest(), *(experiment(tmp_path, one).digest() for one in others)}) == 4


def test_the_personal_model_of_a_client_is_exported(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    run = run_of({**TREE, "logic": {"preset": {"name": "fedper", "fraction": 0.5}}})
    for options in ([], ["--client", "2"], ["--client", "5"]):
        file = f"{'-'.join(options) or 'global'}.safetensors"
        capsys.readouterr()
        assert command(["export", run, "--to", "safetensors", "-o", file, *options]) == 0
        assert re.findall(r"client (\d+)", capsys.readouterr().out) == options[1:]
    whole, two, five = (
        load_file(f"{one}.safetensors") for one in ("global", "--client-2", "--client-5")
    )
    state = RunFolder.open(run).latest_checkpoint().state
    for client, model in ((2, two), (5, five)):
        kept = state["clients"]["ledgers"].get(client)
        assert np.array_equal(model["1.weight"], whole["1.weight"])
        if kept is None:
            assert np.array_equal(model["3.weight"], whole["3.weight"])
            continue
        memory = (kept["pending"] or kept["settled"])["memory"]["mask"]["own"]
        head = np.concatenate([model["3.weight"].reshape(-1), model["3.bias"]])
        assert np.array_equal(head, memory)


def run_of(tree: dict[str, Any]) -> str:
    """The folder of a run with the command."""
    Path("own.yaml").write_text(json.dumps(tree))
    assert command(["run", "own.yaml"]) == 0
    (run,) = Path("runs").iterdir()
    return str(run)


def test_a_client_that_there_is_not_has_no_model_to_export(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    run = run_of({**TREE, "rounds": 1})
    capsys.readouterr()
    assert command(["export", run, "--to", "safetensors", "--client", "6"]) == 2
    assert "client 6" in capsys.readouterr().err


def test_a_run_with_personal_models_replays_forks_and_is_verified(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    compute = {**TREE["compute"], "evaluate": {"personal": True}}
    logic = {"preset": {"name": "ditto", "fraction": 0.5}}
    run = run_of({**TREE, "compute": compute, "logic": logic})
    for words in (
        ["replay", run],
        ["replay", run, "--round", "3"],
        ["pack", run, "-o", "own.fedmx"],
        ["verify", "own.fedmx"],
        ["fork", run, "--round", "2", "--set", "logic.preset.lam=0.5"],
    ):
        assert command(words) == 0
    ends = [RunFolder.open(one).rounds()[-1] for one in Path("runs").iterdir()]
    assert len({one["model_sha256"] for one in ends}) == 1, "the global model is FedAvg's"
    assert len({one["personal_loss_mean"] for one in ends}) == 2
