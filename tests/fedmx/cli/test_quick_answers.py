"""What needs no model is answered without the packages that take long to import."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fedmx.command_line import fedmx

SLOW = (
    *("mxnet", "gluoncv", "numpy", "scipy", "sklearn", "matplotlib", "ray", "rich"),
    *("cryptography", "pandas"),
)
# One process answers several commands; after each it says what it has loaded.
LOADED = f"""
import sys
from fedmx.cli import main
for words in sys.argv[1:]:
    code = 0
    try:
        main(words.split())
    except SystemExit as ended:
        code = ended.code
    roots = {{name.partition(".")[0] for name in sys.modules}}
    print("exit code:", code, file=sys.stderr)
    print("loaded:", *sorted(roots & set({SLOW!r})), file=sys.stderr)
"""
FILE = """\
rounds: 1
clients: 2
compute: {model: lenet5, data: digits}
logic:
  selector: uniform
  hooks: [fedprox, {name: clip, norm: 1}]
"""
KINDS = (
    "presets selectors aggregators hooks models data partitions schedules optimisers losses "
    "devices uploads"
)


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(FILE, encoding="utf-8")
    return path


def answered(folder: Path, *commands: str) -> list[tuple[str, int, set[str]]]:
    """What a new process says on stderr to each command, its exit code, and what is loaded then."""
    result = fedmx(*commands, cwd=folder, code=LOADED)
    assert result.code == 0, result.err
    shape = re.compile(r"(.*?)exit code: (\d)\nloaded:(.*?)\n", re.DOTALL)
    found = [
        (said, int(code), set(loaded.split())) for said, code, loaded in shape.findall(result.err)
    ]
    assert len(found) == len(commands)
    return found


@pytest.mark.parametrize(
    ("commands", "allowed"),
    [
        (
            (
                *("--help", "--version", "run --help", "explain compute.train", "list"),
                *(f"list {one}" for one in KINDS.split()),
            ),
            "",
        ),
        (("data list",), "numpy rich scipy sklearn"),
        (("certs ca pki",), "cryptography numpy"),
        (("explain stc",), "numpy"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_needs_no_model_imports_nothing_slow(
    tmp_path: Path, commands: tuple[str, ...], allowed: str
) -> None:
    for said, code, loaded in answered(tmp_path, *commands):
        assert (said, code) == ("", 0)
        assert loaded <= set(allowed.split())


def test_a_run_imports_only_what_it_uses(experiment: Path) -> None:
    small = "run small.yaml --set compute.model=2nn --set compute.normalise.scale=16"
    ((said, code, loaded),) = answered(experiment.parent, small)
    assert code == 0, said
    assert loaded <= {"mxnet", "numpy", "scipy", "matplotlib", "rich", "cryptography"}


def test_a_typo_in_a_name_imports_nothing_slow(experiment: Path) -> None:
    # All problems of an experiment are shown at once, and the other parts are checked in numpy.
    for typos, allowed in ((TYPOS, set()), (TYPOS_OF_PARTS, {"numpy"})):
        found = answered(experiment.parent, *typos)
        for part, (said, code, loaded) in zip(typos.values(), found, strict=True):
            assert (code, part in said, loaded <= allowed) == (2, True, True), said


TYPOS = {
    "rnu": "did you mean 'run'",
    "list --kid x": "no such option: --kid",
    "list hoks": "did you mean 'hooks'?",
    "explain fedavgg": "did you mean 'fedavg'?",
    "explain logic.select": "did you mean 'logic.selector'?",
    "run small.yam": "there is no such file",
}
TYPOS_OF_PARTS = {
    "run small.yaml --set compute.model=lenet6": "compute.model: unknown model 'lenet6'",
    "run small.yaml --set logic.preset.name=fedavgg": "did you mean 'fedavg'?",
    "run small.yaml --set logic.hooks.1.name=clipp": "unknown hook 'clipp'",
    "server small.yaml --set logic.selector=unifrm": "did you mean 'uniform'?",
}


def test_an_address_that_needs_tls_is_refused_before_an_engine_is_imported(
    experiment: Path,
) -> None:
    commands = "server small.yaml --listen 192.0.2.1:9100", "client 192.0.2.1:9100 --id 1"
    for said, code, loaded in answered(experiment.parent, *commands):
        assert (code, said.count("\n")) == (2, 1)
        assert "192.0.2.1:9100 is not on this machine and there is no TLS" in said
        assert not {"mxnet", "matplotlib", "sklearn"} & loaded


def test_all_unknown_names_of_a_file_are_shown_with_their_lines(experiment: Path) -> None:
    wrong = FILE.replace("uniform", "unifrm").replace("clip,", "clipp,").replace("digits", "digit")
    experiment.write_text(wrong, encoding="utf-8")
    lines = fedmx("run", "small.yaml", cwd=experiment.parent).err.splitlines()
    assert lines[0] == "fedmx: small.yaml: 3 problems"
    starts = [
        "  small.yaml:3: compute.data: unknown data set 'digit'; did you mean 'digits'?",
        "  small.yaml:5: logic.selector: unknown selector 'unifrm'; did you mean 'uniform'?",
        "  small.yaml:6: logic.hooks.1: unknown hook 'clipp'; did you mean 'clip'?",
    ]
    assert [line[: len(start)] for line, start in zip(lines[1:], starts, strict=True)] == starts
