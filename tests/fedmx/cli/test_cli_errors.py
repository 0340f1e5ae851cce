"""An error of the user is one line that says what is wrong, where, and what to do."""

from __future__ import annotations

import gzip
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fedmx import Experiment
from fedmx.cli.options import executor_override
from fedmx.experiment import ExecutorSection
from tests.fedmx.command_line import ROOT, copied, environment, fedmx
from tests.fedmx.golden.command_pages import said
from tests.network.conftest import Certificates
from tests.network.test_certificates import valid_on

EXPERIMENT = """
name: small
rounds: 2
clients: 2
compute:
  model: 2nn
  data: digits
  normalise: {scale: 16}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    return tmp_path


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("strangers"))


def test_the_problems_of_a_file_are_a_list_with_their_lines(folder: Path) -> None:
    # Unknown names are shown first: that takes no time. Then come all wrong values.
    for text, line in ((EXPERIMENT.replace("2nn", "3nn"), 6), (EXPERIMENT, 8)):
        (folder / "small.yaml").write_text(text.replace("16", "x"))
        result = fedmx("run", "small.yaml", cwd=folder)
        assert (result.code, result.out) == (2, "")
        assert "Traceback" not in result.err
        assert f"small.yaml:{line}" in result.err
        assert not (folder / "runs").exists()


@pytest.mark.parametrize("place", [0, 1, 3])
def test_debug_anywhere_on_the_line_shows_the_traceback(folder: Path, place: int) -> None:
    words = ["resume", "none"]
    words.insert(place, "--debug")
    result = fedmx(*words, cwd=folder)
    assert result.code == 2
    assert result.err.startswith("Traceback")
    assert result.err.splitlines()[-1].startswith("fedmx: none: there is no such folder")


def test_data_that_are_missing_or_damaged_are_named(folder: Path) -> None:
    damaged = folder / "data" / "mnist" / "train-images-idx3-ubyte.gz"
    damaged.parent.mkdir(parents=True)
    for suffix in ("train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"):
        (damaged.parent / f"{suffix}.gz").write_bytes(gzip.compress(b"no images"))
    damaged.write_bytes(b"not even compressed")
    data = str(folder / "data")
    assert str(damaged) in fedmx("data", "get", "mnist", cwd=folder, FEDMX_DATA=data).error_text
    error = fedmx("data", "get", "mnist", cwd=folder, FEDMX_DATA="/none").error_text
    assert error == "FEDMX_DATA is /none, which is not a folder; correct it or leave it out"
    assert "FEDMX_DATA is /none" in fedmx("data", "list", cwd=folder, FEDMX_DATA="/none").error_text


def test_certificates_that_do_not_fit_are_refused_before_anything_is_loaded(
    folder: Path, certificates: Certificates, strangers: Certificates
) -> None:
    own = certificates.client("client-0")
    late = valid_on(certificates, folder)
    ca, stranger = certificates.folder / "ca.pem", strangers.client("client-0")
    for files, says in (
        ((ca, folder / "none.pem", own.key), "none.pem cannot be read (No such file"),
        ((strangers.folder / "ca.pem", own.certificate, own.key), "was not signed by the CA"),
        ((ca, late.certificate, late.key), f"{late.certificate} expired on"),
        ((ca, late.certificate, late.key), "fedmx certs sign --again"),
        ((ca, own.certificate, stranger.key), "does not belong to the certificate"),
        ((ca, own.key, own.key), "is not a certificate in PEM format"),
    ):
        words = [
            text for pair in zip(("--ca", "--cert", "--key"), files, strict=True) for text in pair
        ]
        for command in (["client", "10.1.2.3:70", "--id", "0"], ["server", "small.yaml"]):
            assert says in fedmx(*command, *map(str, words), cwd=folder).error_text


def test_a_port_in_use_leaves_no_folder_behind(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        words = ("server", "small.yaml", "--listen", address, "--log-format", "text")
        error = fedmx(*words, cwd=folder).error_text
    assert error == f"{address}: the port is in use: stop the other program or choose another port"
    assert not (folder / "runs").exists()


def test_a_server_that_is_not_there_is_sought_for_as_long_as_was_asked(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
    result = fedmx("client", address, "--id", "0", "--give-up", "0.5", cwd=folder)
    lines = [line.partition("Z ")[2] for line in result.err.splitlines()]  # without the time
    assert result.code == 2
    assert lines[0] == f"client 0: looking for {address}, for 0.5 s"
    assert [one for one in lines if "trying again" in one] == [lines[1]]
    assert "Connection refused" in lines[1]
    assert lines[-1].startswith(f"fedmx: {address}: ")
    assert lines[-1].endswith("Connection refused")


@pytest.mark.parametrize(
    ("option", "executor"),
    [
        ("serial", {}),
        ("processes", {"processes": "all"}),
        ("processes:all", {"processes": "all"}),
        ("processes:3", {"processes": 3}),
        ("cohort", {"cohort": {"clients": 32}}),
        ("cohort:3", {"cohort": {"clients": 3}}),
        ("ray", {"ray": {}}),
        ("ray:10.0.0.1:6379", {"ray": {"address": "10.0.0.1:6379"}}),
    ],
)
def test_the_option_executor_sets_the_executor_of_the_experiment(
    folder: Path, option: str, executor: dict[str, object]
) -> None:
    experiment = Experiment.read(folder / "small.yaml", executor_override(option))
    assert experiment.executor == ExecutorSection.model_validate(executor)


def test_a_file_that_hides_the_layers_is_named_in_one_line(folder: Path) -> None:
    (folder / "layers.py").write_text("")
    says = f"{folder / 'layers.py'} hides fedmx's own package 'layers'; rename layers.py"
    assert fedmx("list", cwd=folder, anew=True).error_text == says
    script = folder / "bin" / "fedmx"  # as pip installs it
    script.parent.mkdir()
    script.write_text("from fedmx.cli import main\nmain()\n")
    done = subprocess.run(
        [sys.executable, script, "list"],
        env={**environment(), "PYTHONPATH": f"{folder}:{ROOT}"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"fedmx: {says}\n")


NOT_INSTALLED = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "typer":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
import fedmx.cli
fedmx.cli.main()
"""
FAULTY = """
import fedmx.experiment
from fedmx.cli.start import main
def read(*arguments, **named):
    raise RuntimeError("unforeseen")
fedmx.experiment.Experiment.read = read
main()
"""


