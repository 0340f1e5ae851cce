"""Two examples of each command, which its help shows."""

from __future__ import annotations

import typer

_TO = "--to fed.example.org:7070 --certs pki"
EXAMPLES = {
    "new": ("new first-idea --hook", "new survey --data csv"),
    "run": ("run idea.yaml", "run idea.yaml --set rounds=5 --executor processes:4"),
    "resume": ("resume runs/idea-20260131-093000", "resume RUN --patience 60"),
    "fork": ("fork RUN --round 10 --without 3", "fork RUN --set compute.train.learning_rate=0.01"),
    "sweep": (
        "sweep idea.yaml --vary logic.preset=fedavg,fedprox",
        "sweep idea.yaml --vary logic.preset=fedavg,stc --seeds 10 --target 0.9",
    ),
    "survey": ("survey survey.yaml", "survey survey.yaml --listen 0.0.0.0:7070 --least 10"),
    "submit": (f"submit idea.yaml {_TO}", f"submit idea.yaml {_TO} --follow"),
    "jobs": (f"jobs {_TO}", f"jobs {_TO} --json"),
    "cancel": (f"cancel 000001 {_TO}", f"cancel 000001 {_TO} --as anna"),
    "fetch": (f"fetch 000001 runs/first {_TO}", f"fetch 000002 second {_TO} --as anna"),
    "server": (
        "server idea.yaml",
        "server idea.yaml --listen 127.0.0.1:7070 --set rounds=5",
    ),
    "client": (
        "client 127.0.0.1:7070 --id 0",
        "client HOST:7070 --ca ca.pem --cert client-7.pem --key client-7.key",
    ),
    "clients": ("clients 20 127.0.0.1:7070", "clients 20 127.0.0.1:7070 --certs certs"),
    "runs": ("runs", "runs sweeps/idea --json"),
    "status": ("status runs/idea-20260131-093000", "status 127.0.0.1:9109"),
    "ctl": ("ctl RUN pause", "ctl RUN exclude 3"),
    "report": ("report runs/fedavg runs/stc --target 0.9", "report RUN --figures figures"),
    "replay": ("replay RUN", "replay RUN --round 5 --client 3"),
    "diff": ("diff runs/first runs/second", "diff runs/first runs/second --json"),
    "export": ("export RUN --to onnx", "export RUN --to torch -o model.pt"),
    "evaluate": (
        "evaluate RUN --data mine.npz",
        "evaluate runs/first runs/second --data a.csv --data b.csv",
    ),
    "pack": ("pack RUN -o idea.fedmx", "pack RUN -o idea.fedmx --own-modules"),
    "verify": ("verify idea.fedmx", "verify idea.fedmx --executor processes:4"),
    "unpack": ("unpack idea.fedmx runs/idea", "unpack idea.fedmx /tmp/idea"),
    "list": ("list", "list models --engine torch"),
    "explain": ("explain fedprox", "explain idea.yaml"),
    "schema": ("schema > fedmx.schema.json", "schema | jq .properties.logic"),
    "federation serve": (
        "federation serve FOLDER --listen 0.0.0.0:7070 --certs certs",
        "federation serve FOLDER --listen 127.0.0.1:7070 --page 127.0.0.1:8080",
    ),
    "federation remove": (
        f"federation remove ulm {_TO}",
        f"federation remove ulm {_TO} --as anna",
    ),
    "federation add": (f"federation add ulm {_TO}", f"federation add ulm {_TO} --as anna"),
    "data show": (
        "data show idea.yaml",
        "data show mnist --clients 100 --partition shards --figure labels.png",
    ),
    "data list": ("data list", "data list --json"),
    "data get": ("data get mnist", "data get cifar-10 --json"),
    "certs ca": ("certs ca pki", "certs ca authority"),
    "certs server": ("certs server pki", "certs server pki --name server.example.org"),
    "certs client": ("certs client pki 7", "certs client pki 20 21"),
    "certs site": ("certs site pki aachen", "certs site pki aachen bonn ulm"),
    "certs kit": (
        "certs kit pki bonn --address fed.example.org:7070",
        "certs kit pki ulm --address fed.example.org:7070 --request",
    ),
    "certs operator": ("certs operator pki anna", "certs operator pki guest --reader"),
    "certs request": (
        "certs request certs 7",
        "certs request certs server --name server.example.org",
    ),
    "certs sign": ("certs sign pki client-7.csr", "certs sign pki ulm.csr --again"),
    "certs crl": ("certs crl pki", "certs crl authority"),
    "certs revoke": ("certs revoke pki 7", "certs revoke pki ulm.pem"),
    "certs all": ("certs all certs --clients 20", "certs all certs --name server.example.org"),
    "certs show": ("certs show client-7.pem", "certs show certs/ca.pem"),
}
"""By the words of a command; the arguments after ``fedmx``."""


def show_examples(app: typer.Typer, words: tuple[str, ...] = ()) -> None:
    """Put the examples of each command that the help lists below its options."""
    for command in app.registered_commands:
        if command.name is not None and not command.hidden:
            lines = EXAMPLES[" ".join((*words, command.name))]
            command.epilog = "\b\nExamples:\n" + "\n".join(f"  fedmx {line}" for line in lines)
    for group in app.registered_groups:
        if group.typer_instance is not None and isinstance(group.name, str):
            show_examples(group.typer_instance, (*words, group.name))
