"""The files with which a federation is operated can be read, and name what exists."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedmx.federation.site import SIGN_OF_LIFE
from fedmx.monitoring.endpoint import pages_of
from fedmx.monitoring.monitor import ClientsNow, Monitor

FOLDER = Path(__file__).resolve().parents[2] / "examples/federation/operate"


def test_alerts_and_dashboard_name_metrics_that_a_run_has() -> None:
    pytest.importorskip("prometheus_client")
    page = pages_of(Monitor("a-run", "digits", 3, lambda: ClientsNow(2)))["/metrics"]("")[1]
    exported = page.decode()
    (group,) = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    expressions = [rule["expr"] for rule in group["rules"]]
    expressions += [target["expr"] for panel in panels for target in panel["targets"]]
    named = {name for one in expressions for name in re.findall(r"fedmx_\w+", one)}
    assert len(named) >= 10
    assert [name for name in sorted(named) if name not in exported] == []


def test_the_server_in_kubernetes_has_one_replica_and_options_that_exist() -> None:
    documents: list[Any] = list(yaml.safe_load_all((FOLDER / "kubernetes.yml").read_text()))
    service, stateful = documents
    pod = stateful["spec"]["template"]
    assert stateful["spec"]["replicas"] == 1
    assert service["spec"]["selector"] == pod["metadata"]["labels"]
    (container,) = pod["spec"]["containers"]
    assert container["ports"][0]["containerPort"] == service["spec"]["ports"][0]["port"]
    claims = [one["metadata"]["name"] for one in stateful["spec"]["volumeClaimTemplates"]]
    volumes = {*claims, *(one["name"] for one in pod["spec"]["volumes"])}
    assert {one["name"] for one in container["volumeMounts"]} == volumes
    _check_options(container["command"])


def test_the_site_in_kubernetes_has_one_replica_and_options_that_exist() -> None:
    stateful: Any = yaml.safe_load((FOLDER / "kubernetes-site.yml").read_text())
    pod = stateful["spec"]["template"]
    assert stateful["spec"]["replicas"] == 1
    assert stateful["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    (container,) = pod["spec"]["containers"]
    claims = [one["metadata"]["name"] for one in stateful["spec"]["volumeClaimTemplates"]]
    volumes = {*claims, *(one["name"] for one in pod["spec"]["volumes"])}
    assert {one["name"] for one in container["volumeMounts"]} == volumes
    words = [*container["command"], *container["args"]]
    _check_options(words)
    memory = words[words.index("--memory") + 1]
    sign = SIGN_OF_LIFE.format("bonn")
    assert f"{memory}/{sign} " in container["readinessProbe"]["exec"]["command"][-1]


def test_the_site_in_slurm_is_a_script_with_options_that_exist() -> None:
    script = FOLDER / "site.slurm"
    subprocess.run(["bash", "-n", str(script)], check=True)
    words = script.read_text().partition("srun ")[2].replace("\\\n", "").split()
    _check_options(words)


def _check_options(words: list[str]) -> None:
    """Check that a command of fedmx has the options."""
    from typer.main import get_command

    from fedmx.cli.main import app

    found: Any = get_command(app)
    for word in words[1:3]:
        found = getattr(found, "commands", {}).get(word, found)
    known = {option for one in found.params for option in one.opts}
    assert {word for word in words if word.startswith("--")} <= known