def test_a_missing_package_is_said(folder: Path) -> None:
    error = fedmx("list", cwd=folder, code=NOT_INSTALLED).error_text
    assert error == "the package typer is not installed; install fedmx with pip, or `make venv`"


def test_a_fault_shows_its_traceback_and_another_exit_code(folder: Path) -> None:
    result = copied(FAULTY, "run", "small.yaml", cwd=folder)
    assert result.code == 1
    assert "RuntimeError: unforeseen" in result.err
    assert result.err.splitlines()[-1].startswith("fedmx: this is a fault")


def test_what_a_file_says_cannot_steer_the_terminal(folder: Path) -> None:
    assert "\x1b" not in fedmx("run", "\x1b[2Jnone.yaml", cwd=folder).error_text


def test_help_fits_80_columns_and_says_what_to_type_next() -> None:
    def shown(*words: str) -> tuple[list[str], list[str]]:
        """What a command writes to stdout and to stderr."""
        lines = said(*words)[1:-2]
        errors = [one.removeprefix("stderr: ") for one in lines if one.startswith("stderr: ")]
        return [one for one in lines if not one.startswith("stderr: ")], errors

    commands = ["new", "run", "resume", "server", "client", "report", "list", "data", "certs"]
    inner = [["data", one] for one in ("show", "list", "get")]
    certs = ("ca", "request", "sign", "server", "client", "site", "kit", "operator", "crl")
    certs += ("revoke", "all", "show")
    inner += [["certs", one] for one in certs]
    for words in ([], *[[one] for one in commands], *inner):
        out, err = shown(*words, "--help")
        assert err == []
        assert any(f"Usage: {' '.join(['fedmx', *words])}" in line for line in out)
        assert max(map(len, out)) <= 80
        assert not [line for line in out[1:] if line.endswith("...")]
    assert "fedmx new first-idea --hook" in "".join(shown("--help")[0])
    for words in ([], ["data"], ["certs"]):
        out, err = shown(*words)
        assert out == []
        assert err[0].startswith(f"Usage: {' '.join(['fedmx', *words])} [OPTIONS] COMMAND")


