"""A user's mistake is one line that names the part, its line, the round and the client."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedmx import Experiment, ExperimentError, simulate
from fedmx.cli.main import main as command

PARTS = """
from dataclasses import dataclass, replace

import numpy as np

from layers.logic import ClientSide, Hook, ServerSide
from layers.logic.aggregators.mean import Mean


class Misspelt(Hook):
    class Server(ServerSide):
        def recieve(self, update, context):
            return update


class Alone(Hook):
    class Client(ClientSide):
        def send(self, update, context):
            replace(update, delta=-update.delta)


class Raises(Hook):
    class Server(ServerSide):
        def receive(self, update, context):
            return context.slot["a mask"]


class ClientRaises(Hook):
    class Client(ClientSide):
        def send(self, update, context):
            return context.slot["a mask"]


@dataclass(frozen=True)
class Precise(Mean):
    def finish(self, total, state):
        after = super().finish(total, state)
        return replace(after, weights=after.weights.astype(np.float64))


class Wide(Hook):
    width: float = 1.0


class Doubtful(Hook):
    class Server(ServerSide):
        def compute_weights_again(self):
            return 1


def pixels() -> dict:
    x = np.zeros((40, 1, 2, 2), np.uint8)
    y = np.arange(40) % 4
    return dict(x_train=x, y_train=y, x_test=x, y_test=y)


def from_one() -> dict:
    return {**pixels(), "y_train": 1 + np.arange(40) % 4, "y_test": 1 + np.arange(40) % 4}


def names() -> dict:
    return {**pixels(), "y_train": np.array(["cat", "dog"] * 20)}
"""
EXPERIMENT = """name: small
rounds: 2
clients: 2
compute:
  model: {name: 2nn, hidden: [4, 4]}
  data: PARTS:pixels
  normalise: {scale: 255}
  train: {steps: 2}
