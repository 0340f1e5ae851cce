"""The members of packs of real runs, and the texts about damaged and changed packs.

Only names and numbers that are the same on every machine are written.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from fedmx import Experiment
from fedmx.errors import FedmxError
from fedmx.history import PackFile, RecordedRun, fork, pack, verify
from fedmx.history.pack import MANIFEST, members_of, packed, to_bytes
from fedmx.history.packing import check_records
from fedmx.history.verify import run_again
from tests.fedmx.golden.difference_pages import made_run
from tests.fedmx.golden.fork_pages import SMALL
from tests.fedmx.pack.packed_runs import (
    Members,
    chain_anew,
    forged,
    records,
    write_experiment,
    write_records,
)
from tests.fedmx.recorded_runs import record


def packs(parent: Path) -> str:
    """The members of a pack, and the texts about damaged and changed packs."""
    run = record(
        Experiment(**{**SMALL, "rounds": 2, "clients": 4, "stop": {"accuracy": 1}}), parent
    )
    path = parent / "whole.fedmx"
    pack(run, path)
    content = path.read_bytes()
    lines = [*members_of(content), PackFile.read(path).manifest.to_bytes().decode()]
    forked = fork(run, 1, ["rounds=3"])
    list(forked.rounds())
    pack(forked.folder, parent / "fork.fedmx")
    lines += [*members_of((parent / "fork.fedmx").read_bytes())]
    facts = json.loads(PackFile.read(parent / "fork.fedmx").members["run.json"])["facts"]
    lines.append(json.dumps(facts["fork"]))
    for name, changed in _damaged(content).items():
        (parent / "x.fedmx").write_bytes(changed)
        lines.append(f"{name}: {_read(parent / 'x.fedmx', parent / 'opened')}")
    for change in _CHANGES:
        forged(path, change, parent / "x.fedmx")
        lines.append(f"{change.__name__}: {_read(parent / 'x.fedmx', parent / 'opened')}")
    for change in _FORKED:
        forged(parent / "fork.fedmx", change, parent / "x.fedmx")
        lines.append(f"{change.__name__}: {_read(parent / 'x.fedmx', parent / 'opened')}")
    for change in (with_a_module, of_other_machines):
        found = verify(forged(path, change, parent / "x.fedmx")).record()
        lines += [f"{change.__name__}: {json.dumps(found, indent=1)}"]
    lines += _not_packed(parent)
    return of_any_machine("\n".join(lines))


def of_any_machine(text: str) -> str:
    """Replace hashes, lengths and versions, and sentences of other packages."""
    text = re.sub("[0-9a-f]{64}", "HASH", text)
    text = re.sub(r'"bytes": \d+', '"bytes": LENGTH', text)
    text = re.sub(r"against \d+(\.\d+)+", "against VERSION", text)
    text = re.sub(r"(has no checkpoint of round \d+ \().*", r"\1...)", text)
    return re.sub(r"(Error while deserializing)[^()]*", r"\1", text)


def _not_packed(parent: Path) -> Iterator[str]:
    """Yield why runs are not packed."""
    runs = {name: made_run(parent, name) for name in ("failed", "stopped")}
    for status, run in runs.items():
        run.finish(cast(Any, status), "the reason")
    private = {
        "privacy": "{name: central, clip: 0.5, delta: 0.01, noise: 1.1}",
        "preset": "{name: fedavg, weights: uniform}",
        "logic": ", selector: {name: poisson, probability: 0.5}, min_updates: 0",
    }
    runs["private"] = made_run(parent, "private", facts={"mode": "server"}, **private)
    runs["other data"] = made_run(parent, "other")
    for name, run in runs.items():
        with pytest.raises(FedmxError) as caught:
            pack(run, parent / "not.fedmx")
        yield f"{name}: {caught.value}"
    (parent / "folder.fedmx").mkdir()
    for path in (parent / "folder.fedmx", parent / "not there" / "x.fedmx", parent / "x.zip"):
        with pytest.raises(FedmxError) as caught:
            pack(runs["stopped"], path)
        yield f"{path.name}: {caught.value}"


def _read(path: Path, folder: Path) -> str:
    """Read, unpack and check a pack, as `verify` does before it runs anything."""
    try:
        made = PackFile.read(path)
        opened = made.unpack(folder)
        found = check_records(made, opened)
    except FedmxError as error:
        # What follows the place is pydantic's sentence.
        return re.sub(r"(manifest is wrong \([^:]*: ).*\)", r"\1...)", str(error))
    finally:
        if folder.exists():
            folder.rename(folder.with_name(f"{folder.name}-{len(list(folder.parent.iterdir()))}"))
    return f"{found.rounds} rounds"


def _zip(members: Mapping[str, bytes], comment: bytes, how: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", how) as archive:
        for name, one in members.items():
            archive.writestr(zipfile.ZipInfo(name), one, how)
        archive.comment = comment
    return file.getvalue()


def _damaged(content: bytes) -> dict[str, bytes]:
    whole = PackFile.of_bytes(content)
    members, others = members_of(content), dict(whole.members)
    manifest = json.loads(members[MANIFEST])
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        seal = archive.comment

    def of_manifest(changed: object) -> bytes:
        return to_bytes({**members, MANIFEST: json.dumps(changed).encode()})

    def without(name: str) -> dict[str, bytes]:
        return {one: text for one, text in others.items() if one != name}

    return {
        "nothing": b"",
        "other bytes": b"PK" * 500,
        "the first half": content[: len(content) // 2],
        "a byte of a member": content.replace(b'"round"', b'"rounD"', 1),
        "bytes behind it": content + b"x",
        "no seal": _zip(members, b""),
        "another seal": _zip(members, b"fedmx pack " + b"0" * 64),
        "no manifest": _zip(others, seal),
        "another time of its members": _zip(members, seal),
        "compressed": _zip(members, seal, zipfile.ZIP_DEFLATED),
        "another name": _zip({**members, "modules/../up.py": b""}, seal),
        "a long name": _zip({**members, "x" * 300: b""}, seal),
        "a member more": to_bytes({**members, "words.json": b"[]"}),
        "a member less": to_bytes({**without("status.json"), MANIFEST: members[MANIFEST]}),
        "another member": to_bytes({**members, "status.json": b"{}"}),
        "no status": packed(whole.manifest, without("status.json")),
        "no records": packed(whole.manifest, without("rounds.jsonl")),
        "a module of Python": packed(whole.manifest, {**others, "modules/json.py": b""}),
        "a module of fedmx": packed(whole.manifest, {**others, "modules/layers/x.py": b""}),
        "a manifest of text": to_bytes({**members, MANIFEST: b"text"}),
        "a list": of_manifest([]),
        "a later format": of_manifest({**manifest, "format": 2, "more": 1}),
        "no run": of_manifest({key: one for key, one in manifest.items() if key != "run"}),
        "a key more": of_manifest({**manifest, "more": 1}),
        "a negative size": of_manifest({**manifest, "data": {**manifest["data"], "test": -1}}),
        "half a hash": of_manifest({**manifest, "data": {**manifest["data"], "sha256": "0" * 63}}),
    }


def _in_rounds(members: Members, round: int, **values: Any) -> None:
    lines = records(members, "rounds.jsonl")
    lines[round - 1] = {key: one for key, one in (lines[round - 1] | values).items() if one != ...}
    write_records(members, "rounds.jsonl", lines)


def _in_clients(members: Members, **values: Any) -> None:
    lines = records(members, "clients.jsonl")
    lines[-1] |= values
    write_records(members, "clients.jsonl", lines)


def nothing(members: Members) -> None:
    pass


def no_rounds(members: Members) -> None:
    members["rounds.jsonl"] = b""


def no_round_1(members: Members) -> None:
    write_records(members, "rounds.jsonl", records(members, "rounds.jsonl")[1:])


def no_round_2(members: Members) -> None:
    write_records(members, "rounds.jsonl", records(members, "rounds.jsonl")[:1])


def a_damaged_round(members: Members) -> None:
    members["rounds.jsonl"] = members["rounds.jsonl"].replace(b"accuracy", b"accurbcy", 1)


def a_damaged_client(members: Members) -> None:
    members["clients.jsonl"] = members["clients.jsonl"].replace(b"accepted", b"acceqted", 1)


def another_accuracy(members: Members) -> None:
    _in_rounds(members, 2, accuracy=0.99)


def no_chain(members: Members) -> None:
    _in_rounds(members, 2, chain=...)


def no_model(members: Members) -> None:
    _in_rounds(members, 1, model_sha256=...)


def a_model_that_is_no_text(members: Members) -> None:
    _in_rounds(members, 1, model_sha256=5)


def no_participants(members: Members) -> None:
    _in_rounds(members, 2, participants=...)


def participants_of_text(members: Members) -> None:
    _in_rounds(members, 2, participants=["0"])


def another_model_in_the_records(members: Members) -> None:
    _in_rounds(members, 2, model_sha256="0" * 64)
    chain_anew(members)


def another_update(members: Members) -> None:
    _in_clients(members, update_blake3=["0" * 64])


def an_update_that_is_no_list(members: Members) -> None:
    _in_clients(members, update_blake3="0" * 64)


def an_update_of_numbers(members: Members) -> None:
    _in_clients(members, update_blake3=[5])


def a_client_of_text(members: Members) -> None:
    _in_clients(members, client="0")


def no_bytes_of_the_model(members: Members) -> None:
    members["model.safetensors"] = b""


def no_file_of_the_model(members: Members) -> None:
    del members["model.safetensors"]


def another_model(members: Members) -> None:
    content = bytearray(members["model.safetensors"])
    content[-1] ^= 1
    members["model.safetensors"] = bytes(content)


def another_name_of_a_tensor(members: Members) -> None:
    content = members["model.safetensors"]
    members["model.safetensors"] = content.replace(b"bias", b"bias"[::-1], 1)


def another_type_of_a_tensor(members: Members) -> None:
    members["model.safetensors"] = members["model.safetensors"].replace(b'"F32"', b'"I32"', 1)


def another_experiment(members: Members) -> None:
    members["experiment.yaml"] += b"# more\n"


def a_run_that_failed(members: Members) -> None:
    members["status.json"] = b"{}"


def no_builds(members: Members) -> None:
    write_experiment(members, members["experiment.yaml"].decode(), builds=None)


def a_fork_of_nothing(members: Members) -> None:
    write_experiment(members, members["experiment.yaml"].decode(), fork={"round": 1})


def a_fork_without_its_checkpoint(members: Members) -> None:
    text = members["experiment.yaml"].decode()
    write_experiment(members, text, fork={"round": 1, "run": "parent"})


_CHANGES: tuple[Callable[[Members], None], ...] = (
    nothing,
    no_rounds,
    no_round_1,
    no_round_2,
    a_damaged_round,
    a_damaged_client,
    another_accuracy,
    no_chain,
    no_model,
    a_model_that_is_no_text,
    no_participants,
    participants_of_text,
    another_model_in_the_records,
    another_update,
    an_update_that_is_no_list,
    an_update_of_numbers,
    a_client_of_text,
    no_bytes_of_the_model,
    no_file_of_the_model,
    another_model,
    another_name_of_a_tensor,
    another_type_of_a_tensor,
    another_experiment,
    a_run_that_failed,
    no_builds,
    a_fork_of_nothing,
    a_fork_without_its_checkpoint,
)
_BEGIN = "checkpoints/round-000001.safetensors"


def the_fork(members: Members) -> None:
    pass


def no_begin(members: Members) -> None:
    del members[_BEGIN]


def half_a_begin(members: Members) -> None:
    members[_BEGIN] = members[_BEGIN][:-9]


def a_begin_of_another_round(members: Members) -> None:
    facts = json.loads(members["run.json"])["facts"]
    text = members["experiment.yaml"].decode()
    write_experiment(members, text, fork={**facts["fork"], "round": 2})
    members["checkpoints/round-000002.safetensors"] = members.pop(_BEGIN)


_FORKED = (the_fork, no_begin, half_a_begin, a_begin_of_another_round)


def with_a_module(members: Members) -> None:
    members["modules/mine/__init__.py"] = b"a\nb\n"
    members["modules/other.py"] = b"raise SystemExit\n"


def of_other_machines(members: Members) -> None:
    text = members["experiment.yaml"].decode()
    write_experiment(members, text, mode="server", numpy="0.1", address="203.0.113.1:1")
    del members["journal.jsonl"]


def verifications(parent: Path) -> str:
    """Where packed runs diverge from their records when they are run again."""
    lines = []
    for deployed, changes in ((False, _OF_A_RUN), (True, _OF_A_DEPLOYMENT)):
        run = record(Experiment(**{**SMALL, "rounds": 2}), parent, deployed=deployed)
        path = parent / f"{deployed}.fedmx"
        pack(run, path)
        for change in changes:
            forged(path, change, parent / "x.fedmx")
            changed = PackFile.read(parent / "x.fedmx")
            opened = changed.unpack(parent / f"{deployed}-{change.__name__}")
            check_records(changed, opened)
            told: list[Mapping[str, Any]] = []
            found = run_again(RecordedRun.open(opened), changed.manifest.data, told.append)
            lines.append(f"{deployed} {change.__name__}: {found} {told}")
            lines.append(f"  {None if found is None else found.record()}")
        whole = PackFile.read(path)
        data = whole.manifest.data.model_copy(update={"sizes": (1, 2, 3)})
        opened = whole.unpack(parent / f"{deployed}-opened")
        found = run_again(RecordedRun.open(opened), data, told.append)
        lines.append(f"{deployed}, other parts: {found}")
    return re.sub("(BLAKE3|recorded) [0-9a-f]{12}", r"\1 HASH", "\n".join(lines))


def _experiment(members: Members, *overrides: str) -> None:
    text = members["experiment.yaml"].decode()
    changed = Experiment.parse(text).with_overrides(overrides)
    write_experiment(members, changed.to_yaml(), digest=changed.digest())


def other_steps(members: Members) -> None:
    lines = records(members, "clients.jsonl")
    lines[0]["steps"] += 1
    write_records(members, "clients.jsonl", lines)


def other_fates(members: Members) -> None:
    _in_rounds(members, 2, rejected=5, lost=6)
    chain_anew(members)


def other_control_bytes(members: Members) -> None:
    _in_rounds(members, 2, control_bytes=5)
    chain_anew(members)


def a_last_update_that_is_another(members: Members) -> None:
    another_update(members)
    chain_anew(members)


def a_client_less(members: Members) -> None:
    lines = records(members, "clients.jsonl")
    gone = lines.pop()
    write_records(members, "clients.jsonl", lines)
    rounds = records(members, "rounds.jsonl")
    rounds[1]["participants"].remove(gone["client"])
    write_records(members, "rounds.jsonl", rounds)
    chain_anew(members)


def fewer_rounds(members: Members) -> None:
    _experiment(members, "rounds=1")


def more_updates(members: Members) -> None:
    _experiment(members, "logic.min_updates=3")


def an_update_in_the_journal(members: Members) -> None:
    lines = records(members, "journal.jsonl")
    event = next(event for _, event, *_ in lines[1]["entries"] if event["event"] == "update")
    event["blake3"] = "0" * 64
    write_records(members, "journal.jsonl", lines)


def a_task_in_the_journal(members: Members) -> None:
    lines = records(members, "journal.jsonl")
    commands = [one for _, _, *some in lines[1]["entries"] for one in some]
    next(one for one in commands if one[0] == "tasks")[2][1] = 7
    write_records(members, "journal.jsonl", lines)


_OF_A_RUN: tuple[Callable[[Members], None], ...] = (
    nothing,
    other_steps,
    other_fates,
    other_control_bytes,
    a_last_update_that_is_another,
    a_client_less,
    fewer_rounds,
    more_updates,
    an_update_in_the_journal,
)
_OF_A_DEPLOYMENT: tuple[Callable[[Members], None], ...] = (
    nothing,
    other_fates,
    other_control_bytes,
    an_update_in_the_journal,
    a_task_in_the_journal,
)

PACKS: tuple[Callable[[Path], str], ...] = (packs, verifications)
