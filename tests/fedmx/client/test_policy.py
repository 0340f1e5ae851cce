"""What a client refuses, whatever a server sends: its policy, and what it has released."""

from __future__ import annotations

import json
import signal
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedmx import Assembly, Experiment
from fedmx.client.policy import Policy, RefusedByPolicy
from fedmx.client.releases import REPEATS, Releases
from fedmx.deployment.join import OwnPart, join
from fedmx.errors import FedmxError
from fedmx.protocol.messages import CannotTakePart, Failed, Ready, Setup
from layers.compute.data.targets import Targets
from layers.logic import Task, Training, Update

EXPERIMENT = """
name: own
rounds: 2
clients: 3
compute: {engine: numpy, model: logistic, data: digits, normalise: {scale: 16}, partition: iid}
"""
LOCAL = "privacy={name: local, clip: 0.3, delta: 1.0e-5, noise: 8}"
OTHER = "privacy={name: local, clip: 0.3, delta: 1.0e-5, noise: 9}"
SUM = "privacy={name: secure-sum, clip: 0.3, delta: 1.0e-5, noise: 8, min_clients: 3}"
FEDBUFF = "logic.preset={name: fedbuff, concurrency: 2, buffer: 1}"
ASTRAEA = "logic.preset={name: astraea, mediator_epochs: 4}"
OWN = "logic.hooks=[{name: 'mine.inner:Hook'}]"


