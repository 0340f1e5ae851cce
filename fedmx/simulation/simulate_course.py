"""A deployed run once more, as a simulation that goes the way of its course."""

from __future__ import annotations

from dataclasses import dataclass

from fedmx.assembly.assembly import Assembly
from fedmx.course.course import Course
from fedmx.experiment import Experiment
from fedmx.run import RunFolder
from fedmx.server.of_experiment import server_of
from fedmx.server.round import Round
from fedmx.server.server import Server
from fedmx.server.step_back import StepBack, StepsBack
from fedmx.server.stop import Stop
from fedmx.simulation.course_clients import CourseClients
from fedmx.simulation.executors.parallel import Backend
from fedmx.simulation.workers import workers_of


@dataclass(frozen=True)
class EndOfCourse(Stop):
    """The end of a run that is gone through again: after the round that was its last one.

    Attributes:
        last_round: the number of that round.
    """

    last_round: int = 0

    def reason(self, round: Round) -> str | None:
        """Return why the run ends after `round`, or None."""
        return "the run had ended here" if round.round >= self.last_round else None


def simulate_course(
    experiment: Experiment | Assembly, folder: RunFolder, backend: Backend | None = None
) -> Server:
    """Return the server of a deployed run, whose clients are simulated as its course says.

    Iterate over it: each round ends in the model that the deployed round ended in, bit for bit,
    with the same losses, rejections and late updates. It needs the clients' data. Of the clients'
    updates, those are made again that arrived.

    Args:
        experiment: the run's experiment.
        folder: the run's folder.
        backend: workers to use instead of new ones; the caller closes it.

    Raises:
        CourseError: the folder has no course; while it runs, that an update or an answer is another
            one than then.
        ExperimentError: a part of the experiment cannot be made, or cannot be made by workers.
    """
    assembly = experiment if isinstance(experiment, Assembly) else Assembly(experiment)
    course = Course.of(folder.course(), str(folder.course_path))
    with workers_of(assembly, backend) as (executor, scores):
        server = server_of(assembly, CourseClients(executor, course), scores)
        last_round = max((one["round"] for one in folder.rounds()), default=course.last_round)
        return follow(server, course, last_round)


def follow(server: Server, course: Course, last_round: int) -> Server:
    """Return `server`, whose network are `CourseClients`, so that it ends where the run did.

    Args:
        server: the server.
        course: the course of the run.
        last_round: the number of the run's last round.
    """
    steps = [StepBack.of(step) for one in course.rounds.values() for step in one.stepped_back]
    server.steps_back = StepsBack(steps)
    server.stop = EndOfCourse(last_round=last_round)
    return server
