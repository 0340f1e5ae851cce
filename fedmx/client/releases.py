"""What a client's updates have released: the limits of each run, and a durable file of all runs.

The file has one line of JSON for each update that may leave, written and synced before it does.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from fedmx.client.policy import Policy, RefusedByPolicy, local_of, noise_of_clients, refused
from fedmx.errors import FedmxError
from fedmx.experiment import Experiment
from fedmx.journal.chain import message_hash
from fedmx.privacy.accounting import check_installed, epsilon_of
from fedmx.run.durable import PRIVATE, PRIVATE_FOLDER
from layers.logic import Logic, Task, Update
from layers.logic.core.declaration import Need, Trait, declared
from layers.logic.core.privacy import Mechanism

REPEATS = 10
"""How often a run may go back to its last checkpoint without local privacy: clients answer as many
tasks more as that repeats. A server steps back as often (`fedmx.server.step_back`)."""


@dataclass(frozen=True)
class Release:
    """What may have left this client: one update, or the answers about labels of a run.

    Attributes:
        run: name of the run.
        round: number of the task (`Task.round`); 0: the answers about labels.
        step: the pass of its lane.
        task: digest of the task.
        update: digest of the update; empty: it is not hidden, or by masks.
        noise: of the clients in the run, as the accountant takes it; None: the run has none.
        once: epsilon of the answers about labels in the run; 0: there are none.
    """

    run: str
    round: int
    step: int
    task: str
    update: str
    noise: float | None
    once: float


class Releases:
    """The releases of one client in all its runs.

    Args:
        folder: the folder of the file; None: this process alone remembers.
        name: the name of the client, as its operator gives it; a site has it in all jobs.
        policy: what the client accepts. With several `jobs` their processes share the file.
        job: the experiment of a federation's job that was accepted; None: any may be sent.
        certified: whether this client and the others have certificates, with which they sign keys.

    Raises:
        FedmxError: the policy limits epsilon, and there is no folder or no dp-accounting.
    """

    def __init__(
        self,
        folder: Path | None = None,
        name: str = "client-0",
        policy: Policy | None = None,
        job: Experiment | None = None,
        certified: bool = True,
    ) -> None:
        self.policy, self._certified = policy, certified
        self._job = job
        self._shared = policy is not None and policy.jobs > 1
        self._path = None if folder is None else folder / f"releases-{name}.jsonl"
        self._turns = None if folder is None else folder / f"training-{name}.lock"
        self._file: int | None = None
        self._known: list[Release] = []
        self._run = ""
        self._rounds: int | None = None  # None: not known
        self._more = 0  # tasks that repeat rounds
        self._answered: Counter[str] = Counter()  # different tasks, by run
        self._noise: float | None = None
        self._once = 0.0
        if policy is not None and policy.epsilon is not None:
            check_installed()
            if folder is None:
                raise FedmxError("a policy's epsilon needs a folder that survives; give memory")

    def begin(self, run: str, text: str) -> None:
        """Check the experiment of a run against the policy, before anything of it is made.

        Args:
            run: name of the run.
            text: of the experiment; empty: both ends are built in Python.

        Raises:
            RefusedByPolicy: the policy excludes it, or all its rounds would spend too much.
            FedmxError: it is not that of the accepted job, or the file of releases cannot be used.
        """
        self._run, self._rounds, self._noise, self._once = run, None, None, 0.0
        if not text:
            if self.policy is not None:
                raise RefusedByPolicy("the client's policy: the server sends no experiment")
            return
        experiment = Experiment.parse(text, "the server's experiment")
        if self._job is not None and not _is_of(self._job, experiment):
            raise FedmxError("the server sends another experiment than that of the accepted job")
        self._rounds = experiment.rounds
        self._more = REPEATS * (self._job or experiment).run.checkpoint.every
        self._noise, local = noise_of_clients(experiment), local_of(experiment)
        if local is not None:
            once = local.once()
            self._more = 0
            self._once = 0.0 if once is None or once.epsilon is None else once.epsilon
        if self.policy is not None:
            self.policy.check(experiment)
            if self.policy.epsilon is not None and local is None and not self._certified:
                raise refused("epsilon", "without certificates a server can be all other clients")
        if self.policy is not None or self._noise is not None:
            self._open()
        self._check_epsilon(experiment.rounds)

    def _check_epsilon(self, updates: int) -> None:
        """Check that so many updates of the run, and those of other runs, keep the policy."""
        if self.policy is None or self.policy.epsilon is None:
            return
        most, delta = self.policy.epsilon, self.policy.delta
        ours = Release(self._run, 1, 1, "", "", self._noise, self._once)
        others = [one for one in self._known if _terms(one) != _terms(ours)]
        if any(one.noise is None for one in others):
            raise refused("epsilon", "earlier runs had no noise of this client")
        before = epsilon_of(_spent(others), delta)
        after = epsilon_of(_spent([*others, *[ours] * updates]), delta)
        if after > most:
            raise refused(
                "epsilon",
                f"the run may spend {after:g} with {before:g} of earlier runs, more than {most:g}",
            )

    def check(self, task: Task, logic: Logic) -> str:
        """Check a task before its work; return its digest, for `keep`.

        Raises:
            RefusedByPolicy: the run has no such round, or as many tasks as it may have, or updates
                are hidden, and it has had another task for the round.
        """
        place = (task.round, task.pass_number)
        same = {one.task for one in self._known if (one.run, *_place(one)) == (self._run, *place)}
        digest = message_hash(replace(task, last_accepted_round=0))  # which a restart changes
        if digest in same or self._rounds is None:
            return digest
        number = task.model_version + 1
        if not logic.asynchronous:  # else tasks have numbers of their own
            number = max(number, task.round)
        if number > self._rounds:
            raise RefusedByPolicy(
                f"task {task.round} is beyond the {self._rounds} rounds of the experiment"
            )
        if same and _hides(logic):
            raise RefusedByPolicy(f"a second, different task for round {task.round}")
        answered = self._answered[self._run]
        if answered >= self._rounds * logic.selector.tasks_per_round + self._more:
            raise RefusedByPolicy(
                f"this client has answered {answered} tasks of {self._rounds} rounds"
            )
        if answered >= self._rounds:  # which were checked when the run began
            self._check_epsilon(answered + 1)
        return digest

    def keep(self, digest: str, task: Task, update: Update, logic: Logic) -> None:
        """Record, durably, that the update of a task may leave from now on.

        Args:
            digest: of the task, see `check`.
            task: the task.
            update: the update.
            logic: the client's.

        Raises:
            RefusedByPolicy: another update of the task may have left, and updates are hidden.
            FedmxError: the file cannot be written.
        """
        hides = _hides(logic)
        sent = message_hash(update) if hides else ""
        made = self._release(task.round, task.pass_number, digest, sent)
        for one in self._known if hides else ():
            if (one.run, *_place(one)) == (made.run, *_place(made)) and one.update != made.update:
                raise RefusedByPolicy(f"a second, different update for round {task.round}")
        self._keep(made)
        if self._file is None and not hides:  # the count is enough
            del self._known[:-1000]

    def keep_answers(self) -> None:
        """Record, durably, that the answers about labels may leave from now on.

        Raises:
            FedmxError: the file cannot be written.
        """
        if self._once:
            self._keep(self._release(0, 0, "", ""))

    def _release(self, round: int, step: int, task: str, update: str) -> Release:
        return Release(self._run, round, step, task, update, self._noise, self._once)

    def _keep(self, made: Release) -> None:
        if made in self._known:
            return
        if self._file is not None:
            line = json.dumps(asdict(made)) + "\n"
            try:
                with self._alone(self._file):
                    os.write(self._file, line.encode())
                    os.fsync(self._file)
            except OSError as error:
                raise FedmxError(f"{self._path}: cannot be written ({error.strerror})") from None
        self._note(made)

    def _note(self, made: Release) -> None:
        if made.round:
            self._answered[made.run] += 1
        self._known.append(made)

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Limit the time of the work on one task; first, wait for other jobs of the site.

        Raises:
            RefusedByPolicy: it takes longer.
        """
        with ExitStack() as stack:
            if self._shared and self._turns is not None:
                file = stack.enter_context(self._turns.open("wb"))
                fcntl.flock(file, fcntl.LOCK_EX)
                stack.callback(fcntl.flock, file, fcntl.LOCK_UN)  # a forked child has the file, too
            if self.policy is not None:
                stack.enter_context(self.policy.limited())
            yield

    @contextmanager
    def _alone(self, file: int) -> Iterator[None]:
        """Hold the file that processes of the site share; one that is not shared is held always."""
        if self._shared:
            fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            if self._shared:
                fcntl.flock(file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file, so that another process may use it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> None:
        """Open, lock and read the file; an unfinished last line is of an update that stayed here.

        Raises:
            FedmxError: another process uses it, or it is damaged.
        """
        if self._path is None or self._file is not None:
            return
        self._path.parent.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, PRIVATE)
        try:
            if not self._shared:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with self._alone(file):
                content = self._path.read_bytes()
                whole = content[: content.rfind(b"\n") + 1]
                os.ftruncate(file, len(whole))
            for line in whole.splitlines():
                self._note(Release(**json.loads(line)))
        except BlockingIOError:
            os.close(file)
            raise FedmxError(
                f"{self._path}: another process of this client uses it; end that process first"
            ) from None
        except (ValueError, TypeError):
            os.close(file)
            raise FedmxError(
                f"{self._path}: is damaged, so that it is not known what this client has spent; "
                "restore it from a copy, or move it away to count from zero"
            ) from None
        self._file = file