class Network:
    """A connector to which nothing comes, and that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.address = ""

    def next_event(self, timeout_s: float | None = None) -> None:
        return None

    def send(self, message: Any) -> None:
        self.sent.append(message)

    def expect(self, files: Any) -> None:
        pass

    def __exit__(self, *exc_info: object) -> None:
        pass


class Asked:
    """A client with a policy, and a server that sends what a test says."""

    def __init__(
        self, memory: Path | None, policy: Policy | None = None, job: Experiment | None = None
    ) -> None:
        self.client: Any = join("127.0.0.1:1", 1, OwnPart(), memory=memory, policy=policy, job=job)
        self.network = Network()
        self.client.network = self.network

    def setup(self, *overrides: str, run: str = "run", client: int = 1) -> Any:
        """Send a setup; return the answer."""
        made = Experiment.parse(EXPERIMENT, overrides=overrides)
        setup = Setup(
            run, made.to_yaml(), made.digest(), client, (1, 28, 28), Targets("classes", 10)
        )
        self.client._handle_message(setup)
        return self.network.sent[-1]

    def task(
        self, round: int, *, weight: float = 0.0, version: int | None = None, **how: Any
    ) -> Any:
        """Send a task; return the answer."""
        size = self.client.logic.layout[-1].stop
        weights, buffers = np.full(size, weight, np.float32), np.zeros(0, np.float32)
        task = Task(round, 1, 0, Training(steps=1), weights, buffers)
        version = round - 1 if version is None else version
        self.client._handle_message(replace(task, model_version=version, **how))
        return self.network.sent[-1]

    def end(self) -> None:
        self.client.__exit__(None, None, None)


@pytest.mark.parametrize(
    ("key", "limit", "overrides"),
    [
        ("experiments", ["another"], []),
        ("authors", ["anna"], []),
        ("data", ["mnist"], []),
        ("rounds", 1, []),
        ("modules", ["other"], [OWN]),
        ("modules", [], [OWN]),
        ("privacy", {"name": "local", "clip": 0.3, "delta": 1e-5, "noise": 9}, [LOCAL]),
        ("privacy", {"name": "local", "clip": 0.3, "delta": 1e-5, "noise": 9}, []),
        ("noise", 8.5, [LOCAL]),
        ("noise", 1, []),
        ("epsilon", 0.1, [LOCAL]),
        ("noise", 1, [SUM]),
        ("epsilon", 0.1, [SUM]),
        ("epsilon", 100, ["privacy={name: secure-sum}"]),
        ("epsilon", 100, []),
        ("epsilon", 100, ["privacy={name: central, clip: 0.3, delta: 1.0e-5, noise: 8}"]),
    ],
)
def test_a_policy_excludes_an_experiment_in_one_line_at_both_ends(
    key: str, limit: Any, overrides: list[str], tmp_path: Path
) -> None:
    asked = Asked(tmp_path, Policy.model_validate({key: limit}))
    with pytest.raises(RefusedByPolicy, match=f"policy, {key}") as caught:
        asked.setup(*overrides)
    assert asked.network.sent == [CannotTakePart(1, str(caught.value))]
    assert "\n" not in str(caught.value)
    asked.end()


@pytest.mark.parametrize(
    ("given", "overrides"),
    [
        ({"experiments": ["own"], "data": ["digits"], "rounds": 2, "modules": []}, []),
        ({"experiments": [Experiment.parse(EXPERIMENT).digest()]}, []),
        ({"privacy": {"name": "local", "clip": 0.3, "delta": 1e-5, "noise": 8}}, [LOCAL]),
        ({"noise": 8, "epsilon": 3}, [LOCAL]),
    ],
)
def test_a_policy_allows_what_it_lists(
    given: dict[str, Any], overrides: list[str], tmp_path: Path
) -> None:
    asked = Asked(tmp_path, Policy.model_validate(given))
    assert isinstance(asked.setup(*overrides), Ready)
    asked.end()


@pytest.mark.parametrize(
    ("accepted", "sent", "is_it"),
    [
        ([], [], True),
        ([], ["network.heartbeat_s=3"], True),
        ([], ["rounds=3"], False),
        ([], ["compute.normalise={scale: 1}"], False),
        # Its statistics are asked for, and then the job begins.
        (["compute.normalise=federated"], ["compute.normalise={scale: 1}"], True),
        (["compute.normalise=federated"], ["compute.normalise={mean: 3, std: 2}"], True),
        (["compute.normalise=federated"], ["compute.normalise={scale: 1}", "rounds=3"], False),
    ],
)
def test_a_site_takes_part_in_the_experiment_that_it_has_accepted(
    accepted: list[str], sent: list[str], is_it: bool
) -> None:
    asked = Asked(None, job=Experiment.parse(EXPERIMENT, overrides=accepted))
    if is_it:
        assert isinstance(asked.setup(*sent), Ready)
    else:
        with pytest.raises(FedmxError, match="accepted"):
            asked.setup(*sent)
    asked.end()


def test_processes_of_one_site_share_a_file_and_train_one_after_the_other(tmp_path: Path) -> None:
    policy = Policy(jobs=2)
    first, second = Asked(tmp_path, policy), Asked(tmp_path, policy)
    for asked, run in ((first, "a"), (second, "b")):
        asked.setup(LOCAL, run=run)
    with first.client.releases.limited():
        thread = threading.Thread(target=second.task, args=(1,))
        thread.start()
        thread.join(0.5)
        assert isinstance(second.network.sent[-1], Ready)  # it waits
    thread.join()
    assert isinstance(second.network.sent[-1], Update)
    assert isinstance(first.task(1), Update)
    lines = (tmp_path / "releases-client-1.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["run"] for line in lines) == ["a", "b"]
    for asked in (first, second):
        asked.end()


def test_a_server_does_not_choose_whose_part_a_client_trains_on(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    with pytest.raises(FedmxError, match=r"client 1.*client 2"):
        asked.setup(client=2)
    assert isinstance(asked.network.sent[-1], CannotTakePart)
    asked.end()


@pytest.mark.parametrize("overrides", [[], [LOCAL]])
def test_a_client_without_a_policy_trains_no_task_beyond_the_rounds(
    overrides: list[str], tmp_path: Path
) -> None:
    """A hostile server counts on and on, or says that its model is always the first."""
    asked = Asked(tmp_path)
    asked.setup(*overrides)
    answers = [asked.task(round, version=0 if overrides else None) for round in range(1, 12)]
    assert [type(one) for one in answers] == [Update] * 2 + [Failed] * 9
    assert {one.traceback for one in answers[2:]} == {""}
    asked.end()


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize(
    ("overrides", "honest"), [([], 2), ([FEDBUFF], 2 * 3), ([ASTRAEA], 2 * 4)], ids=str
)
def test_a_server_that_names_the_first_model_again_and_again_gets_a_bounded_number_of_updates(
    overrides: list[str], honest: int, every: int, tmp_path: Path
) -> None:
    """All that an honest run of these rounds may ask, and what goes back to a checkpoint repeats.

    Tasks of asynchronous rounds have numbers of their own; a server lies about the version.
    """
    asked = Asked(tmp_path)
    asked.setup(*overrides, f"run.checkpoint.every={every}")
    asynchronous, most = overrides == [FEDBUFF], honest + REPEATS * every
    for first in (1, 101):  # another run in between changes nothing
        answers = [
            asked.task(number if asynchronous else 1, weight=number, version=0)
            for number in range(first, first + most + 4)
        ]
        assert [type(one) for one in answers] == [Update] * most + [Failed] * 4
        assert isinstance(asked.setup(run="another"), Ready)
        assert isinstance(asked.task(1), Update)
        asked.setup(*overrides, f"run.checkpoint.every={every}")
        most = 0
    asked.end()


@pytest.mark.parametrize("overrides", [[], [LOCAL]])
def test_one_round_has_one_task_and_a_restart_changes_nothing(
    overrides: list[str], tmp_path: Path
) -> None:
    """Without local privacy a server may step back, and a round comes again with another model."""
    asked = Asked(tmp_path)
    asked.setup(*overrides)
    first = asked.task(1)
    for change in ({"weight": 0.5}, {"seed": 7}, {"training": Training(steps=2)}):
        assert isinstance(asked.task(1, **change), Failed if overrides else Update)
    asked.end()
    again = Asked(tmp_path)
    again.setup(*overrides)
    same = again.task(1, last_accepted_round=0)
    assert same.delta.tobytes() == first.delta.tobytes()
    assert isinstance(again.task(1, weight=0.5), Failed if overrides else Update)
    again.end()


def test_epsilon_is_of_all_runs_and_processes(tmp_path: Path) -> None:
    """Four rounds spend 1.99, and six 2.50: a third run does not fit, and the second goes on."""
    policy = Policy(epsilon=2.4)
    for run in ("one", "two"):
        asked = Asked(tmp_path, policy)
        assert isinstance(asked.setup(LOCAL, run=run), Ready)
        assert isinstance(asked.task(1), Update)
        assert isinstance(asked.task(2), Update)
        asked.end()
    asked = Asked(tmp_path, policy)
    with pytest.raises(RefusedByPolicy, match="epsilon"):
        asked.setup(LOCAL, run="three")
    with pytest.raises(RefusedByPolicy, match="epsilon"):
        asked.setup(OTHER, run="two")  # the same name, other terms
    assert isinstance(asked.setup(LOCAL, run="two"), Ready)
    asked.end()


def test_each_sum_counts_also_of_a_round_that_is_repeated(tmp_path: Path) -> None:
    """Two rounds spend 0.63, four 0.93 and five 1.05: a server gets two sums more, and no third."""
    text = Experiment.parse(EXPERIMENT, overrides=[SUM]).to_yaml()
    logic = Assembly(Experiment.parse(text)).logic
    size = logic.layout[-1].stop
    weights, empty = np.zeros(size, np.float32), np.zeros(0, np.float32)
    given = Task(1, 1, 0, Training(steps=1), weights, empty)
    answered = 0
    for _ in range(2):  # a client that starts again goes on counting
        releases = Releases(tmp_path, "client-1", Policy(epsilon=1.0))
        releases.begin("run", text)
        for _ in range(2):
            answered += 1
            # The neighbours' shares in the task, and the masks of the words, are new in each sum.
            task = replace(given, slots={"0:MaskedSum": {"sealed": bytes([answered])}})
            update = Update(1, 1, 10, 1, empty, empty, {}, {"0:MaskedSum": {"words": answered}})
            releases.keep(releases.check(task, logic), task, update, logic)
        releases.close()
    releases = Releases(tmp_path, "client-1", Policy(epsilon=1.0))
    releases.begin("run", text)
    with pytest.raises(RefusedByPolicy, match="epsilon"):
        releases.check(replace(given, slots={"0:MaskedSum": {"sealed": b"5"}}), logic)
    releases.close()


def test_an_update_that_was_not_recorded_does_not_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(tmp_path)
    asked.setup(LOCAL)

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedmx.client.releases.os", SimpleNamespace(**vars(__import__("os"))))
    monkeypatch.setattr("fedmx.client.releases.os.fsync", fail)
    assert isinstance(asked.task(1), Failed)
    asked.end()


def test_a_record_that_a_power_cut_cut_short_is_of_an_update_that_stayed(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    asked.setup(LOCAL)
    asked.task(1)
    asked.end()
    (file,) = tmp_path.glob("releases*")
    file.write_bytes(file.read_bytes()[:-5])
    asked = Asked(tmp_path)
    asked.setup(LOCAL)
    assert isinstance(asked.task(1, weight=0.5), Update)
    asked.end()
    file.write_bytes(b"{]\n")
    asked = Asked(tmp_path)
    with pytest.raises(FedmxError, match=file.name):
        asked.setup(LOCAL)


def test_two_processes_do_not_count_in_one_file(tmp_path: Path) -> None:
    one, other = Asked(tmp_path), Asked(tmp_path)
    one.setup(LOCAL)
    with pytest.raises(FedmxError, match="another process"):
        other.setup(LOCAL)
    one.end()


def test_a_task_is_worked_on_for_at_most_the_seconds_of_the_policy(tmp_path: Path) -> None:
    asked = Asked(tmp_path, Policy(seconds=0.2))
    asked.setup()
    endless = Training(steps=10**9)
    before = signal.getsignal(signal.SIGALRM)
    assert "seconds" in asked.task(1, training=endless).reason
    assert signal.getsignal(signal.SIGALRM) is before
    assert isinstance(asked.task(1), Update)
    asked.end()


@pytest.mark.parametrize(
    ("text", "key"),
    [("epsilons: 3", "epsilons"), ("epsilon: 0", "epsilon"), ("privacy: locale", "privacy")],
)
def test_a_wrong_policy_is_one_line_with_file_line_and_key(
    text: str, key: str, tmp_path: Path
) -> None:
    file = tmp_path / "client.yaml"
    file.write_text(f"rounds: 3\n{text}\n")
    with pytest.raises(FedmxError, match=rf"client\.yaml:2: {key}"):
        Policy.of(file)
    assert Policy.of(None, 3.0).epsilon == 3.0
    file.write_text("jobs: 2\n")
    with pytest.raises(FedmxError, match="jobs"):  # two jobs at a time would spend the same rest
        Policy.of(file, 3.0)


def test_an_epsilon_over_all_runs_needs_a_folder_that_survives() -> None:
    with pytest.raises(FedmxError, match="memory"):
        Releases(None, "client-1", Policy(epsilon=1))


@pytest.mark.parametrize(
    ("override", "certified"),
    [(SUM, False), (SUM.replace("{", "{server: honest, ", 1), True)],
    ids=["the server can be all other clients", "the server is trusted"],
)
def test_epsilon_accepts_no_sum_that_the_server_can_make_smaller(
    override: str, certified: bool, tmp_path: Path
) -> None:
    text = Experiment.parse(EXPERIMENT, overrides=[override]).to_yaml()
    releases = Releases(tmp_path, "client-1", Policy(epsilon=1.0), certified=certified)
    with pytest.raises(RefusedByPolicy, match="epsilon"):
        releases.begin("run", text)


@pytest.mark.parametrize(
    "override", ["run.checkpoint.every=1000000000", "compute.normalise={scale: 3, mean: 1}"]
)
def test_an_accepted_job_is_not_changed_by_the_server(override: str, tmp_path: Path) -> None:
    """Its statistics of all clients and what changes no result may be the server's."""
    job = Experiment.parse(EXPERIMENT, overrides=["compute.normalise=federated"])
    releases = Releases(tmp_path, "client-1", None, job)
    given = ["compute.normalise={mean: 1}", override]
    sent = Experiment.parse(EXPERIMENT, overrides=given).to_yaml()
    if "scale" in override:
        with pytest.raises(FedmxError, match="another experiment"):
            releases.begin("run", sent)
    else:
        releases.begin("run", sent)
        assert releases._more < 1_000_000_000
    releases.close()
