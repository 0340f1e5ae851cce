"""Personal models: what stays on a client, and trainers that make a model of the client's own.

The personal model of a client is what `Trainer.personal` loads. It is evaluated on the client's
own test samples (`compute.evaluate.personal`). All arithmetic on models is float32.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from layers.logic.aggregators.mean import Mean
from layers.logic.core.declaration import Need
from layers.logic.core.engine import Correct, Data, Engine, TrainReport
from layers.logic.core.hook import ClientContext
from layers.logic.core.local_tensors import own_tensors
from layers.logic.core.messages import Layout, Training
from layers.logic.core.parts import Parts
from layers.logic.core.preset import Preset, settings_of_parts
from layers.logic.core.trainer import Job, LocalSgd, Trainer, local_steps, received
from layers.logic.errors import LogicError
from layers.logic.hooks.server_optimisers import FedAvgM
from layers.logic.seeds import derive
from layers.logic.selectors.uniform import Uniform
from layers.settings import Count, NotNegative, Positive, Share, WholeNumber

PERSONAL = "personal"
"""The key of a client's personal model in the memory of a trainer."""


def _own_model(job: Job) -> np.ndarray:
    """Return a client's personal model, float32 (d,), which starts as the run's initial model.

    Where clients do not know that model, it starts as the first one that they receive.
    """
    initial = job.context.initial if job.context.initial.size else job.task.weights
    return np.asarray(job.context.memory.get(PERSONAL, initial))


def _frozen(still: np.ndarray, training: Training, correct: Correct | None) -> Correct:
    """Return a change of gradients after which the tensors in `still`, bool (d,), do not move."""
    decay = np.float32(training.weight_decay)

    def change(gradient: np.ndarray, weights: np.ndarray) -> None:
        if correct is not None:
            correct(gradient, weights)
        gradient[still] = -decay * weights[still]  # to which SGD adds decay * weights

    return change


@dataclass(frozen=True)
class FineTuning(LocalSgd):
    """Local SGD; the personal model is the received one after some steps on the client's samples.

    It is the baseline of all personal methods. Nothing changes in the training.

    Attributes:
        tune_epochs: epochs of the fine-tuning.
        tune_steps: steps of the fine-tuning, instead of epochs; 0: none.
        tune: the tensors that are tuned; ``"head"`` is the last layer, ``"body"`` all others.
    """

    name = "fine-tuning"

    tune_epochs: Count = 1
    tune_steps: WholeNumber | None = None
    tune: Literal["all", "head", "body"] = "all"

    @property
    def requires(self) -> frozenset[Need]:
        return frozenset({Need.DECAY_IN_GRADIENT} if self.tune != "all" else ())

    def personal(self, job: Job) -> None:
        super().personal(job)
        training = replace(job.task.training, epochs=self.tune_epochs, steps=self.tune_steps)
        still = ~_group(self.tune, job.context.layout)
        correct = _frozen(still, training, None) if still.any() else None
        local_steps(job, training, derive(job.task.seed, "fine-tuning"), correct)


def _group(name: str, layout: Layout) -> np.ndarray:
    """Return which values belong to a group of tensors, bool (d,)."""
    chosen = np.full(layout[-1].stop, name == "all")
    names = own_tensors((name,), layout) if name != "all" else ()
    for tensor in layout:
        chosen[tensor.start : tensor.stop] |= tensor.name in names
    return chosen


@dataclass(frozen=True)
class FedBabuTrainer(FineTuning):
    """Local SGD of the tensors that travel; those of the client's own keep their initial values.

    Source: Oh et al. 2022, algorithm 1. The personal model is tuned as in `FineTuning`.

    Attributes:
        tune_epochs: epochs of the fine-tuning.
        tune_steps: steps of the fine-tuning, instead of epochs; 0: none.
        tune: the tensors that are tuned; ``"head"`` is the last layer, ``"body"`` all others.
    """

    name = "fedbabu"
    requires = frozenset({Need.DECAY_IN_GRADIENT})

    def check(self, logic: Parts) -> None:
        _needs_own(self, logic)

    def train(self, job: Job) -> TrainReport:
        frozen = _frozen(job.context.own, job.task.training, job.correct)
        return super().train(replace(job, correct=frozen))


