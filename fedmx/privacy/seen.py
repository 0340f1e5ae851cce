"""What others see of the clients' data in a run, in three lines."""

from __future__ import annotations

from fedmx.components.build import build
from fedmx.experiment import Experiment
from layers.logic.core.privacy import Privacy, Seen


def seen(experiment: Experiment) -> list[str]:
    """Return a line each for what the server, other clients and the network see.

    It is read from the experiment alone: no code of the user's own is imported.
    """
    given, found = experiment.privacy, Seen()
    if given is not None and ":" in given.name:
        found = Seen(model=f"the models, made private by {given.name}")
    elif given is not None:
        privacy: Privacy = build("privacy", given)
        found = privacy.seen
    return [
        f"The server sees {found.server}.",
        f"Other clients, and whoever gets the model, see {found.model}.",
        f"The network sees {found.traffic}; without TLS it sees all messages.",
    ]
