"""A run that is killed at many places goes on to the same model and the same records.

`python -m tests.fedmx.killed_anywhere` takes all places; these are some of each kind.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.fedmx.killed_anywhere import Killed
from tests.network.conftest import Certificates

pytestmark = pytest.mark.timeout(300)  # many processes on a busy machine

CHECKPOINT = "checkpoints/.writing-N-round-N.safetensors"
MODEL = ".writing-N-model.safetensors"
LEDGER = ".writing-N-N-client-N.safetensors"
OF_A_ROUND = (
    "os.rename .writing-N-rounds.jsonl #1",
    "fold: in the middle of add #2",
    "fold: in the middle of finish #1",
    "half of pwrite journal.jsonl #1",
    "half of pwrite clients.jsonl #1",
    f"half of save_file {CHECKPOINT} #1",
    f"os.rename {CHECKPOINT} #1",
    "fsync checkpoints #1",
)
OF_THE_END = (f"half of save_file {MODEL} #1", "os.rename .writing-N-status.json #1")
OF_AN_UPDATE = (f"half of save_file {LEDGER} #1", f"os.rename {LEDGER} #1")
ROUNDS = 8


@pytest.mark.parametrize("error", [0, errno.EROFS, errno.ENOSPC])
def test_a_simulation_that_ends_anywhere_goes_on_to_the_same_bits(
    error: int, tmp_path: Path
) -> None:
    """Killed, or with an error of one line where the disk cannot be written any more."""
    wanted = {"a round": OF_A_ROUND, "the end": OF_THE_END}
    if error:
        wanted["a round"] = tuple(one for one in OF_A_ROUND if not one.startswith("fold"))
    run = Killed(tmp_path / "run", ROUNDS, wanted, error)
    run.simulate()
    run.check()
    assert {part: sorted(places) for part, places in run.places.items()} == {
        part: sorted(places) for part, places in wanted.items()
    }


def test_a_server_and_a_client_that_are_killed_anywhere_go_on_to_the_same_bits(
    certificates: Certificates, tmp_path: Path
) -> None:
    wanted = {"an update": OF_AN_UPDATE, "a round": OF_A_ROUND, "the end": OF_THE_END}
    run = Killed(tmp_path / "run", ROUNDS, wanted)
    run.deploy(certificates)
    run.check()
    assert {part: sorted(places) for part, places in run.places.items()} == {
        part: sorted(places) for part, places in wanted.items()
    }
