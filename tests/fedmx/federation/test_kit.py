"""A site's startup kit: it connects from an empty folder, and says in words what is wrong."""

from __future__ import annotations

import re
import shutil
import socket
import stat
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from fedmx.client.policy import Policy
from fedmx.errors import FedmxError
from fedmx.federation.kit import write_kit
from layers.network import Listener, NetworkError, ServerTLS, make_ca, make_server_certificate
from layers.network.enrolment import request_client, sign_client
from tests.examples.free_port import free_port
from tests.fedmx.fork_server import write_program
from tests.fedmx.standing import Standing, experiment
from tests.network.conftest import Certificates
from tests.network.connect_proxy import ConnectProxy
from tests.network.test_certificates import valid_on
from tests.network.wire_messages import CODEC

ROOT = Path(__file__).resolve().parents[3]
TEMPLATES = ROOT / "fedmx" / "federation" / "templates"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_program(tmp_path_factory.mktemp("bin"))


@pytest.fixture
def pki(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "pki")


def unpacked(pki: Certificates, site: str, address: str, to: Path, **how: bool) -> Path:
    """Write a kit, unpack it in an empty folder, and return the folder of its files."""
    archive = write_kit(pki.folder, site, address, **how)
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    to.mkdir()
    with tarfile.open(archive) as tar:
        tar.extractall(to, filter="tar")
    archive.unlink()
    return to / site


def command_of(kit: Path) -> list[str]:
    """The README's command that connects."""
    (command,) = re.findall(r"`(\./client\.sh .*?)`", (kit / "README.md").read_text())
    return command.split()


