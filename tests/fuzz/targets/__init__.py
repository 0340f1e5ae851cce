"""All targets, by name."""

from __future__ import annotations

from tests.fuzz.target import Target
from tests.fuzz.targets import checkpoint, codecs, frames, messages, packs, records, sessions

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        frames.TARGET,
        sessions.SERVER,
        sessions.CLIENT,
        messages.MESSAGES,
        messages.WORDS,
        *codecs.TARGETS,
        checkpoint.TARGET,
        records.RECORDS,
        records.DOCUMENT,
        packs.TARGET,
    )
}
