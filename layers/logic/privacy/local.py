"""Local differential privacy: each client hides its own update, so that no server need be trusted.

Source: the Gaussian mechanism (Dwork and Roth 2014, theorem A.1), on clipped updates; the noise is
discrete (Canonne, Kamath and Steinke 2020).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from annotated_types import Gt, Le

from layers.logic.core.declaration import Need, Trait, declared
from layers.logic.core.hook import ClientContext, ClientSide, Hook
from layers.logic.core.messages import Slot, Update
from layers.logic.core.parts import Parts
from layers.logic.core.preset import Preset
from layers.logic.core.privacy import Budget, DifferentialPrivacy, Mechanism, Seen
from layers.logic.core.selector import LABELS, Selector
from layers.logic.errors import LogicError
from layers.logic.numeric.discrete_gaussian import discrete_gaussian
from layers.logic.privacy.central import GRID, Noise, on_grid, with_hook
from layers.logic.privacy.randomised_response import RandomisedResponse
from layers.logic.secrets import Secret
from layers.settings import Count, Fraction, Positive

LabelEpsilon = Annotated[float, Gt(0), Le(30)]
"""Of a label; with more than 30, it is kept but for once in 10^12."""


@dataclass(frozen=True)
class Local(DifferentialPrivacy):
    """Local DP: each client clips its update to norm C and adds Gaussian noise of sigma C.

    Whatever a client has, the server learns at most (epsilon, delta) about it: any two updates
    differ by 2 C at most. Epsilon counts every round for every client, as if it took part in all.
    Any aggregator works, since it sees what is private already.

    With `label_epsilon`, selectors may ask for the clients' labels: a client answers with some of
    them, each under randomised response, once.

    Attributes:
        clip: C, the largest norm of an update that is sent in full.
        delta: the probability up to which the claim may fail.
        noise: sigma, as a multiple of C. Clients take it from the experiment, not from the server.
        epsilon: the run ends before a round would exceed it; null: it is only reported.
        label_epsilon: of each label in an answer; all of them are in the run's epsilon, too. null:
            clients do not answer.
        labels: the most labels in an answer.
    """

    name = "local"

    clip: Positive
    delta: Fraction
    noise: Noise
    epsilon: Positive | None = None
    label_epsilon: LabelEpsilon | None = None
    labels: Count = 1

    @property
    def budget(self) -> Budget:
        return Budget(self.delta, self.epsilon)

    @property
    def noise_of_clients(self) -> float:
        """The noise as a multiple of 2 C, by which a client's update may differ."""
        return self.noise / 2

    def applied(self, preset: Preset, clients: int) -> Preset:
        response = None
        if self.label_epsilon is not None:
            asked = [one.classes for one in preset.selector.asks if one.name == LABELS]
            response = RandomisedResponse(max([2, *asked]), self.label_epsilon, self.labels)
        return with_hook(preset, HideUpdates(self.clip, self.noise, response))

    def mechanism(self, preset: Preset) -> Mechanism:
        return Mechanism(self.noise_of_clients, 1.0, per_round=preset.selector.tasks_per_round)

    def once(self) -> Mechanism | None:
        if self.label_epsilon is None:
            return None
        return Mechanism(None, 1.0, epsilon=self.label_epsilon * self.labels)

    @property
    def seen(self) -> Seen:
        server = "each client's update with the client's own noise, and its number of samples"
        if self.label_epsilon is not None:
            server += f", and labels by randomised response (epsilon {self.label_epsilon} each)"
        return Seen(server, "the models, which tell at most the recorded epsilon about any client")

    def with_noise(self, preset: Preset, noise: float) -> Preset:
        """Return the parts as they are: clients know the noise."""
        return preset


def check_by_number(selector: Selector, advice: str = "") -> None:
    """Check that a selector asks clients about nothing.

    Args:
        selector: the selector.
        advice: what else may be used.

    Raises:
        LogicError: it may.
    """
    if Trait.BY_NUMBER not in declared(selector):
        raise LogicError(
            f"{type(selector).__name__} may ask clients about their data, and what they answer is "
            f"not hidden; use a selector by the clients' numbers, such as uniform{advice}"
        )


@dataclass(frozen=True)
class HideUpdates(Hook):
    """Each client clips its update, adds noise of its own secret, and sends no metric.

    It answers no question of a selector but one for labels, and that by randomised response.

    Attributes:
        clip: C.
        noise: sigma.
        response: how it answers with labels; None: not at all.
    """

    clip: float
    noise: float
    response: RandomisedResponse | None = None

    requires = frozenset({Need.HIDDEN})

    @property
    def follows(self) -> frozenset[Trait]:
        """What follows from its methods; all that it sends is hidden."""
        return super().follows - {Trait.SENDS_MORE, Trait.USES_SINGLE}

    def check(self, logic: Parts) -> None:
        """Check that the selector asks for nothing that is not hidden."""
        if self.response is None:
            other = ", or label_epsilon with one that asks for labels alone"
            check_by_number(logic.selector, other)
        elif Trait.ONLY_LABELS not in declared(logic.selector):
            name = type(logic.selector).__name__
            raise LogicError(
                f"label_epsilon hides the answers about labels, but {name} asks for none, or for "
                "more; use a selector that asks for labels alone, such as astraea, or leave out "
                "label_epsilon"
            )

    def answered(self, question: str, classes: int, values: Slot, secret: Secret) -> Slot:
        """Return the answer by randomised response; an empty one to any other question."""
        response = self.response
        if response is None or question != LABELS or classes != response.categories:
            return {}
        return {"histogram": response.answer(np.asarray(values["histogram"]), secret)}

    def reported(self, question: str, values: Slot, samples: int) -> Slot:
        """Return the likely histogram of the client's labels; empty if its answer is none."""
        counts, response = values.get("histogram"), self.response
        if response is None or not isinstance(counts, np.ndarray) or counts.dtype != np.int64:
            return {}
        told = min(response.most, samples)
        if counts.shape != (response.categories,) or counts.min() < 0 or counts.sum() != told:
            return {}
        return {"histogram": response.histogram(counts, samples)} if told else {}

    class Client(ClientSide["HideUpdates"]):
        def send(self, update: Update, context: ClientContext) -> Update:
            step = self.hook.clip * self.hook.noise / GRID
            whole = on_grid(update.delta, self.hook.clip, step)
            draws = context.secret("noise", whole)
            hidden = (whole + discrete_gaussian(draws, GRID, whole.size)) * step
            return replace(update, delta=hidden.astype(np.float32), metrics={})
