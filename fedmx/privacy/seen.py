"""What others see of the clients' data in a run, in three lines."""

from __future__ import annotations

from fedmx.experiment import Experiment


def seen(experiment: Experiment) -> list[str]:
    """Return a line each for what the server, other clients and the network see.

    It is read from the experiment alone: nothing that it names is imported.
    """
    server = "each client's update, its metrics and its number of samples"
    model = "the models, which may depend on any client's data without a bound"
    traffic = "who takes part in which round and the sizes of messages"
    privacy = experiment.privacy
    if privacy is not None and privacy.name in ("central", "dp-ftrl"):
        epsilon, delta = privacy.settings.get("epsilon"), privacy.settings.get("delta")
        budget = "the recorded epsilon" if epsilon is None else f"at most epsilon {epsilon}"
        server = "each client's update, clipped, and its number of samples, and is trusted"
        model = f"the models, which tell {budget} (delta {delta}) about any client"
        if privacy.name == "central":
            traffic += ", whose secrecy epsilon counts on"
    elif privacy is not None and privacy.name == "local":
        server = "each client's update with the client's own noise, and its number of samples"
        if (per_label := privacy.settings.get("label_epsilon")) is not None:
            server += f", and labels by randomised response (epsilon {per_label} each)"
        model = "the models, which tell at most the recorded epsilon about any client"
    elif privacy is not None:
        model = f"the models, made private by {privacy.name}"
    return [
        f"The server sees {server}.",
        f"Other clients, and whoever gets the model, see {model}.",
        f"The network sees {traffic}; without TLS it sees all messages.",
    ]
