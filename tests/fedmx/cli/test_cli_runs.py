"""Runs as a user has them: shown, recorded, interrupted at any time, and gone on with."""

from __future__ import annotations

import re
import resource
import shlex
import signal
from pathlib import Path

import pytest

from fedmx import RunFolder
from tests.fedmx.cli.gated_run import GATE, place, rounds_of, run_in
from tests.fedmx.command_line import copied, ended, fedmx, started, wait_until


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return place(tmp_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nothing disturbed."""
    folder = place(tmp_path_factory.mktemp("whole"))
    (folder / "open").touch()
    assert fedmx("run", "small.yaml", "--own-modules", cwd=folder, page=True).code == 0
    return folder


def finish(folder: Path, whole: Path) -> None:
    """Resume the one run in a folder; it ends in the bytes of the undisturbed one."""
    (folder / "open").touch()
    run = run_in(folder)
    result = fedmx("resume", run, "--own-modules", cwd=folder)
    assert (result.code, "Traceback" in result.err) == (0, False), result
    expected = (run_in(whole) / "model.safetensors").read_bytes()
    assert (run / "model.safetensors").read_bytes() == expected
    assert rounds_of(run) == [1, 2, 3, 4]
    assert RunFolder.open(run).status == "done"


@pytest.mark.needs_mxnet
def test_a_report_says_where_its_page_is(whole: Path, tmp_path: Path) -> None:
    run = run_in(whole)
    result = fedmx("report", run, run, "-o", tmp_path / "page.html", cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    assert "Final accuracy" in result.out
    assert "Up a round" in result.out
    assert "float32" not in result.out, "it is as large, so the row says nothing"
    assert "a round, as large as float32 (" in (run / "report.html").read_text()
    assert result.out.splitlines()[-1] == f"report: {tmp_path / 'page.html'}"
    assert (tmp_path / "page.html").stat().st_size > 1000
    assert "is a folder" in fedmx("report", run, "-o", tmp_path, cwd=tmp_path).error_text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_says_how_to_go_on_and_ends_in_the_same_bytes(
    folder: Path, whole: Path, number: signal.Signals
) -> None:
    with started("run", "small.yaml", "--own-modules", cwd=folder) as process:
        wait_until((folder / "waiting").exists, process)
        run = run_in(folder)
        locked = fedmx("resume", run, "--own-modules", cwd=folder).error_text
        assert f"in use by process {process.pid}" in locked
        process.send_signal(number)
        process.send_signal(number)  # an impatient user
        result = ended(process)
    assert (result.code, result.out) == (130, "")
    assert result.err.splitlines()[-1] == (
        "fedmx: interrupted after round 2; "
        f"continue with: fedmx resume {run.relative_to(folder)} --own-modules"
    )
    assert len(result.err.splitlines()) == 4  # the folder, two rounds, the end
    assert RunFolder.open(run).status == "interrupted"
    if number == signal.SIGINT:
        finish(folder, whole)


CTRL_C_AT_THE_PAGE = """
import signal
from fedmx.cli.start import main
from fedmx.server import recorder
recorder.write_report = lambda folders, path: signal.raise_signal(signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
main()
"""


def test_an_interruption_after_the_last_round_ends_command_and_run(folder: Path) -> None:
    (folder / "open").touch()
    words = ("run", "small.yaml", "--own-modules", "--set", "rounds=1")
    result = copied(CTRL_C_AT_THE_PAGE, *words, cwd=folder)
    assert (result.code, result.out) == (130, "")
    assert result.err.splitlines()[-1] == "fedmx: interrupted"
    run = RunFolder.open(run_in(folder))
    assert run.status == "done"
    assert run.model_path.exists()


def test_a_full_disk_costs_neither_the_last_checkpoint_nor_the_run(
    folder: Path, whole: Path
) -> None:
    with started("run", "small.yaml", "--own-modules", cwd=folder) as process:
        wait_until((folder / "waiting").exists, process)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (10, 10))  # no file can grow
        (folder / "open").touch()
        result = ended(process)
    run = run_in(folder)
    assert result.code == 2
    assert "Traceback" not in result.err
    assert len(result.err.splitlines()) == 4
    error = result.err.splitlines()[-1]
    assert str(run.relative_to(folder)) in error
    assert error.endswith(f"; continue with: fedmx resume {run.relative_to(folder)} --own-modules")
    checkpoint = RunFolder.open(run).latest_checkpoint()
    assert (checkpoint.round, checkpoint.warnings) == (2, ())
    finish(folder, whole)


def test_an_interruption_while_mxnet_is_loaded_leaves_nothing_behind(folder: Path) -> None:
    with started("run", "small.yaml", "--own-modules", cwd=folder, anew=True) as process:
        maps = Path(f"/proc/{process.pid}/maps")
        wait_until(lambda: "libmxnet" in maps.read_text(), process)
        process.send_signal(signal.SIGINT)
        result = ended(process)
    assert (result.code, result.out, result.err) == (130, "", "fedmx: interrupted\n")
    assert not (folder / "runs").exists()


@pytest.mark.needs_mxnet
def test_a_hook_that_raises_is_named_with_its_line(folder: Path) -> None:
    (folder / "fail").touch()
    result = fedmx("run", "small.yaml", "--own-modules", cwd=folder)
    line = 1 + GATE.splitlines().index('                raise ZeroDivisionError("on purpose")')
    assert result.code == 2
    assert re.search(
        rf"^fedmx: client \d, round 1: ZeroDivisionError: on purpose \({folder}/gate.py:{line}\); "
        r"--debug shows the traceback; the run folder, which has no round, is removed$",
        result.err.splitlines()[-1],
    )
    assert list((folder / "runs").iterdir()) == []


@pytest.mark.parametrize(
    "away", ["__import__('os').chdir('/')", "(HERE / 'runs').rename(HERE / 'moved')"]
)
def test_what_ended_a_run_is_told_also_when_its_folder_is_gone(folder: Path, away: str) -> None:
    (folder / "fail").touch()
    error = 'raise ZeroDivisionError("on purpose")'
    (folder / "gate.py").write_text(GATE.replace(error, f"{away}; {error}"))
    result = fedmx("run", "small.yaml", "--own-modules", cwd=folder)
    assert result.code == 2
    assert re.search(
        r"^fedmx: client \d, round 1: ZeroDivisionError: on purpose \(.*\); "
        "--debug shows the traceback$",
        result.err.splitlines()[-1],
    )


def test_a_run_whose_plan_of_round_1_is_impossible_is_not_told_to_resume(folder: Path) -> None:
    (folder / "planned.py").write_text(
        "from dataclasses import dataclass\n"
        "from layers.logic import Selector\n"
        "@dataclass(frozen=True)\n"
        "class Planned(Selector):\n"
        "    def select(self, round):\n"
        "        return [99]\n"
    )
    words = ("run", "small.yaml", "--own-modules", "--set", "logic.selector=planned:Planned")
    for dry in ((), ("--dry-run",)):
        result = fedmx(*words, *dry, cwd=folder)
        assert result.code == 2
        assert "round 1: Planned.run trains clients [99]" in result.err.splitlines()[-1]
        assert "resume" not in result.err


@pytest.mark.needs_mxnet
def test_the_command_to_go_on_with_can_be_typed_whatever_the_folder_is_called(folder: Path) -> None:
    (folder / "fail").touch()
    (folder / "gate.py").write_text(GATE.replace('(HERE / "fail").exists()', "update.round == 2"))
    said = fedmx(
        "run", "small.yaml", "--own-modules", "--set", "run.folder=my runs", cwd=folder
    ).err
    (run,) = (folder / "my runs").iterdir()
    words = ["fedmx", "resume", f"my runs/{run.name}", "--own-modules"]
    assert shlex.split(said.rpartition("; correct the code, then continue with: ")[2]) == words


def test_server_and_client_say_what_happens_and_end_at_a_signal(folder: Path) -> None:
    plain = ("--log-format", "text")
    secret, elsewhere = folder / "secret", folder / "state"
    secret.write_text("a token of more than 16 bytes\n")
    plain = (*plain, "--token-file", str(secret))
    listen = ("--set", "clients=1", "--set", "logic.min_updates=1", "--listen", "127.0.0.1:0")
    with started("server", "small.yaml", "--own-modules", *listen, *plain, cwd=folder) as server:
        heard = [server.stderr.readline() for _ in range(3)]
        address = heard[0].split()[-1]
        assert heard[0] == f"listening on {address}\n"
        assert heard[1].startswith("run folder: runs/small-")
        assert heard[2].startswith("waiting for clients: 0 of 1")
        run = run_in(folder)
        words = ("client", address, "--partition", "0/1", "--module", "gate", *plain)
        memory, home = folder / "memory", {"XDG_STATE_HOME": str(elsewhere)}
        with started(*words, "--memory", memory, cwd=folder, **home) as client:
            wait_until((folder / "waiting").exists, client)
            client.send_signal(signal.SIGINT)
            result = ended(client)
        assert (result.code, result.out) == (130, "")
        lines = result.err.splitlines()
        assert lines[0] == f"client 0: looking for {address}, until it answers"
        assert f"connected to {address}" in lines
        rounds = [line for line in lines if line.startswith("round ")]
        assert len(rounds) == 2
        assert re.fullmatch(
            r"round 2: 2 steps on [\d,]+ samples, loss [\d.]+, update of [\d.]+ MiB", rounds[1]
        )
        assert lines[-1].startswith("fedmx: interrupted; ")
        server.send_signal(signal.SIGTERM)
        result = ended(server)
    assert (result.code, result.out) == (130, "")
    assert result.err.splitlines()[-1] == (
        "fedmx: interrupted after round 2; "
        f"continue with: fedmx resume {run.relative_to(folder)} --own-modules"
    )
    assert RunFolder.open(run).status == "interrupted"
    assert RunFolder.open(run).facts["address"] == address
    assert [one.suffix for one in memory.iterdir()] == [".safetensors"]
    assert not elsewhere.exists()

    (folder / "open").touch()
    elsewhere.mkdir()
    memory.rename(elsewhere / "fedmx")  # where a client looks without --memory
    with (
        started("resume", run, "--own-modules", cwd=folder) as server,
        started(*words, cwd=folder, **home) as client,
    ):
        took_part, resumed = ended(client), ended(server)
    assert (took_part.code, resumed.code) == (0, 0)
    assert f"listening on {address}" in resumed.err  # where its clients know it to be
    assert re.fullmatch(
        r"the run is over: all 4 rounds were run; 2 updates from here, up .* MiB, down .* MiB\n",
        took_part.out,
    )
    assert rounds_of(run) == [1, 2, 3, 4]
    assert not list((elsewhere / "fedmx").iterdir()), "a run that is over needs no memory"