logic:
  hooks: []
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "parts_with_mistakes.py").write_text(PARTS)
    text = EXPERIMENT.replace("PARTS", "parts_with_mistakes")
    (folder / "small.yaml").write_text(text)
    (folder / "raw.yaml").write_text(text.replace("  normalise: {scale: 255}\n", ""))
    return folder


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def refused(here: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that fails, and return the one line that it says at last."""

    def run(*words: str, file: str = "small.yaml") -> str:
        capsys.readouterr()
        overrides = [one for word in words for one in ("--set", word)]
        assert command(["run", file, "--own-modules", *overrides]) == 2
        said = capsys.readouterr().err
        assert "Traceback" not in said
        (line,) = [one for one in said.splitlines() if one.startswith("fedmx: ")]
        assert said.rstrip().endswith(line)
        return line.removeprefix("fedmx: ").replace(str(here), "HERE")

    return run


def line_of(text: str) -> int:
    return 1 + PARTS.splitlines().index(text)


RECIEVE = "        def recieve(self, update, context):"
SEND = "        def send(self, update, context):"


@pytest.mark.parametrize(
    ("key", "part", "said"),
    [
        (
            "hooks",
            "Misspelt",
            "--set logic.hooks.0: Misspelt.Server.recieve .*did you mean 'receive'.* "
            rf"\(HERE/parts_with_mistakes.py:{line_of(RECIEVE)}\)",
        ),
        ("hooks", "Wide", r"--set logic.hooks.0: Wide .*width.*\(HERE/parts_with_mistakes.py:"),
        (
            "hooks",
            "Alone",
            "client 0, round 1: Alone.Client.send returned None; "
            rf".*\(HERE/parts_with_mistakes.py:{line_of(SEND)}\)",
        ),
        ("hooks", "ClientRaises", r"client 0, round 1: KeyError: 'a mask' \(HERE/parts_with_mista"),
        (
            "hooks",
            "Raises",
            r"round 1, client 0: Raises.Server.receive .*KeyError: 'a mask' \(HERE/parts_",
        ),
        ("aggregator", "Precise", r"round 1: Precise.finish .*float64.*float32.*\(HERE/parts_with"),
        ("data", "from_one", "parts_with_mistakes:from_one: labels .*1 to 4.*y_train, y_test = "),
        ("data", "names", "parts_with_mistakes:names: y_train .*'cat'.*np.unique.*np.searchsorted"),
    ],
)
def test_a_run_ends_with_one_line_that_says_what_and_where(
    refused: Callable[..., str], key: str, part: str, said: str
) -> None:
    name = f"parts_with_mistakes:{part}"
    section = "compute" if key == "data" else "logic"
    assert re.match(
        said,
        refused(f'{section}.{key}=["{name}"]' if key == "hooks" else f"{section}.{key}={name}"),
    )


def test_an_object_that_is_no_hook_is_named_from_python_too() -> None:
    class Stranger:
        pass

    compute = {"model": "2nn", "data": "digits", "normalise": {"scale": 16}}
    given = {"rounds": 1, "clients": 2, "compute": compute, "logic": {"hooks": [Stranger()]}}
    said = r"^logic\.hooks\.0: an object of Stranger is not a hook"
    with pytest.raises(ExperimentError, match=said):
        Experiment(**given)
    with pytest.raises(ExperimentError, match=said):  # parts of a mapping are made when it runs
        simulate(Experiment.from_dict(given))


def test_a_run_that_diverges_says_so_without_a_warning_of_numpy(
    refused: Callable[..., str], recwarn: pytest.WarningsRecorder
) -> None:
    train = "compute.train={epochs: 3, learning_rate: 1.0e+9}"
    line = refused("compute.engine=numpy", "compute.data=digits", train)
    assert "clients cannot train" in line
    assert not [one for one in recwarn if one.category is RuntimeWarning]


def test_a_missing_normalise_has_its_file_and_line(refused: Callable[..., str]) -> None:
    assert refused(file="raw.yaml").startswith("raw.yaml:4: compute.normalise: is not given")
    assert refused("compute.normalise.mean=[1, 2, 3]").startswith(
        "small.yaml:7: compute.normalise: mean has 3 values, but a sample of shape (1, 2, 2) has 1"
    )


def test_the_traceback_is_there_with_debug(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hook = 'logic.hooks=["parts_with_mistakes:Raises"]'
    assert command(["run", "small.yaml", "--own-modules", "--set", hook, "--debug"]) == 2
    said = capsys.readouterr().err
    assert said.count("Traceback") >= 2
    assert 'return context.slot["a mask"]' in said


def test_a_method_that_nobody_calls_is_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hook = 'logic.hooks=["parts_with_mistakes:Doubtful"]'
    assert command(["run", "small.yaml", "--own-modules", "--set", hook, "--dry-run"]) == 0
    doubted = [one for one in capsys.readouterr().err.splitlines() if "method" in one]
    assert len(doubted) == 1
    assert "Doubtful.Server.compute_weights_again is not a hook method" in doubted[0]


def test_a_dry_run_checks_everything_and_says_what_a_run_would_cost(
    here: Path, refused: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(here.iterdir())
    assert command(["run", "small.yaml", "--own-modules", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"clients: 2 with 20 samples\n", said)
    assert re.search(r"rounds:  2, each with 2 clients, of about 2 local steps\n", said)
    assert re.search(r"bytes:   [\d.]+ MiB down and [\d.]+ MiB up per client; about", said)
    assert re.search(r"memory:  [\d.,]+ MiB for data, model and one client", said)
    assert re.search(r"time:    about [\d.]+ s on one core; a local step takes", said)
    all_clients = ["--set", "logic.selector={name: uniform, fraction: 1.0}"]
    words = ["run", "small.yaml", "--own-modules", *all_clients, "--dry-run", "--json"]
    assert command(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["samples"], found["rounds"], found["steps"]) == ([20, 20], 2, 2)
    assert found["cohort"] == 2
    assert found["round_bytes"] == found["cohort"] * (found["task_bytes"] + found["update_bytes"])
    assert found["bytes"] == 2 * found["round_bytes"]
    hook = 'logic.hooks=["parts_with_mistakes:Alone"]'
    assert command(["run", "small.yaml", "--own-modules", "--set", hook, "--dry-run"]) == 2
    assert "Alone.Client.send returned None" in capsys.readouterr().err
    assert [one for one in sorted(here.iterdir()) if one.name != "__pycache__"] == [
        one for one in before if one.name != "__pycache__"
    ]


def test_no_output_replaces_a_file_that_fedmx_did_not_write(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["run", "small.yaml", "--own-modules", "--set", "run.folder=done"]) == 0
    (run,) = (here / "done").glob("small-*")
    mine = np.arange(3).tobytes()

    def said(*words: str) -> str:
        capsys.readouterr()
        assert command(list(words)) == 2
        return capsys.readouterr().err.removeprefix("fedmx: ").strip()

    victim = (here / "small.yaml").read_text()
    assert "such as small.html" in said("report", str(run), "-o", "small.yaml")
    assert (here / "small.yaml").read_text() == victim
    for name, words in {
        "page.html": ["report", str(run), "-o"],
        "net.onnx": ["export", str(run), "--own-modules", "--to", "onnx", "-o"],
        "net.safetensors": ["export", str(run), "--own-modules", "--to", "torch", "-o"],
        "flat.safetensors": ["export", str(run), "--own-modules", "--to", "safetensors", "-o"],
    }.items():
        (here / name).write_bytes(mine)
        assert said(*words, name).startswith(f"{name}: fedmx did not write this file")
        assert (here / name).read_bytes() == mine
        (here / name).unlink()
        assert command([*words, name]) == 0
        assert command([*words, name]) == 0  # its own file is replaced
        assert "ends in" in said(*words, "net.txt")