@dataclass(frozen=True)
class FedRepTrainer(Trainer):
    """First steps of the client's own tensors alone, then the task's steps of all others.

    Source: Collins et al. 2021, algorithm 1. The paper's server weighs clients equally.

    Attributes:
        head_epochs: epochs of the client's own tensors.
        head_steps: steps of the client's own tensors, instead of epochs.
    """

    name = "fedrep"
    requires = frozenset({Need.DECAY_IN_GRADIENT})

    head_epochs: Count = 5
    head_steps: Count | None = None

    def check(self, logic: Parts) -> None:
        _needs_own(self, logic)

    def train(self, job: Job) -> TrainReport:
        """Train the client's own tensors, then the others; the report is of the latter."""
        own, training = job.context.own, job.task.training
        head = replace(training, epochs=self.head_epochs, steps=self.head_steps)
        still = _frozen(~own, training, job.correct)
        local_steps(job, head, derive(job.task.seed, "head"), still)
        still = _frozen(own, training, job.correct)
        return local_steps(job, training, job.task.seed, still)


def _needs_own(trainer: Trainer, logic: Parts) -> None:
    if logic.local_tensors is None:
        raise LogicError(
            f"{type(trainer).__name__} trains a client's own tensors, and all tensors travel; set "
            "logic.own, as in own: [head]"
        )


@dataclass(frozen=True)
class DittoTrainer(LocalSgd):
    """Local SGD for the global model, and a personal model that is pulled to the received one.

    Each personal step is v -= rate (g(v) + lam (v - w)), where w is the received model. Source: Li
    et al. 2021 (Ditto), algorithm 1. The global model is that of FedAvg.

    Attributes:
        lam: lambda, the pull to the received model; 0: the client trains alone.
        personal_epochs: epochs of the personal model.
        personal_steps: steps of the personal model, instead of epochs.
        personal_rate: learning rate of the personal model; null: the task's.
    """

    name = "ditto"
    memory_fits = True

    lam: NotNegative = 0.1
    personal_epochs: Count = 1
    personal_steps: Count | None = None
    personal_rate: Positive | None = None

    def train(self, job: Job) -> TrainReport:
        """Train the personal model, then the one that the client returns."""
        task, lam = job.task, np.float32(self.lam)

        def pull(gradient: np.ndarray, weights: np.ndarray) -> None:
            gradient += lam * (weights - task.weights)

        training = replace(
            task.training,
            epochs=self.personal_epochs,
            steps=self.personal_steps,
            learning_rate=self.personal_rate or task.training.learning_rate,
        )
        job.engine.load(_own_model(job), task.buffers)
        local_steps(job, training, derive(task.seed, PERSONAL), pull)
        job.context.keep(**{PERSONAL: job.engine.weights.copy()})
        job.engine.load(task.weights, task.buffers)
        return super().train(job)

    def personal(self, job: Job) -> None:
        job.engine.load(_own_model(job), job.task.buffers)


@dataclass(frozen=True)
class ApflTrainer(Trainer):
    """Two models a client, the global w and its own v; the personal model mixes them.

    One step: u = alpha v + (1 - alpha) w; w -= rate g(w); v -= rate alpha g(u). The personal model
    is u with the received w. Source: Deng et al. 2020, algorithm 1; with `adaptive`, the first step
    of each round also takes alpha -= rate <v - w, g(u)>, clipped to [0, 1] (equation 10).

    Attributes:
        alpha: the share of the client's own model, at first or always.
        adaptive: whether each client learns its own alpha.
    """

    name = "apfl"
    requires = frozenset({Need.SGD})
    memory_fits = True

    alpha: Share = 0.5
    adaptive: bool = False

    def train(self, job: Job) -> TrainReport:
        """Train both models; the engine holds w at the end."""
        task, engine = job.task, job.engine
        own, alpha = _own_model(job).copy(), self._alpha(job.context)
        rate = np.float32(task.training.learning_rate)
        batches = engine.batches(job.data, task.training, task.seed, references=received(task))
        for place, batch in enumerate(batches):
            weights, buffers = engine.weights.copy(), engine.buffers.copy()
            engine.load(_mixed(alpha, own, weights), buffers)
            gradient = engine.batch_gradient(batch)
            step = (rate * alpha) * gradient
            if self.adaptive and place == 0:
                slope = np.dot((own - weights).astype(np.float64), gradient)
                alpha = np.float32(min(max(float(alpha) - float(rate) * float(slope), 0.0), 1.0))
            own -= step
            engine.load(weights, buffers)
            engine.step(batch, job.correct)
        job.context.keep(**{PERSONAL: own, "alpha": float(alpha)})
        return batches.report()

    def personal(self, job: Job) -> None:
        """Load the mixture of v and the received model."""
        mixed = _mixed(self._alpha(job.context), _own_model(job), job.task.weights)
        job.engine.load(mixed, job.task.buffers)

    def _alpha(self, context: ClientContext) -> np.float32:
        return np.float32(context.memory.get("alpha", self.alpha))


