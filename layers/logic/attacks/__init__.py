"""Attacks: what lying clients do to their samples and updates."""

from __future__ import annotations
