"""The examples in the help of the commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest
import typer
from typer.core import TyperCommand, TyperGroup

from fedmx.cli.examples import EXAMPLES
from fedmx.cli.main import app


def commands(group: TyperGroup, words: str = "") -> Iterator[tuple[str, TyperCommand]]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, f"{words}{name} ")
        elif not command.hidden:
            yield f"{words}{name}", command


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("words", sorted({*COMMANDS, *EXAMPLES}))
def test_the_help_of_a_command_has_two_examples_with_options_that_it_has(words: str) -> None:
    command = COMMANDS[words]
    first, second = EXAMPLES[words]
    assert first != second
    with typer.Context(command) as context:
        help_text = command.get_help(context)
        for line in (first, second):
            assert line in help_text
            assert len(f"    fedmx {line}") <= 80
            arguments = shlex.split(line.partition(">")[0].partition("|")[0])
            assert " ".join(arguments[: len(words.split())]) == words
            command.make_parser(context).parse_args(arguments[len(words.split()) :])