def _mixed(alpha: np.float32, own: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.asarray(alpha * own + (np.float32(1) - alpha) * weights)


@dataclass(frozen=True)
class PfedMeTrainer(Trainer):
    """A personal model theta near the local model w, and steps of w towards it.

    For each mini-batch: `inner_steps` times theta -= inner_rate (g(theta) + lam (theta - w)), then
    w -= rate lam (w - theta). Theta starts at the received model, and goes on within the round.
    Source: Dinh et al. 2020, algorithm 1.

    Attributes:
        lam: lambda, how near theta stays to w.
        inner_steps: K, the steps of theta on a mini-batch.
        inner_rate: the learning rate of theta; null: the task's.
    """

    name = "pfedme"
    memory_fits = True

    lam: Positive = 15.0
    inner_steps: Count = 5
    inner_rate: Positive | None = None

    def train(self, job: Job) -> TrainReport:
        """Train both models; the engine holds w at the end."""
        task, engine, correct = job.task, job.engine, job.correct
        lam, weights = np.float32(self.lam), task.weights.copy()
        towards = np.float32(task.training.learning_rate) * lam

        def pull(gradient: np.ndarray, theta: np.ndarray) -> None:
            if correct is not None:
                correct(gradient, theta)
            gradient += lam * (theta - weights)

        rate = self.inner_rate or task.training.learning_rate
        inner = replace(task.training, learning_rate=rate)
        batches = engine.batches(job.data, inner, task.seed, references=received(task))
        for batch in batches:
            for _ in range(self.inner_steps):
                engine.step(batch, pull)
            weights -= towards * (weights - engine.weights)
        job.context.keep(**{PERSONAL: engine.weights.copy()})
        engine.load(weights, engine.buffers.copy())
        return batches.report()

    def personal(self, job: Job) -> None:
        """Load theta; of a client that has not trained yet, the received model."""
        theta = job.context.memory.get(PERSONAL, job.task.weights)
        job.engine.load(np.asarray(theta), job.task.buffers)


@dataclass(frozen=True)
class PerFedAvgTrainer(Trainer):
    """Local steps for a model that becomes good by one step of gradient descent at each client.

    One step takes mini-batches D and D': w -= rate g(w - alpha g(w; D); D'). With
    ``order="hessian-free"`` and a third one, D'', the gradient is multiplied by
    I - alpha H(w; D''), where H v = (g(w + delta v) - g(w - delta v)) / (2 delta). The personal
    model is the received one after `personal_steps` steps of rate alpha. Source: Fallah et al.
    2020, algorithm 1.

    Attributes:
        alpha: the learning rate of the inner step, and of the personal model.
        order: ``"first"`` leaves the Hessian out.
        delta: the length of the finite difference.
        personal_steps: steps of the personal model.
    """

    name = "per-fedavg"
    requires = frozenset({Need.SGD})

    alpha: Positive = 0.01
    order: Literal["first", "hessian-free"] = "first"
    delta: Positive = 1e-3
    personal_steps: Count = 1

    def check(self, logic: Parts) -> None:
        """Refuse momentum and weight decay, which the step above does not have."""
        if logic.training.momentum or logic.training.weight_decay:
            raise LogicError(
                "PerFedAvgTrainer takes plain steps; set momentum and weight_decay to 0"
            )

    def train(self, job: Job) -> TrainReport:
        """Take the steps; each has two or three mini-batches of the task's training."""
        task, engine, correct = job.task, job.engine, job.correct
        each = 2 if self.order == "first" else 3
        steps = task.training.steps_over(len(job.data))
        training = replace(task.training, steps=steps * each)
        weights, rate = task.weights.copy(), np.float32(training.learning_rate)
        taken = np.empty_like(weights)

        def take(gradient: np.ndarray, at: np.ndarray) -> None:
            if correct is not None:
                correct(gradient, at)
            taken[:] = gradient

        batches = engine.batches(job.data, training, task.seed, references=received(task))
        stream = iter(batches)
        for first, second, *third in zip(*[stream] * each, strict=True):
            inner = weights - np.float32(self.alpha) * self._gradient(engine, weights, first)
            engine.load(inner, engine.buffers.copy())
            engine.step(second, take)
            change = taken
            if third:
                far = np.float32(self.delta)
                ahead = self._gradient(engine, weights + far * taken, third[0]).copy()
                behind = self._gradient(engine, weights - far * taken, third[0])
                curved = (ahead - behind) / (np.float32(2) * far)
                change = taken - np.float32(self.alpha) * curved
            weights -= rate * change
        engine.load(weights, engine.buffers.copy())
        return batches.report()

    def personal(self, job: Job) -> None:
        """Take the steps of the personal model from the received one."""
        super().personal(job)
        training = replace(
            job.task.training, steps=self.personal_steps, learning_rate=self.alpha, momentum=0.0
        )
        local_steps(job, training, derive(job.task.seed, PERSONAL))

    @staticmethod
    def _gradient(engine: Engine, weights: np.ndarray, batch: Data) -> np.ndarray:
        engine.load(weights, engine.buffers.copy())
        return engine.batch_gradient(batch)


@settings_of_parts()
def fine_tuning() -> Preset:
    """FedAvg; each client tunes the global model on its own samples before it uses it."""
    return Preset(Uniform(), Mean(), trainer=FineTuning())


@settings_of_parts()
def fedper() -> Preset:
    """FedPer (Arivazhagan et al. 2019): the last layer stays on each client."""
    return Preset(Uniform(), Mean(), own=("head",))


@settings_of_parts()
def lg_fedavg() -> Preset:
    """LG-FedAvg (Liang et al. 2020): only the last layer travels."""
    return Preset(Uniform(), Mean(), own=("body",))


@settings_of_parts()
def fedbn() -> Preset:
    """FedBN (Li et al. 2021): BatchNorm's parameters and statistics stay on each client."""
    return Preset(Uniform(), Mean(), own=("norm",))


@settings_of_parts()
def fedrep() -> Preset:
    """FedRep (Collins et al. 2021): a head of each client's own, trained before the shared body."""
    return Preset(Uniform(), Mean(), trainer=FedRepTrainer(), own=("head",))


@settings_of_parts()
def fedbabu() -> Preset:
    """FedBABU (Oh et al. 2022): the head keeps its initial values until a client fine-tunes."""
    return Preset(Uniform(), Mean(), trainer=FedBabuTrainer(), own=("head",))


@settings_of_parts()
def ditto() -> Preset:
    """Ditto (Li et al. 2021): FedAvg, and a personal model near the global one."""
    return Preset(Uniform(), Mean(), trainer=DittoTrainer())


@settings_of_parts()
def apfl() -> Preset:
    """APFL (Deng et al. 2020): each client mixes the global model and one of its own."""
    return Preset(Uniform(), Mean("uniform"), trainer=ApflTrainer())


@settings_of_parts()
def pfedme(beta: float = 1.0) -> Preset:
    """pFedMe (Dinh et al. 2020): personal models by a Moreau envelope.

    Args:
        beta: the server's step to the mean of the clients' models.
    """
    hooks = (FedAvgM(server_learning_rate=beta, momentum=0.0),) if beta != 1 else ()
    return Preset(Uniform(), Mean("uniform"), hooks, PfedMeTrainer())


@settings_of_parts()
def per_fedavg() -> Preset:
    """Per-FedAvg (Fallah et al. 2020): a model that one step makes personal."""
    return Preset(Uniform(), Mean("uniform"), trainer=PerFedAvgTrainer())
