"""Old names of earlier versions lead to the names that replaced them."""

from __future__ import annotations

import pytest

from fedmx.components.text import new_key, new_option, new_setting, renamed_text


@pytest.mark.parametrize(
    ("known", "new"),
    [
        (("learning_rate", "beta"), "learning_rate"),
        (("server_learning_rate",), "server_learning_rate"),
        (("beta",), None),
        ((), None),
    ],
)
def test_an_old_setting_is_the_one_of_the_new_that_the_component_has(known, new) -> None:
    assert new_setting("rate", known) == new
    assert new_setting("beta", known) is None


def test_an_old_option_is_named_where_the_new_one_is_known() -> None:
    assert new_option("--engine", ("--executor", "--set")) == "--executor"
    assert new_option("--engine", ("--set",)) is None
    assert new_option("--set", ("--set", "--executor")) is None


def test_an_old_key_is_known_by_its_place() -> None:
    assert new_key(("engine",)) == "executor"
    assert new_key(("logic", "select")) == "selector"
    assert new_key(("logic", "aggregate")) == "aggregator"
    assert new_key(("compute", "train", "rate")) == "learning_rate"
    assert new_key(("logic", "rate")) is None
    assert renamed_text("executor") == "is called executor now; write executor"
