"""The hooks by name."""

from __future__ import annotations

from layers.logic.hook import Hook
from layers.logic.hooks.clip import Clip
from layers.logic.hooks.fedprox import FedProx
from layers.logic.hooks.gradient_reply import GradientReply
from layers.logic.hooks.scaffold import Scaffold

HOOKS: dict[str, type[Hook]] = {
    "clip": Clip,
    "fedprox": FedProx,
    "gradient-reply": GradientReply,
    "scaffold": Scaffold,
}
