"""What happens in a round now, compared with its course: what parts from it ends the simulation."""

from __future__ import annotations

from collections import deque

from fedmx.course.course_round import Asked, CourseRound, TaskSent
from fedmx.course.errors import CourseError
from fedmx.course.hashes import message_hash
from layers.logic import Answer, Question, Task, Update, Verdict

ADVICE = "the data, the settings, fedmx or the machine are not those of the run"


class Comparison:
    """Compares one round with its course, and knows what is still to come of it.

    Args:
        round: the course of the round.
    """

    def __init__(self, round: CourseRound) -> None:
        self._round = round
        self._asked = deque(round.asked)
        self._verdicts = deque(round.verdicts)
        self._tasks: dict[int, deque[TaskSent]] = {}
        for task in round.tasks:
            self._tasks.setdefault(task.client, deque()).append(task)

    def next_task(self, client: int) -> TaskSent:
        """Return the next task that a client was sent then.

        Raises:
            CourseError: it was sent no more.
        """
        tasks = self._tasks.get(client)
        if not tasks:
            raise self._other("it gets a task now, and got none then", client)
        return tasks[0]

    def sent(self, task: Task) -> None:
        """Compare a task with that of then.

        Raises:
            CourseError: it is another one.
        """
        then = self.next_task(task.client)
        now = TaskSent(task.client, task.last_accepted_round, task.pass_number)
        if then != now:
            raise self._other(f"its task is {now} now, and was {then}", task.client)
        self._tasks[task.client].popleft()

    def answered(self, verdict: Verdict) -> None:
        """Compare a verdict with that of then.

        Raises:
            CourseError: it is another one.
        """
        then = self._verdicts.popleft() if self._verdicts else None
        if then != (verdict.client, verdict.granted):
            now = "granted" if verdict.granted else "declined"
            raise self._other(f"its upload is {now} now, which it was not then", verdict.client)

    def asked(self, question: Question) -> Asked:
        """Return what came of a question then.

        Raises:
            CourseError: another one was asked.
        """
        then = self._asked.popleft() if self._asked else Asked("nothing")
        if then.question != question.name:
            raise self._other(f"{question.name!r} is asked now, and {then.question!r} was then")
        return then

    def made(self, client: int, message: Update | Answer, then: str) -> None:
        """Compare a message with the hash of that of then.

        Raises:
            CourseError: it is another one.
        """
        now = message_hash(message)
        if now == then:
            return
        what = "update" if isinstance(message, Update) else "answer"
        announced = self._round.populations[-1].get(client, 0)
        why = ADVICE
        if isinstance(message, Update) and message.samples < announced:
            why = f"it had {announced} samples, and has {message.samples} here"
        hashes = f"SHA-256 {now[:12]}…, then {then[:12]}…"
        raise self._other(f"its {what} is another one than then ({hashes})", client, why)

    def ended(self) -> None:
        """Compare the end of the round with that of then.

        Raises:
            CourseError: then, more tasks were sent.
        """
        for client, tasks in self._tasks.items():
            if tasks:
                raise self._other("it got a task then, and gets none now", client)

    def _other(self, what: str, client: int | None = None, why: str = ADVICE) -> CourseError:
        number = self._round.round
        who = f"round {number}" if client is None else f"round {number}, client {client}"
        return CourseError(f"{who}: {what}; {why}", number, client)
