"""Whatever the text, it is an experiment or an ExperimentError."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from fedmx import Experiment, ExperimentError
from fedmx.experiment.reader import parse_text, values_in
from fedmx.experiment.schema import KEYS
from tests.fedmx.experiment.texts import LEAST


def check_parsed(text: str, *overrides: str) -> None:
    """The text is an experiment that can be written and read, or an error in whole lines."""
    problem, experiment = "", None
    try:
        experiment = Experiment.parse(text, "exp.yaml", overrides)
    except ExperimentError as error:
        problem = str(error)
    assert all(line.isprintable() for line in problem.split("\n"))
    assert (experiment is None) == bool(problem)
    with contextlib.suppress(ExperimentError):
        values_in(text)
    if experiment is not None:
        written = experiment.to_yaml()
        assert Experiment.parse(written) == experiment
        assert values_in(written) == parse_text(written, "written")[0]


@given(st.text(max_size=200))
def test_any_text_is_an_experiment_or_an_experiment_error(text: str) -> None:
    check_parsed(text)
    check_parsed(LEAST + text)
    check_parsed(LEAST.replace("digits", text))


PIECES = ["rounds", "compute", "name", "!t", "1e3", "null", "true", "<<", ".inf", "---", "..."]
PIECES += [*"a1&*'\"|>?#=~\\@`-+.,{}[]:", "%YAML", "%TAG"]
SPACES = [" ", "  ", "\n", "\n  ", ": ", "- ", "\t", "\r", "\x85", "\u2028", "\ufeff", "\0"]


@given(st.lists(st.sampled_from(PIECES + SPACES), max_size=40).map("".join))
def test_any_pieces_of_yaml_are_an_experiment_or_an_experiment_error(text: str) -> None:
    check_parsed(text)
    check_parsed(LEAST + text)


paths = st.lists(
    st.sampled_from(list(KEYS))
    | st.sampled_from(["0", "1", "9", "name", "x", "", "settings", "portable"])
    | st.text(max_size=5),
    max_size=4,
).map(".".join)
values = st.sampled_from(
    ["1", "0.5", "a", "[]", "{}", "{name: a}", "[a, {name: b}]", "", "null", "all"]
)


@given(st.lists(st.builds("{}={}".format, paths, values | st.text(max_size=10)), max_size=4))
def test_any_overrides_are_an_experiment_or_an_experiment_error(overrides: list[str]) -> None:
    check_parsed(LEAST, *overrides)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | texts
)
settings = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
)
names = st.from_regex(r"[a-z][a-z0-9_.-]{0,5}:[a-z0-9_:.-]{1,5}", fullmatch=True)
components = st.builds(
    lambda name, given: {**given, "name": name}, names, st.dictionaries(texts, settings, max_size=3)
)


@given(
    st.lists(components, max_size=3),
    components,
    st.floats(1e-300, 1e300),
    st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True),
)
def test_any_experiment_that_is_written_reads_back_equal(
    hooks: list[object], data: object, learning_rate: float, name: str
) -> None:
    experiment = Experiment.from_dict(
        {
            "name": name,
            "rounds": 1,
            "clients": 2,
            "compute": {"model": "lenet5", "data": data, "train": {"learning_rate": learning_rate}},
            "logic": {"hooks": hooks},
        }
    )
    written = experiment.to_yaml()
    again = Experiment.parse(written)
    assert again == experiment
    assert values_in(written) == parse_text(written, "written")[0]
    assert again.digest() == experiment.digest()
