"""A command line that cannot be right ends before anything is run, with one line that names why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fedmx import Experiment, RunFolder
from fedmx.cli.main import main
from tests.fedmx.golden.command_pages import OWN, trial
from tests.fedmx.golden.pages import FACTS, make

PKI = "--ca ca.pem --cert cert.pem --key key.pem"
NO_DATA = '--set compute.data={"name":"arrays","path":"missing.npz"} --set compute.engine=numpy'
TRACE = "--set clock.devices=lognormal --set clock.availability=trace"
NOT_OURS = "own.yaml:12: logic.hooks.0: own_hook:Mine"

REFUSED = [
    ("rnu trial.yaml", "'run'"),
    ("certs al pki", "'all'"),
    ("run", "'FILE'"),
    ("run trial.yaml --sett rounds=3", "--sett"),
    ("run none.yaml", "none.yaml: there is no such file"),
    ("run .", ".: is a folder"),
    ("run trial.yaml --set compute.modle=2nn", "'model'"),
    ("run trial.yaml --set compute.model=lenet", "'lenet5'"),
    ("run trial.yaml --set rounds", "PATH=VALUE"),
    ("run trial.yaml --set clock.deadline=5", "'deadline_s'"),
    ("run trial.yaml --set clock.devices=knapsak", "'knapsack'"),
    (f"run trial.yaml {TRACE}", "clock.availability.path: is missing"),
    ("run trial.yaml --set clock.dropout=0.5", "clock.dropout: needs simulated devices"),
    ("run trial.yaml --set clock.availability=chance", "clock.availability: needs simulated"),
    ("run trial.yaml --set clock.uploads=serial", "clock.uploads: needs simulated devices"),
    ("run trial.yaml --set executor.proceses=2", "'processes'"),
    ("run trial.yaml --executor processes:0", "--executor 'processes:0'"),
    ("run trial.yaml --set logic.preset=online-kp", "clock.deadline_s"),
    ("run trial.yaml --set logic.preset=fedaim --set logic.preset.classes=5", "classes to 10"),
    ("resume none", "none: there is no such folder"),
    ("resume .", "not a run folder"),
    ("report none -o .", ".: is a folder"),
    ("report none --csv /", "/NAME.csv"),
    ("export none --to onnx -o ..", "../NAME.onnx"),
    ("export none --to torch -o class.safetensors", "class_model.safetensors"),
    ("export none --to torch -o torch.safetensors", "torch_model.safetensors"),
    ("runs trial.yaml", "trial.yaml: is a file"),
    ("runs", "runs: there is no such folder"),
    ("list hoks", "'hooks'"),
    ("list nope", "aggregators, attacks"),
    ("data get mnsit", "'mnist'"),
    ("data get arrays", "{name: arrays, path: ...}"),
    ("server trial.yaml --listen here", "HOST:PORT"),
    ("client here --id 1", "HOST:PORT"),
    ("certs client pki 1", "no usable CA"),
    ("certs show trial.yaml", "trial.yaml: not a certificate"),
    ("run trial.yaml --executor threads:3", "--executor 'threads:3'"),
    ("run trial.yaml --executor processes:", "--executor 'processes:'"),
    ("run trial.yaml --executor :3", "--executor ':3'"),
    ("run own.yaml --dry-run", NOT_OURS),
    ("run own.yaml --module another --dry-run", NOT_OURS),
    ("run own.yaml --set rounds=0 --own-modules", "--set rounds:"),
    ("run trial.yaml --set compute.engine=torch --set compute.model=lstm", "model lstm"),
    ("run trial.yaml --set compute.normalise.std=[]", "trial.yaml:10: compute.normalise:"),
    ("run trial.yaml --set rounds.least=1", "rounds is a single value"),
    ("run trial.yaml --set compute.train=3", "--set compute.train:"),
    ("run trial.yaml --set compute.partition.per_client.least=1", "compute.partition.per_client"),
    ("run trial.yaml --set logic.hooks.0.mu=1", "--set logic.hooks.0.mu:"),
    ("run trial.yaml --set logic.hooks.name=clip", "--set logic.hooks.name:"),
    ("run trial.yaml --set logic.preset.mu=1", "'mu'"),
    ("run trial.yaml --set compute.device=cuda", "compute.device:"),
    ("server own.yaml --listen 0.0.0.0:9100", NOT_OURS),
    ("data show own.yaml", NOT_OURS),
    ("sweep own.yaml --vary rounds=1,2 --seeds 1", NOT_OURS),
    ("sweep trial.yaml", "--vary"),
    ("ctl simulated pausing", "'pause'"),
    ("ctl simulated kick", "kick 7"),
    ("ctl simulated pause 7", "pause: takes no client"),
    ("ctl simulated pause", "simulated: this is a simulation"),
    ("ctl served pause", "served: the run is not running (done: all 8 rounds were run)"),
    ("ctl killed kick 7", "killed: the run is not running (interrupted"),
    ("ctl none pause", "none:"),
    ("resume served", "served: the run is done"),
    ("resume elsewhere", "192.0.2.1:9100"),
    ("resume missing", "missing.npz:"),
    ("resume missing --patience 0", "network.patience_s"),
    ("resume older", "0.0.1"),
    ("resume older --allow-version --patience 3", "missing.npz:"),
    ("replay simulated --client 3", "--round"),
    ("replay simulated --break own_hook:Mine.send", "--round"),
    ("replay simulated --round 1 --break a:B.send --executor serial", "--executor"),
    ("replay simulated --round 1 --client 3 --executor serial", "--executor"),
    ("list engines", "'engines'"),
    ("list --engine jax", "'jax'"),
    ("explain fedprx", "'fedprox'"),
    ("new project", "--hook"),
    ("new project --hook --model", "(2 of them"),
    ("new project --data json", "--data json:"),
    ("export simulated --to onix", "'onnx'"),
    ("export simulated", "'--to'"),
    ("export simulated --to onnx --out model.txt", ".onnx"),
    ("export simulated --to torch --out a.pt", ".safetensors"),
    ("export simulated --to torch --out a-model.safetensors", "a_model.safetensors"),
    ("status none", "none:"),
    ("report none", "none:"),
    ("report simulated --output page.pdf", "page.html"),
    ("report simulated --csv table.txt", "table.csv"),
    ("report simulated --latex table.txt", "table.tex"),
    ("client localhost:9100", "--id"),
    ("client localhost:9100 --partition 3/3", "--partition 3/3:"),
    ("client localhost:9100 --partition 1-3", "--partition 1-3:"),
    ("client localhost:9100 --partition 1/3 --id 2", "--id 2 and --partition 1/3"),
    ("client localhost:9100 --id 2 --ca ca.pem", "--cert and --key"),
    ("client localhost:9100 --id 2 --data none.npz", "none.npz:"),
    ("client example.org:9100 --id 2", "--insecure"),
    ("client example.org:9100 --id 2 --module missing_one", "--insecure"),
    ("client example.org:9100 --id 2 --insecure --module missing_one", "--module missing_one:"),
    (f"client localhost:9100 --id 2 {PKI} --module missing_one", "ca.pem"),
    ("client localhost:9100 --id 2 --token-file token", "token:"),
    ("server trial.yaml --crl crl.pem", "--crl needs --ca"),
    ("server trial.yaml --ca ca.pem --key server.key", "--cert"),
    (f"server trial.yaml --listen 0.0.0.0:9100 {NO_DATA}", "0.0.0.0:9100"),
    (f"server trial.yaml --listen 0.0.0.0:9100 --insecure {NO_DATA}", "missing.npz:"),
    (f"server trial.yaml {PKI} {NO_DATA}", "ca.pem"),
    (f"server trial.yaml {NO_DATA}", "missing.npz:"),
    ("server trial.yaml --set compute.engine=numpy --token-file token", "token:"),
    ("--log-format xml list", "--log-format 'xml'"),
    ("--log-format", "--log-format ''"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with two experiments and the run folders of five runs."""
    parent = tmp_path_factory.mktemp("refused")
    (parent / "trial.yaml").write_text(trial())
    (parent / "own_hook.py").write_text(OWN)
    (parent / "own.yaml").write_text(
        trial().replace("logic: {", "logic: {hooks: ['own_hook:Mine'], ")
    )
    runs = {"simulated": make(parent, "simulated")}
    runs |= {name: make(parent, name, {"mode": "server"}) for name in ("served", "killed")}
    runs["served"].finish("done", "all 8 rounds were run")
    given = Experiment.parse(trial(), overrides=NO_DATA.split()[1::2])
    for name, more in (
        ("elsewhere", {"address": "192.0.2.1:9100"}),
        ("missing", {"address": "127.0.0.1:9100"}),
        ("older", {"fedmx": "0.0.1"}),
    ):
        facts = {**FACTS, "mode": "server", "digest": given.digest(), "run": "the run", **more}
        runs[name] = RunFolder.create(parent, name, given.to_yaml(), facts)
    for name, run in runs.items():
        run.path.rename(parent / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(parent)
        yield parent


@pytest.mark.parametrize(("words", "part"), REFUSED, ids=[words for words, _ in REFUSED])
def test_a_command_line_that_cannot_be_right_is_one_line(
    words: str, part: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = sorted(folder.iterdir())
    assert main(words.split()) == 2
    said = capfd.readouterr()
    (line,) = said.err.splitlines()
    assert line.startswith("fedmx: ")
    assert part in line
    assert said.out == ""
    assert sorted(folder.iterdir()) == before
