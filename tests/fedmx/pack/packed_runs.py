"""Small runs that are packed, and packs that somebody changed and sealed again."""

from __future__ import annotations

import json
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

from fedmx.history import PackFile
from fedmx.history.pack import packed, sha256
from fedmx.journal.chain import CHAIN, START, chained
from fedmx.run.durable import CHECKSUM, document_text, sealed
from tests.fedmx.command_line import fedmx

MINE = """
import os
from pathlib import Path
import shared_by_mine
from fedmx import ClientSide, Hook

if "FEDMX_TEST_TRACE" in os.environ:
    Path(os.environ["FEDMX_TEST_TRACE"]).touch()


class Mine(Hook):
    class Client(ClientSide):
        def send(self, update, context):
            update.delta[:] *= shared_by_mine.FACTOR
            return update
"""
FILE = """
name: small
rounds: 9
clients: 4
stop: {accuracy: 0.6}
compute:
  model: logistic
  data: digits
  normalise: {scale: 16}
  partition: dirichlet
  train: {batch_size: 20, learning_rate: 0.01}
logic: {preset: {name: fedavg, fraction: 0.75}, hooks: HOOKS}
"""
Members = MutableMapping[str, bytes]
Change = Callable[[Members], None]


def run(folder: Path, hooks: str = "[]", *words: str) -> Path:
    """Run the small experiment, and return the run folder."""
    (folder / "mine.py").write_text(MINE)
    (folder / "shared_by_mine.py").write_text("FACTOR = 1\n")
    (folder / "nobody_imports_it.py").write_text("SECRET = 1\n")
    (folder / "small.yaml").write_text(FILE.replace("HOOKS", hooks))
    done = fedmx("run", "small.yaml", "--own-modules", *words, cwd=folder)
    assert done.code == 0, done.err
    return next((folder / "runs").iterdir())


def forged(pack: Path, change: Change, path: Path) -> Path:
    """Write a pack with other members, whose manifest and seal are right again."""
    content = PackFile.read(pack)
    members = dict(content.members)
    change(members)
    path.write_bytes(packed(content.manifest, members))
    return path


def records(members: Members, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in members[name].splitlines()]


def write_records(members: Members, name: str, lines: list[dict[str, Any]]) -> None:
    """Put records into a pack, each with the right checksum."""
    plain = [{key: one for key, one in line.items() if key != CHECKSUM} for line in lines]
    members[name] = "".join(json.dumps(sealed(line, name)) + "\n" for line in plain).encode()


def chain_anew(members: Members) -> None:
    """Make the chain anew, so that it fits the records as they are now."""
    link, rounds = START, records(members, "rounds.jsonl")
    hashes = {
        (one["round"], one["client"]): one["update_blake3"]
        for one in records(members, "clients.jsonl")
    }
    for line in rounds:
        updates = [sent for who in line["participants"] for sent in hashes[line["round"], who]]
        record = {key: one for key, one in line.items() if key != CHECKSUM}
        link = line[CHAIN] = chained(link, record, updates, line["model_sha256"])
    write_records(members, "rounds.jsonl", rounds)


def write_experiment(members: Members, text: str, **facts: Any) -> None:
    """Put another experiment into a pack, as if the run had begun with it."""
    members["experiment.yaml"] = text.encode()
    document = json.loads(members["run.json"])
    document.pop(CHECKSUM)
    document["files"]["experiment.yaml"] = sha256(text.encode())
    document["facts"] |= facts
    members["run.json"] = document_text(document, "run.json").encode()


def in_records(name: str, place: int, **values: Any) -> Change:
    """Change values of one record; one that becomes `...` goes."""

    def change(members: Members) -> None:
        lines = records(members, name)
        lines[place] = {key: one for key, one in (lines[place] | values).items() if one != ...}
        write_records(members, name, lines)

    return change


def in_member(name: str, old: bytes, new: bytes) -> Change:
    """Replace words of a member once, or all of it if there are no words."""

    def change(members: Members) -> None:
        members[name] = members[name].replace(old, new, 1) if old else new

    return change


def with_facts(old: str = "", new: str = "", **facts: Any) -> Change:
    """Another experiment with other facts, as if the run had begun with them."""

    def change(members: Members) -> None:
        text = members["experiment.yaml"].decode()
        assert old in text
        write_experiment(members, text.replace(old, new) if old else text, **facts)

    return change


def rounds_of(path: Path) -> int:
    return len(records(dict(PackFile.read(path).members), "rounds.jsonl"))
