"""The reference: a page for each kind of public name of `fedmx`, built from the docstrings."""

from __future__ import annotations

import ast
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

STUB = Path(__file__).resolve().parents[2] / "fedmx" / "__init__.pyi"
# Title of a page: its address, what it is about, and the homes of its names, by their beginning.
KINDS = {
    "Experiments and runs": (
        "runs",
        "Read an experiment, simulate or deploy it, and inspect its rounds.",
        ("fedmx.",),
    ),
    "Network": (
        "network",
        "The ends of a connection, the messages between them, and the certificates of both.",
        ("layers.network.", "fedmx.protocol."),
    ),
    "Hooks and messages": (
        "hooks",
        "A hook has a client side and a server side; tasks and updates carry a slot for each hook.",
        (
            "layers.logic.core.hook",
            "layers.logic.core.gradient_term",
            "layers.logic.core.messages",
            "layers.logic.core.asset",
            "layers.logic.core.attack",
        ),
    ),
    "Selectors": (
        "selectors",
        "A selector writes a round: who trains, when, and what counts.",
        (
            "layers.logic.core.selector",
            "layers.logic.core.round",
            "layers.logic.core.survey",
            "layers.logic.algorithms",
        ),
    ),
    "Aggregators": (
        "aggregators",
        "An aggregator folds the updates of a round into the next model.",
        ("layers.logic.core.aggregator", "layers.logic.aggregators", "layers.logic.core.state"),
    ),
    "Codecs": (
        "codecs",
        "A codec makes updates and models smaller.",
        ("layers.logic.compression",),
    ),
    "Training and data": (
        "training",
        "Local training, models, data sets and partitions.",
        (
            "layers.compute.",
            "layers.logic.core.engine",
            "layers.logic.core.local_tensors",
            "layers.logic.core.trainer",
        ),
    ),
    "Simulated devices": (
        "devices",
        "The speed of simulated devices and channels, and the availability of clients.",
        ("layers.logic.clock",),
    ),
    "Parts, presets, reports": (
        "logic",
        "The parts of an algorithm, the report of a round, and errors.",
        (
            "layers.logic.core.declaration",
            "layers.logic.core.parts",
            "layers.logic.core.preset",
            "layers.logic.core.report",
            "layers.logic.errors",
            "layers.logic.round",
            "layers.logic.seeds",
        ),
    ),
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of the reference in the navigation."""
    pages = [{title: f"reference-{address}.md"} for title, (address, _, _) in KINDS.items()]
    for section in config.nav or []:
        if "Reference" in section:
            section["Reference"].insert(-1, {"Python": pages})  # the algorithms are many
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the reference, beside those of docs/, to which docstrings link."""
    for title, (address, about, _) in KINDS.items():
        names = [name for name, home in public_homes().items() if kind_of(home) == title]
        directives = "\n".join(f"::: {public_homes()[name]}.{name}\n" for name in names)
        text = f"# {title}\n\n{about}\nEach name is imported from `fedmx`.\n\n{directives}"
        files.append(File.generated(config, f"reference-{address}.md", content=text))
    return files


def kind_of(home: str) -> str:
    """Return the title of the page that a module's names are on."""
    titles = {
        beginning: title
        for title, (_, _, beginnings) in KINDS.items()
        for beginning in beginnings
        if home.startswith(beginning)
    }
    if titles:
        return titles[max(titles, key=len)]
    raise PluginError(f"reference: no page for {home}; add it to KINDS in {__file__}")


def public_homes() -> dict[str, str]:
    """Return the public names of `fedmx`, and the module that defines each."""
    homes = {}
    for node in ast.parse(STUB.read_bytes()).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.name != "__version__":
                    homes[alias.name] = _defining(str(node.module), alias.name)
    return dict(sorted(homes.items()))


def _defining(module: str, name: str) -> str:
    """Return the module that defines a name, where `module` only hands it on."""
    path = STUB.parents[1] / module.replace(".", "/") / "__init__.py"
    if path.exists():
        for node in ast.parse(path.read_bytes()).body:
            if isinstance(node, ast.ImportFrom) and any(one.name == name for one in node.names):
                return _defining(str(node.module), name)
    return module
