"""The module beside a state_dict can be imported, and hides no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedmx import FedmxError
from fedmx.export import check_module_name


@pytest.mark.parametrize("stem", ["net", "lenet5_torch", "match", "_", "netz_für_ziffern"])
def test_a_name_that_can_be_imported_is_taken(stem: str) -> None:
    check_module_name(Path(f"out.d/{stem}.safetensors"))


@pytest.mark.parametrize(
    ("stem", "why", "instead"),
    [
        ("torch", "would hide the module torch", "torch_model"),
        ("safetensors", "would hide the module safetensors", "safetensors_model"),
        ("random", "would hide the module random", "random_model"),
        ("class", "class is a word of Python's", "class_model"),
        ("my-model 1", "cannot be imported by that name", "my_model_1"),
        ("2nn", "cannot be imported by that name", "model_2nn"),
        ("net.v2", "cannot be imported by that name", "net_v2"),
    ],
)
def test_a_name_of_no_use_is_refused_with_one_that_can_be_imported(
    stem: str, why: str, instead: str
) -> None:
    path = Path("out.d") / f"{stem}.safetensors"
    with pytest.raises(FedmxError) as caught:
        check_module_name(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: the module beside it would be {stem}.py, ")
    assert why in text
    assert text.endswith(f"; give another name, such as {instead}.safetensors")
    check_module_name(path.with_name(f"{instead}.safetensors"))
