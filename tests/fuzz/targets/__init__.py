"""All targets, by name."""

from __future__ import annotations

from tests.fuzz.target import Target
from tests.fuzz.targets import codecs, network, packs, run_files, sessions

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        network.FRAMES,
        sessions.SERVER,
        sessions.CLIENT,
        network.MESSAGES,
        network.WORDS,
        *codecs.TARGETS,
        run_files.CHECKPOINT,
        run_files.RECORDS,
        run_files.DOCUMENT,
        packs.TARGET,
    )
}