def test_lists_say_what_each_name_is_and_takes(folder: Path) -> None:
    from fedmx.components.catalogue import components

    names = fedmx("list", cwd=folder).out
    for kind, entries in components().items():
        assert f"\n{kind} (" in f"\n{names}"
        for name in entries:
            assert f"\n{name}" in names
    hooks = fedmx("list", "hooks", cwd=folder).out
    assert "norm = 1.0: a number" in hooks
    assert "hooks: [{name: 'my_module:Noise', sigma: 0.01}]" in hooks
    narrow = fedmx("list", "models", cwd=folder, COLUMNS="40").out
    assert max(map(len, narrow.splitlines())) <= 40
    assert "gluoncv:NAME" in narrow


IGNORES = """
import os, signal
from fedmx.cli import process
signal.signal(signal.SIGINT, signal.SIG_IGN)
process.catch_signals()
os.kill(os.getpid(), signal.SIGINT)
print("goes on")
try:
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()
except KeyboardInterrupt:
    print("ends")
"""


def test_a_command_that_was_told_to_ignore_ctrl_c_ends_at_sigterm_alone(folder: Path) -> None:
    result = copied(IGNORES, cwd=folder)
    assert (result.code, result.out, result.err) == (0, "goes on\nends\n", "")


def test_a_reader_that_leaves_ends_the_command_quietly(folder: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "fedmx", "list"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1


def test_a_terminal_without_unicode_gets_other_characters(folder: Path) -> None:
    result = fedmx("data", "list", cwd=folder, PYTHONIOENCODING="ascii")
    assert (result.code, result.err) == (0, "")


def test_certificates_are_never_replaced(folder: Path) -> None:
    words = ("certs", "all", "pki", "--clients", "20", "--name", "fl.example.org")
    assert len(fedmx(*words, cwd=folder).out.splitlines()) < 12
    made = {path.name: path.read_bytes() for path in (folder / "pki").iterdir()}
    assert len(made) == 2 * 22 + 1  # pairs of certificate and key, and the list of the revoked
    for again in (words, ("certs", "client", "pki", "7")):
        assert "already" in fedmx(*again, cwd=folder).error_text
    assert {path.name: path.read_bytes() for path in (folder / "pki").iterdir()} == made
    assert "824 days left" in fedmx("certs", "show", "pki/server.pem", cwd=folder).out


def test_a_request_is_signed_for_the_client_that_its_file_names(folder: Path) -> None:
    assert fedmx("certs", "ca", "ca", cwd=folder).code == 0
    asked = fedmx("certs", "request", "mine", "7", cwd=folder)
    served = fedmx("certs", "request", "served", "server", "--name", "a.example", cwd=folder)
    assert (asked.code, served.code) == (0, 0)
    signed = fedmx(*("certs", "sign", "ca", "mine/client-7.csr", "served/server.csr"), cwd=folder)
    assert (signed.code, signed.err) == (0, "")
    (fingerprint,) = [line for line in asked.out.splitlines() if line.startswith("SHA-256")]
    assert fingerprint in signed.out
    assert "a.example" in signed.out
    assert {one.name for one in folder.rglob("*.key")} == {"ca.key", "client-7.key", "server.key"}
    (folder / "mine" / "client-7.csr").rename(folder / "client-8.csr")
    assert "client-8" in fedmx("certs", "sign", "ca", "client-8.csr", cwd=folder).error_text


def test_data_sets_are_here_or_would_be_downloaded(folder: Path) -> None:
    there = folder / "data" / "mnist" / "train-images-idx3-ubyte"
    there.parent.mkdir(parents=True)
    there.touch()
    env = {"FEDMX_DATA": str(folder / "data"), "FEDMX_CACHE": str(folder / "c"), "COLUMNS": "200"}
    lines = dict(
        line.split(maxsplit=1) for line in fedmx("data", "list", cwd=folder, **env).out.splitlines()
    )
    assert lines["mnist"] == f"here: {there.parent}"
    assert lines["cifar-10"].startswith("would be downloaded from www.cs.toronto.edu into")
    assert lines["digits"].startswith("here:")
    assert lines["arrays"] == "your own: give path"
    assert not (folder / "c").exists()
