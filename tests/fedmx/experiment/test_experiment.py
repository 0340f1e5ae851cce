"""An experiment file becomes typed values, overrides change them, and writing loses nothing."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from fedmx import Experiment, ExperimentError, Hook
from fedmx.components.component import Component
from fedmx.experiment.keys import keys_of
from tests.fedmx.experiment.texts import LEAST, ROOT, WHOLE, refused


@dataclass(frozen=True)
class Noise(Hook):
    deviation: float = 0.1
    layers: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class Named(Hook):
    name: str = "x"


class Plain:
    pass


def test_a_file_becomes_typed_values(tmp_path: Path) -> None:
    path = tmp_path / "exp.yaml"
    path.write_text(WHOLE)
    experiment = Experiment.read(path)
    assert (experiment.rounds, experiment.clients, experiment.seed) == (150, 100, 1)
    assert (experiment.stop.accuracy, experiment.compute.train.learning_rate) == (0.98, 0.02)
    assert experiment.compute.partition == Component("shards", {"per_client": 2})
    assert [hook.name for hook in experiment.logic.hooks] == ["clip", "mine.hooks:Noise"]
    assert experiment.run.folder == Path("runs")


def test_three_keys_are_enough() -> None:
    experiment = Experiment.parse(LEAST)
    assert experiment.logic.preset == Component("fedavg")
    assert experiment.compute.partition == Component("iid")
    assert experiment.compute.train.schedule == Component("constant")
    assert experiment.clients_awaited == 20


def test_an_experiment_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Experiment.parse(LEAST).rounds = 6  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1.5E+2", 150.0),
        ("-7", -7),
        (".inf", float("inf")),
        ("yes", "yes"),
        ("on", "on"),
        ("010", "010"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("1_000", "1_000"),
        ("0x10", "0x10"),
        ("~", None),
        ("null", None),
        ("True", True),
        ("'5'", "5"),
        ("<<", "<<"),
        ("=", "="),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    given = LEAST + f"logic: {{hooks: [{{name: 'own:Hook', x: {text}}}]}}"
    (hook,) = Experiment.parse(given, modules=["own"]).logic.hooks
    assert hook.settings == {"x": value}


def test_all_means_every_sample_and_every_client() -> None:
    experiment = Experiment.parse(LEAST, "exp.yaml", ["compute.train.batch_size=all"])
    assert (experiment.compute.train.batch_samples, experiment.network.wait_for) == (0, "all")
    some = experiment.with_overrides(["network.wait_for=7", "compute.train.batch_size=32"])
    assert (some.clients_awaited, some.compute.train.batch_samples) == (7, 32)


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [("127.0.0.1:7070", "127.0.0.1", 7070), ("[::1]:0", "::1", 0), ("a.org:80", "a.org", 80)],
)
def test_an_address_is_a_host_and_a_port(address: str, host: str, port: int) -> None:
    network = Experiment.parse(LEAST + f"network: {{address: '{address}'}}").network
    assert (network.host, network.port) == (host, port)


def test_a_written_experiment_reads_back_equal() -> None:
    for text in (WHOLE, LEAST):
        experiment = Experiment.parse(text)
        again = Experiment.parse(experiment.to_yaml())
        assert again == experiment
        assert again.to_yaml() == experiment.to_yaml()
        assert again.digest() == experiment.digest()
        assert Experiment.from_dict(experiment.tree()) == experiment


def test_every_key_is_written_with_its_default() -> None:
    sections = ["network.tls={ca: a, certificate: b, key: c}", "compute.normalise.scale=2"]
    sections += ["compute.evaluate.clients.every=1"]
    written = {
        executor: yaml.safe_load(
            Experiment.parse(LEAST, "exp.yaml", [*sections, f"executor={executor}"]).to_yaml()
        )
        for executor in ("ray", "cohort")  # there can be one
    }
    for place, _ in keys_of(Experiment):
        node = written["cohort" if "cohort" in place else "ray"]
        for part in place:
            node = node[part]


def test_an_experiment_can_be_copied_and_sent_to_a_worker_process() -> None:
    experiment = Experiment.parse(WHOLE)
    assert pickle.loads(pickle.dumps(experiment)) == experiment  # noqa: S301 - our own bytes
    assert copy.deepcopy(experiment) == experiment


def test_the_digest_is_of_what_determines_the_result() -> None:
    digest = Experiment.parse(WHOLE).digest()
    assert digest == "c6a322e38545254e1aa66913f6f8f2b70d89f99320bb2c2d49a58f592b54c2ea"
    same = ["name=x", "network.address=a:1", "run.folder=elsewhere", "run.checkpoint.keep=9"]
    assert Experiment.parse(WHOLE, "other.yaml", same).digest() == digest
    others = {
        Experiment.parse(WHOLE, "exp.yaml", [change]).digest()
        for change in (
            "seed=2",
            "rounds=149",
            "clients=99",
            "compute.train.learning_rate=0.03",
            "logic.selector.fraction=0.2",
            "logic.hooks=[]",
            "compute.model=2nn",
        )
    }
    assert len(others - {digest}) == 7


def test_the_digest_is_the_same_in_another_process() -> None:
    code = (
        "import sys; from fedmx.experiment import Experiment\n"
        "print(Experiment.parse(sys.stdin.read()).digest())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=WHOLE,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    assert done.stdout.strip() == Experiment.parse(WHOLE).digest()


def test_an_experiment_is_made_from_python_as_from_a_file() -> None:
    made = Experiment(rounds=5, clients=20, compute={"model": "lenet5", "data": "digits"})
    assert made == Experiment.parse(LEAST)
    with pytest.raises(ExperimentError, match=r"^rounds: must be at least 1, not 0$"):
        Experiment(rounds=0, clients=20, compute={"model": "lenet5", "data": "digits"})


def test_a_dataclass_given_as_an_object_is_written_by_its_name_and_fields() -> None:
    experiment = Experiment.from_dict(
        {
            "rounds": 1,
            "clients": 2,
            "compute": {"model": Plain, "data": "digits"},
            "logic": {"hooks": [Noise(0.5), "clip"]},
        }
    )
    noise = experiment.logic.hooks[0]
    assert noise.object == Noise(0.5)
    assert noise.reference() == {"name": f"{__name__}:Noise", "deviation": 0.5, "layers": [1, 2]}
    assert experiment.portable
    experiment.require_portable()
    again = Experiment.parse(experiment.to_yaml())
    assert again.compute.model == Component(f"{__name__}:Plain")
    assert again.digest() == experiment.digest()
    assert experiment.with_overrides(["rounds=3"]).logic.hooks[0].object is noise.object


def test_objects_that_a_file_cannot_hold_are_refused_for_a_deployment() -> None:
    class Local:
        pass

    experiment = Experiment.from_dict(
        {
            "rounds": 1,
            "clients": 2,
            "compute": {"model": Local, "data": Plain()},
            "logic": {"hooks": [Named(), Noise(layers=(object(),)), "clip"]},  # type: ignore[arg-type]
        }
    )
    assert not experiment.portable
    with pytest.raises(ExperimentError) as caught:
        experiment.require_portable()
    assert [line.split(": ")[0] for line in caught.value.problems] == [
        "compute.model",
        "compute.data",
        "logic.hooks.0",
        "logic.hooks.1",
    ]
    written = experiment.to_yaml()
    assert "portable: false" in written
    assert f"data: <object {__name__}:Plain>" in written
    again = Experiment.parse(written)
    assert not again.portable
    assert again.digest() == experiment.digest()
    assert Experiment.parse(again.to_yaml()) == again


def test_to_read_experiments_and_run_folders_imports_nothing_slow() -> None:
    code = (
        "import sys, fedmx.experiment, fedmx.run.events\n"
        "print({'mxnet', 'matplotlib', 'tensorboard'} & set(sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"


def test_the_clients_of_without_are_sorted_and_counted_once() -> None:
    experiment = Experiment.parse(LEAST + "without: [7, 3, 7]\n")
    assert (experiment.without, experiment.clients_awaited) == ((3, 7), 18)
    assert Experiment.parse(experiment.to_yaml()) == experiment
    said = refused(LEAST, "without=[3]", "logic.min_updates=20")
    assert "(20) less those of without (1), not 20" in said


def test_a_client_that_is_left_out_changes_the_digest() -> None:
    one, other = Experiment.parse(LEAST), Experiment.parse(LEAST + "without: [3]\n")
    assert one.digest() == "56ecacc4318fdabd3af249bdac0205ae7e83edde3111dc14b7d91b8200b62a72"
    assert other.digest() != one.digest()


def test_an_override_reaches_into_a_component() -> None:
    experiment = Experiment.parse(
        LEAST,
        "exp.yaml",
        [
            "logic.selector=uniform",
            "logic.selector.fraction=0.2",
            "logic.hooks.0=clip",
            "logic.hooks.0.norm=2",
            'logic.hooks.1={name: "own:Noise", deviation: 1e-3}',
            "compute.partition=dirichlet",
            "compute.partition.alpha=1",
            "compute.normalise.mean=[0.1, 0.2]",
            "compute.normalise.mean.1=0.3",
            "network.tls.ca=a",
            "network.tls={ca: a, certificate: b, key: c}",
            "network.tls.key=k",
        ],
    )
    assert experiment.logic.selector == Component("uniform", {"fraction": 0.2})
    assert experiment.logic.hooks == (
        Component("clip", {"norm": 2}),
        Component("own:Noise", {"deviation": 0.001}),
    )
    assert experiment.compute.partition == Component("dirichlet", {"alpha": 1})
    assert experiment.compute.normalise.mean == (0.1, 0.3)
    assert experiment.network.tls.key == Path("k")


def test_an_override_names_a_component_where_none_is_yet() -> None:
    given = Experiment.parse(LEAST, overrides=["logic.aggregator.name=mean"])
    assert given.logic.aggregator == Component("mean")
    more = ["logic.aggregator.name=trimmed-mean", "logic.aggregator.trim=0.2"]
    aggregator = Experiment.parse(LEAST, overrides=more).logic.aggregator
    assert aggregator == Component("trimmed-mean", {"trim": 0.2})


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("quick start.yaml", "quick-start"),
        ("lenet5.v2.yaml", "lenet5.v2"),
        ("--x.yaml", "x"),
        (f"{'a' * 200}.yaml", "a" * 100),
        ("实验.yaml", "experiment"),
    ],
)
def test_an_experiment_without_a_name_has_that_of_its_file(
    file: str, name: str, tmp_path: Path
) -> None:
    path = tmp_path / file
    path.write_text(LEAST)
    assert Experiment.read(path).name == name
    assert Experiment.read(path, ["name=other"]).name == "other"
    path.write_text(f"name: given\n{LEAST}")
    assert Experiment.read(path).name == "given"


def test_an_override_does_not_change_the_given_mapping() -> None:
    tree = yaml.safe_load(WHOLE)
    before = copy.deepcopy(tree)
    Experiment.from_dict(tree, ["logic.selector.fraction=1", "logic.hooks.1.deviation=3", "seed=4"])
    assert tree == before


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed", "--set 'seed': must be PATH=VALUE"),
        ("=1", "--set '=1': must be PATH=VALUE"),
        ("a..b=1", "--set 'a..b=1': must be PATH=VALUE"),
        ("sed=1", "--set sed: unknown key 'sed'; did you mean 'seed'?"),
        ("logic.selct.x=1", "--set logic.selct: unknown key 'selct'; did you mean 'selector'?"),
        ("mu=1", "--set mu: unknown key 'mu'; the keys here are"),
        (
            "learning_rate=1",
            "--set learning_rate: is not a key here; did you mean compute.train.learn",
        ),
        ("rounds.x=1", "--set rounds.x: rounds is a single value and has no keys"),
        ("logic.selector.x=1", "--set logic.selector.x: no component is named yet"),
        ("logic.hooks.1=x", "--set logic.hooks.1: logic.hooks has no items; 0 appends one"),
        ("logic.hooks.a=x", "--set logic.hooks.a: logic.hooks has no items; 0 appends one"),
        ("seed=*x", "--set seed: anchors and aliases"),
        ("seed={a: 1", "--set seed: is not YAML"),
        ("seed=-1", "--set seed: must be at least 0, not -1"),
        ("seed=", "--set seed: must be a whole number, not null"),
    ],
)
def test_a_wrong_override_is_reported_in_one_line(override: str, message: str) -> None:
    said = refused(LEAST, override)
    assert said.startswith(message)
    assert "\n" not in said


def test_dir_has_the_names_of_fedmx_and_none_of_pydantic() -> None:
    experiment = Experiment(rounds=1, clients=2, compute={"model": "lenet5", "data": "digits"})
    for names in (set(dir(Experiment)), set(dir(experiment))):
        assert {"rounds", "clients", "compute", "read", "to_yaml", "digest"} <= names
        assert not {name for name in names if name.startswith("model_")}
        assert not names & {"json", "dict", "copy", "construct", "parse_obj"}