def checked(kit: Path, program: Path, **variables: str) -> tuple[int, dict[str, str]]:
    """The exit code of check.sh, and what it says is wrong."""
    environment = {"PATH": "/usr/bin:/bin", "FEDMX": str(program), **variables}
    done = subprocess.run(
        ["./check.sh"], cwd=kit, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    lines = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    return done.returncode, {about: text for state, about, text in lines if state == "WRONG"}


def is_healthy(kit: Path) -> bool:
    """Whether the container of a kit is healthy, by its own command."""
    service = yaml.safe_load((kit / "compose.yaml").read_text())["services"]["site"]
    kind, command = service["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    return subprocess.run(command, shell=True, cwd=kit, check=False).returncode == 0


def test_a_site_takes_part_with_its_kit_alone_or_by_a_proxy(tmp_path: Path, program: Path) -> None:
    far = "fl.example.org:443"
    make_ca(tmp_path / "pki")
    make_server_certificate(tmp_path / "pki", ["127.0.0.1", "fl.example.org"])
    with Standing(tmp_path) as standing, ConnectProxy({}) as proxy:
        standing.serve()
        proxy.names = {far: standing.address}
        pki = standing.certificates
        kits = [unpacked(pki, "bonn", standing.address, tmp_path / "a")]
        kits.append(unpacked(pki, "ulm", far, tmp_path / "b", request=True))
        assert {one.name for one in (kits[1] / "certs").iterdir()} == {"ca.pem"}
        asked = request_client(kits[1] / "certs", "ulm")
        shutil.copy(sign_client(pki.folder, asked.request, "ulm").certificate, kits[1] / "certs")
        assert checked(kits[1], program, HTTPS_PROXY=f"http://{proxy.address}") == (0, {})
        environment = {"PATH": "/usr/bin:/bin", "FEDMX": str(program), "HOME": str(tmp_path)}
        environment["HTTPS_PROXY"] = f"http://{proxy.address}"
        environment["NOTIFY_SOCKET"] = str(tmp_path / "notify")
        systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        systemd.bind(environment["NOTIFY_SOCKET"])
        sites = []
        for kit in kits:
            with (kit / "log").open("wb") as log:
                sites.append(
                    subprocess.Popen(command_of(kit), cwd=kit, env=environment, stderr=log)
                )
        try:
            with standing.operator() as operator:
                found = standing.over(operator, operator.submit(experiment()))
            assert (found["state"], found["sites"]) == ("done", ["bonn", "ulm"])
            assert {systemd.recv(100).decode() for _ in kits} == {
                f"STATUS=connected to {address}" for address in (standing.address, far)
            }
            assert all(is_healthy(kit) for kit in kits)
        finally:
            for site in sites:
                site.terminate()
        assert [site.wait(60) for site in sites] == [130, 130]
        assert not any(is_healthy(kit) for kit in kits)
        systemd.close()


@pytest.fixture
def listening(pki: Certificates) -> Iterator[Listener]:
    with Listener("127.0.0.1:0", CODEC, tls=pki.server) as listener:
        yield listener


def test_check_finds_nothing_wrong_where_nothing_is(
    pki: Certificates, listening: Listener, tmp_path: Path, program: Path
) -> None:
    assert checked(unpacked(pki, "bonn", listening.address, tmp_path / "kit"), program) == (0, {})


def give_the_certificate_of_another(kit: Path, pki: Certificates) -> None:
    shutil.copy(pki.client("ulm").certificate or "", kit / "certs" / "bonn.pem")


def give_the_key_of_another(kit: Path, pki: Certificates) -> None:
    shutil.copy(pki.client("ulm").key or "", kit / "certs" / "bonn.key")


def give_another_authority(kit: Path, pki: Certificates) -> None:
    shutil.copy(Certificates(kit / "strangers").folder / "ca.pem", kit / "certs")


def late(kit: Path, pki: Certificates, *days: int) -> None:
    made = valid_on(pki, kit, *days)
    shutil.copy(made.certificate or "", kit / "certs" / "bonn.pem")
    shutil.copy(made.key or "", kit / "certs" / "bonn.key")
    env = kit / "client.env"
    env.write_text(env.read_text().replace("SITE=bonn", "SITE=late"))
    for kind in ("pem", "key"):
        (kit / "certs" / f"bonn.{kind}").rename(kit / "certs" / f"late.{kind}")


def give_another_version(kit: Path, pki: Certificates) -> None:
    env = kit / "client.env"
    env.write_text(env.read_text().replace("VERSION=", "VERSION=9"))


@pytest.mark.parametrize(
    ("spoil", "about", "word"),
    [
        (give_the_certificate_of_another, "certificate", "CN=ulm"),
        (give_the_key_of_another, "certificate", "does not belong"),
        (give_another_authority, "certificate", "not signed by certs/ca.pem"),
        (lambda kit, pki: (kit / "certs" / "bonn.key").unlink(), "certificate", "bonn.key"),
        (lambda kit, pki: (kit / "certs" / "bonn.key").chmod(0o644), "certificate", "chmod 600"),
        (lambda kit, pki: late(kit, pki), "certificate", "expired on"),
        (lambda kit, pki: late(kit, pki, 1, 9), "clock", "not valid yet"),
        (give_another_version, "fedmx", "the federation had 9"),
    ],
)
def test_check_says_what_is_wrong_on_this_machine(
    pki: Certificates,
    listening: Listener,
    tmp_path: Path,
    program: Path,
    spoil: Callable[[Path, Certificates], None],
    about: str,
    word: str,
) -> None:
    kit = unpacked(pki, "bonn", listening.address, tmp_path / "kit")
    spoil(kit, pki)
    code, wrong = checked(kit, program)
    assert (code, word in wrong[about]) == (1, True), wrong


def test_check_says_what_is_wrong_on_the_way_and_there(
    pki: Certificates, tmp_path: Path, program: Path
) -> None:
    def wrong_at(address: str, **variables: str) -> dict[str, str]:
        kit = unpacked(pki, "bonn", address, tmp_path / f"kit-{len(list(tmp_path.iterdir()))}")
        return checked(kit, program, **variables)[1]

    closed = f"127.0.0.1:{free_port()}"
    assert "cannot be reached" in wrong_at(closed)["port"]
    assert "unknown" in wrong_at("nowhere.invalid:7070")["name"]
    assert closed in wrong_at("127.0.0.1:7070", HTTPS_PROXY=f"http://{closed}")["proxy"]
    with ConnectProxy({}, b"HTTP/1.1 403 Forbidden\r\n\r\n") as proxy:
        found = wrong_at("fl.example.org:443", HTTPS_PROXY=f"http://{proxy.address}")
        assert "403" in found["proxy"]
    other = make_server_certificate(pki.folder, ["fl.example.org"], file_name="other")
    named = ServerTLS(other.certificate, other.key, pki.server.ca)
    strangers = Certificates(tmp_path / "strangers").server
    for tls, word in ((named, "not for the name"), (strangers, "not signed by certs/ca.pem")):
        with Listener("127.0.0.1:0", CODEC, tls=tls) as listener:
            assert word in wrong_at(listener.address)["server"]


def test_the_policy_of_a_kit_has_every_key_and_limits_nothing(tmp_path: Path) -> None:
    text = (TEMPLATES / "client.yaml.template").read_text()
    path = tmp_path / "client.yaml"
    path.write_text(text)
    assert Policy.of(path) == Policy()
    assert set(yaml.safe_load(text)) == set(Policy.model_fields)


def test_the_unit_and_the_container_start_what_the_readme_says(
    pki: Certificates, tmp_path: Path
) -> None:
    kit = unpacked(pki, "bonn", "fl.example.org:443", tmp_path / "kit")
    script, *words = command_of(kit)
    service = yaml.safe_load((kit / "compose.yaml").read_text())["services"]["site"]
    assert service["entrypoint"] == [f"/work/{script.removeprefix('./')}"]
    assert service["command"] == words
    env = dict(re.findall(r'^(\w+)="?(.*?)"?$', (kit / "client.env").read_text(), re.MULTILINE))
    assert [env["FEDMX_SERVER"], env["FEDMX_SITE"], *env["FEDMX_OPTIONS"].split()] == words
    assert (kit / "client.sh").read_bytes() == (ROOT / "examples/deploy/client.sh").read_bytes()


def test_a_kit_is_not_replaced_and_has_the_name_of_a_site(pki: Certificates) -> None:
    write_kit(pki.folder, "bonn", "fl.example.org:443")
    for site, error in (("bonn", FedmxError), ("7", FedmxError), ("ca", NetworkError)):
        with pytest.raises(error, match=site):
            write_kit(pki.folder, site, "fl.example.org:443")
    with pytest.raises(NetworkError, match="HOST:PORT"):
        write_kit(pki.folder, "ulm", "fl.example.org")
