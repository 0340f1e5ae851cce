"""Who answered a round's inquiry and then left for good is not selected."""

from __future__ import annotations

import pytest

from layers.logic import Answer, run_round
from layers.logic.aggregators.mean import Mean
from layers.logic.algorithms.fedcs import FedCS
from layers.logic.algorithms.knapsack import OfflineKP, OnlineKP
from layers.logic.round.exchange import Left
from layers.logic.selectors.power_of_choice import PowerOfChoice
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state
from tests.logic.quadratic import bowls

CLIENTS = bowls(4)


class Leaving(MemoryCarrier):
    """Client 2 leaves for good as soon as it has answered."""

    def _ask(self, question, clients):
        super()._ask(question, clients)
        self._arrived.insert(-1, Left(2))


def known_times(reply: Answer) -> list[Answer]:
    if reply.question != "times":
        return [reply]
    return [Answer(reply.client, "times", {"train_s": 1.0, "upload_s": 1.0})]


@pytest.mark.parametrize(
    "selector",
    [FedCS(), OfflineKP(), OnlineKP(), PowerOfChoice(1.0)],
    ids=lambda s: type(s).__name__,
)
def test_who_left_after_its_answer_is_not_selected(selector) -> None:
    deadline_s = None if isinstance(selector, PowerOfChoice) else 100.0
    logic = a_logic(selector, deadline_s=deadline_s, aggregator=Mean("uniform"))
    peers = Leaving(logic, CLIENTS, forge_answer=known_times)
    _, report = run_round(a_state(logic), peers, logic)
    assert {2} & {client.client for client in report.clients} == set()
    assert report.of("accepted") == (0, 1, 3)
