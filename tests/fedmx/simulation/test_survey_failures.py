"""A client that fails in a survey is named, and the survey belongs to no round."""

from __future__ import annotations

from typing import Any

import pytest

from fedmx.simulation.executors.executor import SerialExecutor
from layers.logic import ClientFailed, Question


def test_a_client_that_cannot_answer_is_named_with_the_question() -> None:
    def no_samples(client: int) -> Any:
        raise OSError(f"no samples of {client}")

    nothing: Any = None
    executor = SerialExecutor(nothing, nothing, no_samples)
    with pytest.raises(ClientFailed) as caught:
        executor.ask(Question("labels", round=2), [3, 4])
    failed = caught.value
    assert (failed.client, failed.round) == (3, 0)
    assert failed.what == "survey 'labels': OSError: no samples of 3"
