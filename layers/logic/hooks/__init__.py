"""The hooks by name."""

from __future__ import annotations

from layers.logic.hook import Hook
from layers.logic.hooks.clip import Clip
from layers.logic.hooks.gradient_reply import GradientReply

HOOKS: dict[str, type[Hook]] = {"clip": Clip, "gradient-reply": GradientReply}
