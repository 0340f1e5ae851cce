"""IFCA (Ghosh et al. 2020, algorithm 1): k models, and each client trains the one that fits it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_digits

from fedmx import Question, Selector


@dataclass(frozen=True)
class Ifca(Selector):
    """Clients get all models in a round, and train the one with the lowest loss on their samples.

    Attributes:
        models: k; each is a group with a fold of its own (the aggregator `by-group`).
        count: clients in a round.
        spread: standard deviation of the noise by which the first models differ.
    """

    models: int = 2
    count: int = 10
    spread: float = 0.05

    def run(self, round):
        if not round.models:  # before round 1
            noise = round.generator("models")
            for group in range(self.models):
                start = round.weights + self.spread * noise.standard_normal(round.weights.size)
                round.models[str(group)] = (start.astype(np.float32), round.buffers)
        number = min(self.count, len(round.clients))
        cohort = sorted(round.rng.choice(round.clients, number, replace=False).tolist())  # line 3
        losses = {client: {} for client in cohort}
        for group, (weights, buffers) in round.models.items():  # lines 4 to 6
            question = Question("loss", weights=weights, buffers=buffers)
            for client, answer in (yield from round.ask(question, cohort)).items():
                if isinstance(answer.get("loss"), float):
                    losses[client][group] = answer["loss"]
        for client, told in losses.items():
            if told:
                round.train(client, group=min(told, key=told.get))  # lines 7 and 8
        yield from round.until_all()  # line 9: each group's mean is its next model


def two_kinds(users: int = 12) -> dict[str, np.ndarray]:
    """Digits of `users` writers; every second writer writes 9 - d for d."""
    digits = load_digits()
    user = np.arange(len(digits.target)) % users
    y = np.where(user % 2, 9 - digits.target, digits.target)
    x, cut = digits.images[:, None].astype(np.float32) / 16, 1440
    return {
        **{"x_train": x[:cut], "y_train": y[:cut], "users_train": user[:cut]},
        **{"x_test": x[cut:], "y_test": y[cut:], "users_test": user[cut:]},
    }
