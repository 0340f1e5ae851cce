"""The hooks by name."""

from __future__ import annotations

from layers.logic.hook import Hook
from layers.logic.hooks.clip import Clip
from layers.logic.hooks.dgc import Dgc
from layers.logic.hooks.divergence import Divergence
from layers.logic.hooks.fedavgm import FedAvgM
from layers.logic.hooks.fedopt import FedAdagrad, FedAdam, FedYogi
from layers.logic.hooks.fedprox import FedProx
from layers.logic.hooks.fedshare import FedShare
from layers.logic.hooks.gradient_reply import GradientReply
from layers.logic.hooks.quantise import Quantise
from layers.logic.hooks.rebalance import Rebalance
from layers.logic.hooks.scaffold import Scaffold
from layers.logic.hooks.selective_sgd import SelectiveSgd
from layers.logic.hooks.sign_sgd import SignSgd
from layers.logic.hooks.stc import Stc
from layers.logic.hooks.top_k import TopK

HOOKS: dict[str, type[Hook]] = {
    "clip": Clip,
    "dgc": Dgc,
    "divergence": Divergence,
    "fedadagrad": FedAdagrad,
    "fedadam": FedAdam,
    "fedavgm": FedAvgM,
    "fedprox": FedProx,
    "fedshare": FedShare,
    "fedyogi": FedYogi,
    "gradient-reply": GradientReply,
    "quantise": Quantise,
    "rebalance": Rebalance,
    "scaffold": Scaffold,
    "selective-sgd": SelectiveSgd,
    "sign-sgd": SignSgd,
    "stc": Stc,
    "top-k": TopK,
}
