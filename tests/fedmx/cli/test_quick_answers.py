"""What needs no model is answered without the packages that take long to import."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fedmx.command_line import fedmx

SLOW = (
    *("mxnet", "gluoncv", "numpy", "scipy", "sklearn", "matplotlib", "ray", "rich"),
    "cryptography",
)
LOADED = f"""
import sys
import fedmx.cli
try:
    fedmx.cli.main()
finally:
    roots = {{name.partition(".")[0] for name in sys.modules}}
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
    "presets selectors aggregators hooks models data partitions schedules losses devices uploads"
)


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(FILE, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        *((one, "") for one in ("--help", "--version", "run --help", "explain compute.train")),
        *((f"list {one}", "") for one in ("", *KINDS.split())),
        ("data list", "numpy rich scipy sklearn"),
        ("certs ca pki", "cryptography numpy"),
        ("explain stc", "numpy"),
    ],
)
def test_what_needs_no_model_imports_nothing_slow(tmp_path: Path, words: str, allowed: str) -> None:
    result = fedmx(*words.split(), cwd=tmp_path, code=LOADED)
    said, _, loaded = result.err.partition("loaded:")
    assert (result.code, said) == (0, "")
    assert set(loaded.split()) <= set(allowed.split())
    assert result.out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("rnu", "did you mean 'run'"),
        ("list --kid x", "no such option: --kid"),
        ("list hoks", "did you mean 'hooks'?"),
        ("explain fedavgg", "did you mean 'fedavg'?"),
        ("explain logic.select", "did you mean 'logic.selector'?"),
        ("run small.yam", "there is no such file"),
        ("run small.yaml --set compute.model=lenet6", "compute.model: unknown model 'lenet6'"),
        ("run small.yaml --set logic.preset.name=fedavgg", "did you mean 'fedavg'?"),
        ("run small.yaml --set logic.hooks.1.name=clipp", "unknown hook 'clipp'"),
        ("server small.yaml --set logic.selector=unifrm", "did you mean 'uniform'?"),
    ],
)
def test_a_typo_in_a_name_imports_nothing_slow(experiment: Path, words: str, text: str) -> None:
    result = fedmx(*words.split(), cwd=experiment.parent, code=LOADED)
    assert result.code == 2
    loaded = set(result.err.rpartition("loaded:")[2].split())
    # All problems of an experiment are shown at once, and the other parts are checked in numpy.
    assert loaded <= ({"numpy"} if "--set" in words else set())
    assert text in result.err


@pytest.mark.parametrize(
    "words", ["server small.yaml --listen 192.0.2.1:9100", "client 192.0.2.1:9100 --id 1"]
)
def test_an_address_that_needs_tls_is_refused_before_an_engine_is_imported(
    experiment: Path, words: str
) -> None:
    result = fedmx(*words.split(), cwd=experiment.parent, code=LOADED)
    said, _, loaded = result.err.rpartition("loaded:")
    assert (result.code, said.count("\n")) == (2, 1)
    assert "192.0.2.1:9100 is not on this machine and there is no TLS" in said
    assert not {"mxnet", "matplotlib", "sklearn"} & set(loaded.split())


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
