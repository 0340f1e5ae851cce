"""The logic layer: what happens to a model or an update on its way. numpy only."""

from __future__ import annotations

from layers.logic.aggregator import Aggregator, Contribution
from layers.logic.aggregators import AGGREGATORS
from layers.logic.errors import ClientFailed, LogicError, Refused, TooFewUpdates
from layers.logic.exchange import Forgot, Lost, Offer, Task, Training, Update, Verdict
from layers.logic.hook import ClientHalf, Context, Hook, ServerHalf
from layers.logic.hooks import HOOKS
from layers.logic.logic import Logic
from layers.logic.peers import Peers, Traffic
from layers.logic.plan import Plan, Population, single_lanes
from layers.logic.preset import Preset
from layers.logic.presets import PRESETS
from layers.logic.report import ClientReport, RoundReport
from layers.logic.round import answer, offer_of, run_round
from layers.logic.selector import SELECT, SURVEY, Bids, Inquiry, Selector
from layers.logic.selectors import SELECTORS
from layers.logic.state import ClientLedger, ClientState, ServerState
from layers.logic.survey import Answer, Question, answer_question
from layers.logic.times import Times

__all__ = [
    "AGGREGATORS",
    "HOOKS",
    "PRESETS",
    "SELECT",
    "SELECTORS",
    "SURVEY",
    "Aggregator",
    "Answer",
    "Bids",
    "ClientFailed",
    "ClientHalf",
    "ClientLedger",
    "ClientReport",
    "ClientState",
    "Context",
    "Contribution",
    "Forgot",
    "Hook",
    "Inquiry",
    "Logic",
    "LogicError",
    "Lost",
    "Offer",
    "Peers",
    "Plan",
    "Population",
    "Preset",
    "Question",
    "Refused",
    "RoundReport",
    "Selector",
    "ServerHalf",
    "ServerState",
    "Task",
    "Times",
    "TooFewUpdates",
    "Traffic",
    "Training",
    "Update",
    "Verdict",
    "answer",
    "answer_question",
    "offer_of",
    "run_round",
    "single_lanes",
]
