"""A question to several deployed clients at the same time."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TypeGuard

from fedmx.deployment.client_sessions import ClientEvent, ClientSessions
from fedmx.deployment.membership import LogTimer, listing
from fedmx.deployment.patience import LOG_WAIT_S, SILENT, Patience
from fedmx.deployment.round_events import RoundEvents
from fedmx.log import Log
from layers.logic import Answer, ClientLost, Question
from layers.logic.core.survey import is_answer_to

log = Log("fedmx.server")


def ask_all(
    sessions: ClientSessions,
    tasks: RoundEvents,
    patience: Patience,
    question: Question,
    clients: Sequence[int],
    deadline_s: float | None,
) -> Sequence[Answer]:
    """Ask clients at the same time; return the answers that arrived before the deadline.

    Args:
        sessions: the clients' sessions.
        tasks: keeps or reports events that do not belong to this question.
        patience: how long a client that is connected may be silent.
        question: the question.
        clients: whom to ask.
        deadline_s: seconds that an answer may take; None: as long as there is patience.
    """
    answers: list[Answer] = []
    membership, rejections = sessions.membership, sessions.rejections
    asked = sessions.questions = dict.fromkeys(clients, question)
    ends = math.inf if deadline_s is None else time.monotonic() + deadline_s
    log_timer = LogTimer(LOG_WAIT_S)
    for client in clients:
        membership.expect(client)  # it may have left since it was chosen
        sessions.send(client, question)
    began, limit_s = time.monotonic(), patience.limit_s
    while asked and (left_s := ends - time.monotonic()) > 0:
        event = sessions.next_event(left_s)
        if _is_reply(event, question) and event.client in asked:
            del asked[event.client]
            if isinstance(event, ClientLost):
                rejections.add(f"client {event.client}: no answer: {event.reason}")
            elif not is_answer_to(question, event):
                what = f"sent something else than the answer to the question {question.name!r}"
                sessions.report_violation(event.client, what)
            else:
                answers.append(event)
        else:
            tasks.keep(event)
        for client in membership.expire():
            asked.pop(client, None)
        if time.monotonic() - began > limit_s:
            for client in asked:
                sessions.give_up(client, SILENT.format(limit_s))
            asked.clear()
        if asked and log_timer.due():
            text = patience.text(began)
            log.info(
                "waiting_for_answers",
                "waiting for the answers of clients {clients} {since}",
                clients=listing(set(asked)),
                since=text,
            )
    for client in asked:
        rejections.add(f"client {client}: no answer within {deadline_s:g} s")
    asked.clear()
    return sorted(answers, key=lambda answer: answer.client)


def _is_reply(event: ClientEvent | None, question: Question) -> TypeGuard[Answer | ClientLost]:
    """Return whether an event concerns this question, not an earlier one or a task."""
    if isinstance(event, Answer):
        return (event.question, event.round) == (question.name, question.round)
    return isinstance(event, ClientLost) and event.round == 0
