"""The logic layer: the algorithms, which process models and updates on their way.

Code of the other layers or of fedmx, mxnet and sockets do not belong here. From outside it imports
numpy, and scikit-learn to find clusters.
"""

from __future__ import annotations

from layers.logic.catalogue import (
    AGGREGATORS,
    ATTACKS,
    HOOKS,
    PRESETS,
    PRIVACY,
    SELECTORS,
    TRAINERS,
)
from layers.logic.core.aggregator import Aggregator, Contribution
from layers.logic.core.asset import Asset
from layers.logic.core.declaration import Need, Trait
from layers.logic.core.gradient_term import GradientTerm
from layers.logic.core.hook import (
    ClientContext,
    ClientSide,
    Context,
    Facilities,
    Hook,
    ServerContext,
    ServerSide,
    Stage,
)
from layers.logic.core.messages import Offer, Task, Training, Update, Verdict
from layers.logic.core.parts import Parts
from layers.logic.core.preset import Preset
from layers.logic.core.report import (
    BrokenModel,
    ClientReport,
    Overhead,
    RoundReport,
    Times,
    TooFewUpdates,
    Traffic,
)
from layers.logic.core.round import OpenRound, Run
from layers.logic.core.selector import (
    SELECT,
    SURVEY,
    Selector,
)
from layers.logic.core.state import ClientLedger, ClientState, ServerState
from layers.logic.core.survey import Answer, Question
from layers.logic.errors import ClientFailed, LogicError, Rejected
from layers.logic.round.client import answer, answer_question, offer_of
from layers.logic.round.exchange import Carrier, ClientLost, StateLost, TimerFired
from layers.logic.round.logic import Logic
from layers.logic.round.round import RoundMachine, run_round

__all__ = [
    "AGGREGATORS",
    "ATTACKS",
    "HOOKS",
    "PRESETS",
    "PRIVACY",
    "SELECT",
    "SELECTORS",
    "SURVEY",
    "TRAINERS",
    "Aggregator",
    "Answer",
    "Asset",
    "BrokenModel",
    "Carrier",
    "ClientFailed",
    "ClientContext",
    "ClientSide",
    "ClientLedger",
    "ClientReport",
    "ClientState",
    "Context",
    "Contribution",
    "StateLost",
    "Facilities",
    "GradientTerm",
    "Hook",
    "Logic",
    "LogicError",
    "Need",
    "ClientLost",
    "Offer",
    "Overhead",
    "Parts",
    "Preset",
    "Question",
    "Rejected",
    "RoundMachine",
    "OpenRound",
    "RoundReport",
    "Run",
    "Selector",
    "ServerContext",
    "ServerSide",
    "ServerState",
    "Stage",
    "Task",
    "TimerFired",
    "Trait",
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
]
