"""An output file is no folder, and its module can be imported and hides no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedmx import FedmxError
from fedmx.output_file import check_module_name, check_output


@pytest.mark.parametrize("name", ["", ".", "/", ".."])
@pytest.mark.parametrize("ending", [".html", ".csv", ".fedmx", ".onnx"])
def test_a_folder_is_refused_with_an_example(name: str, ending: str) -> None:
    path = Path(name)
    with pytest.raises(FedmxError) as caught:
        check_output(path, "it is written", (ending,))
    text = f"{path}: is a folder; name a file in it, as {path / f'NAME{ending}'}"
    assert str(caught.value) == text


def test_an_empty_name_is_refused_without_a_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(FedmxError, match=r"^\.: is a folder"):
        check_output(Path(), "it is written", (".html",))


@pytest.mark.parametrize("stem", ["net", "lenet5_torch", "match", "_", "netz_für_ziffern"])
def test_importable_names_are_accepted(stem: str) -> None:
    check_module_name(Path(f"out.d/{stem}.safetensors"))


@pytest.mark.parametrize(
    ("stem", "why", "instead"),
    [
        ("torch", "hide the module torch", "torch_model"),
        ("safetensors", "would hide the module safetensors", "safetensors_model"),
        ("random", "would hide the module random", "random_model"),
        ("class", "class is a keyword", "class_model"),
        ("my-model 1", "cannot be imported by that name", "my_model_1"),
        ("2nn", "cannot be imported by that name", "model_2nn"),
        ("net.v2", "cannot be imported by that name", "net_v2"),
    ],
)
def test_other_names_are_refused_with_an_importable_one(stem: str, why: str, instead: str) -> None:
    path = Path("out.d") / f"{stem}.safetensors"
    with pytest.raises(FedmxError) as caught:
        check_module_name(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: the module beside it would be {stem}.py, ")
    assert why in text
    assert text.endswith(f"; give another name, such as {instead}.safetensors")
    check_module_name(path.with_name(f"{instead}.safetensors"))
