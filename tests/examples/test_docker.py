"""The compose file's commands, as they stand there, end in a run over mutual TLS.

Each service is a process of its own in a folder of its own, in which its volumes are mounted as
links. Only names of the network differ: here the server is `localhost`, at a free port.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.examples.free_port import free_port
from tests.fedmx.fork_server import write_program

pytestmark = pytest.mark.timeout(300)  # many processes on a busy machine

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "examples" / "docker"
SERVICES: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
CLIENTS = [name for name in SERVICES if name.startswith("client-")]
PATIENCE_S = 90.0


def mounts(service: str) -> dict[str, str]:
    """What is mounted in a service's container: the volume or file of each place."""
    pairs = (volume.removesuffix(":ro").rsplit(":", 1) for volume in SERVICES[service]["volumes"])
    return {place: source for source, place in pairs}


def start(service: str, folder: Path, port: int) -> subprocess.Popen[str]:
    """Start a service's command in its container's stand-in."""
    container = folder / service
    (container / "work").mkdir(parents=True)
    for place, source in mounts(service).items():
        target = container / place.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.endswith(".yaml"):
            text = (DOCKER / source).read_text().replace("0.0.0.0:7070", f"localhost:{port}")
            text = text.replace("0.0.0.0:9109", "127.0.0.1:0")
            target.write_text(text.replace("rounds: 10", "rounds: 2"))
            continue
        kept = DOCKER / source if "/" in source else folder / "volumes" / source
        kept.mkdir(parents=True, exist_ok=True)
        target.symlink_to(kept)
    places = sorted([*mounts(service), "/ends"], key=len, reverse=True)
    inside = re.compile(rf"(?<![\w/])({'|'.join(map(re.escape, places))})(?![\w-])")
    settings = SERVICES[service]
    words = (
        [*settings["entrypoint"], *settings["command"]]
        if "command" in settings
        else settings["entrypoint"]
    )
    shown = [inside.sub(lambda place: f"{container}{place[0]}", word) for word in words]
    return subprocess.Popen(
        [word.replace("$$", "$").replace("server:7070", f"localhost:{port}") for word in shown],
        cwd=container / "work",
        env={
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": str(folder),
            "OMP_NUM_THREADS": "1",
            "FEDMX_UID": str(os.getuid()),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, tuple[int, str]]]:
    """The folder of the containers, and each service's exit code and output."""
    folder = tmp_path_factory.mktemp("compose")
    (folder / "bin").mkdir()
    write_program(folder / "bin")
    port = free_port()
    certificates = start("certificates", folder, port)
    told = {"certificates": (certificates.wait(PATIENCE_S), certificates.communicate()[0])}
    processes = {name: start(name, folder, port) for name in ["server", *CLIENTS]}
    try:
        for name, process in processes.items():
            out, _ = process.communicate(timeout=PATIENCE_S)
            told[name] = (process.returncode, out)
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    return folder, told


def test_every_service_ends_with_code_0_after_all_rounds(
    outputs: tuple[Path, dict[str, tuple[int, str]]],
) -> None:
    _, told = outputs
    assert {name: code for name, (code, _) in told.items()} == dict.fromkeys(told, 0), told
    assert len(CLIENTS) == 3
    assert "all 2 rounds were run: accuracy" in told["server"][1]
    for name in CLIENTS:
        assert "the run is over: all 2 rounds were run; 2 updates from here" in told[name][1]


def test_each_container_has_its_own_key_and_no_other(
    outputs: tuple[Path, dict[str, tuple[int, str]]],
) -> None:
    folder, _ = outputs
    for name in ["server", *CLIENTS]:
        certs = folder / name / "work" / "certs"
        assert [path.name for path in certs.glob("*.key")] == [f"{name}.key"]
        assert (certs / f"{name}.key").stat().st_mode & 0o777 == 0o600
        assert "authority" not in mounts(name).values()


def test_services_wait_for_the_certificates_and_start_again_when_killed() -> None:
    for name in ["server", *CLIENTS]:
        waits = SERVICES[name]["depends_on"]["certificates"]["condition"]
        assert waits == "service_completed_successfully"
        assert SERVICES[name]["restart"] == "on-failure:5"


def test_the_health_of_the_server_is_asked_where_its_metrics_are() -> None:
    network = yaml.safe_load((DOCKER / "experiment.yaml").read_text())["network"]
    _, port = network["metrics"].split(":")
    test = SERVICES["server"]["healthcheck"]["test"]
    assert test[:2] == ["CMD", "python"]
    compile(test[3], "healthcheck", "exec")
    assert f"127.0.0.1:{port}/healthz" in test[3]
    scraped = yaml.safe_load((DOCKER / "prometheus.yml").read_text())["scrape_configs"][0]
    assert scraped["static_configs"] == [{"targets": [f"server:{port}"]}]
    secret = scraped["authorization"]["credentials_file"]
    assert secret.startswith(f"{[*mounts('prometheus')][1]}/")


def copied() -> list[str]:
    """What the Dockerfile copies from the project."""
    text = (DOCKER / "Dockerfile").read_text()
    return [path for line in re.findall(r"^COPY (.+) \S+$", text, re.M) for path in line.split()]


def test_the_image_is_sent_what_it_copies_and_nothing_else() -> None:
    ignored = (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    assert ignored[1] == "*"
    assert [line[1:] for line in ignored if line.startswith("!")] == copied()


def test_what_the_image_copies_makes_a_wheel_of_code_alone(tmp_path: Path) -> None:
    for name in copied():
        if (ROOT / name).is_dir():
            skip = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=skip)
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "-w", "wheel", "."], cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = (tmp_path / "wheel").glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl"), "no compiler is needed"
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"fedmx", "layers"}
    code = [name for name in names if not name.endswith(".template")]  # of `fedmx new`
    assert len(names) - len(code) >= 10
    assert [name for name in code if "test" in name or name.endswith((".md", ".pyc"))] == []
    assert "fedmx/components/catalogue.json" in names
    assert wheel.stat().st_size < 1_250_000
