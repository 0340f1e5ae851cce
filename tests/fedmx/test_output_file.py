"""A file that a user asked for has a name, and one that is no folder's."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedmx import FedmxError
from fedmx.output_file import check_output


@pytest.mark.parametrize("name", ["", ".", "/", ".."])
@pytest.mark.parametrize("ending", [".html", ".csv", ".fedmx", ".onnx"])
def test_a_folder_is_refused_with_a_file_in_it(name: str, ending: str) -> None:
    path = Path(name)
    with pytest.raises(FedmxError) as caught:
        check_output(path, "it is written", (ending,))
    text = f"{path}: is a folder; name a file in it, as {path / f'NAME{ending}'}"
    assert str(caught.value) == text


def test_an_empty_name_is_refused_where_the_working_directory_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(FedmxError, match=r"^\.: is a folder"):
        check_output(Path(), "it is written", (".html",))
