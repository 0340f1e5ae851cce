"""Local differential privacy: each client hides its own update, so that no server need be trusted.

Source: the Gaussian mechanism (Dwork and Roth 2014, theorem A.1), on clipped updates; the noise is
discrete (Canonne, Kamath and Steinke 2020).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from layers.logic.core.declaration import Need, Trait
from layers.logic.core.hook import ClientContext, ClientSide, Hook
from layers.logic.core.messages import Update
from layers.logic.core.preset import Preset
from layers.logic.core.privacy import Budget, Mechanism, Privacy
from layers.logic.numeric.discrete_gaussian import discrete_gaussian
from layers.logic.privacy.central import GRID, check_settings, on_grid, with_hook


@dataclass(frozen=True)
class Local(Privacy):
    """Local DP: each client clips its update to norm C and adds Gaussian noise of sigma C.

    Whatever a client has, the server learns at most (epsilon, delta) about it: any two updates
    differ by 2 C at most. Epsilon counts every round for every client, as if it took part in all.
    Any aggregator works, since it sees what is private already.

    Attributes:
        clip: C, the largest norm of an update that is sent in full.
        delta: the probability up to which the claim may fail.
        noise: sigma, as a multiple of C. Clients take it from the experiment, not from the server.
        epsilon: the run ends before a round would exceed it; null: it is only reported.
    """

    name = "local"

    clip: float
    delta: float
    noise: float
    epsilon: float | None = None

    def __post_init__(self) -> None:
        check_settings(self.clip, self.delta, self.epsilon, self.noise)

    @property
    def budget(self) -> Budget:
        """Delta and epsilon."""
        return Budget(self.delta, self.epsilon)

    def applied(self, preset: Preset, clients: int) -> Preset:
        """Return the parts with noise on the clients."""
        return with_hook(preset, HideUpdates(self.clip, self.noise))

    def mechanism(self, preset: Preset) -> Mechanism:
        """Return the noise as a multiple of 2 C, by which a client's update may differ."""
        return Mechanism(self.noise / 2, 1.0)

    def with_noise(self, preset: Preset, noise: float) -> Preset:
        """Return the parts as they are: clients know the noise."""
        return preset


@dataclass(frozen=True)
class HideUpdates(Hook):
    """Each client clips its update, adds noise of its own secret, and sends no metric.

    Attributes:
        clip: C.
        noise: sigma.
    """

    clip: float
    noise: float

    requires = frozenset({Need.HIDDEN})
    provides = frozenset({Trait.KEEPS_NAMES})

    def client(self) -> ClientSide:
        """Return the side that hides the update."""
        return _Hiding(self.clip, self.noise)


@dataclass
class _Hiding(ClientSide):
    clip: float
    noise: float

    def send(self, update: Update, context: ClientContext) -> Update:
        step = self.clip * self.noise / GRID
        whole = on_grid(update.delta, self.clip, step)
        draws = context.secret("noise", whole)
        hidden = (whole + discrete_gaussian(draws, GRID, whole.size)) * step
        return replace(update, delta=hidden.astype(np.float32), metrics={})