def _is_of(job: Experiment, sent: Experiment) -> bool:
    """Return whether an experiment is that of a job, whose statistics the server may have asked."""
    normalise = job.compute.normalise
    if normalise is not None and normalise.federated:
        given = sent.compute.normalise
        if given is None or given.scale != normalise.scale:
            return False
        job, sent = (one.with_overrides(["compute.normalise=null"]) for one in (job, sent))
    return job.digest() == sent.digest()


def _hides(logic: Logic) -> bool:
    """Return whether the updates of single clients are hidden by noise, and not by masks: then a
    client sends one for a round."""
    found = {one for hook in logic.hooks for one in declared(hook)}
    return Need.HIDDEN in found and Trait.MASKED not in found


def _terms(one: Release) -> tuple[str, float | None, float]:
    return one.run, one.noise, one.once


def _place(one: Release) -> tuple[int, int]:
    return one.round, one.step


def _spent(releases: Sequence[Release]) -> list[tuple[Mechanism, int]]:
    """Return releases as the accountant takes them: updates, and the answers of each run."""
    updates = [(Mechanism(one.noise, 1.0), 1) for one in releases if one.round]
    answers = {_terms(one) for one in releases if one.once}
    return [*updates, *((Mechanism(None, 1.0, epsilon=once), 1) for _, _, once in answers)]
