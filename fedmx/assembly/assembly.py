"""The parts of an experiment: data, engine and logic, as the server or a client needs them."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from fedmx.assembly.assets import AssetFile, file_of_samples, samples_in
from fedmx.assembly.data import ExperimentData, divided
from fedmx.assembly.logic import keeps_places, logic_of, preset_of, privacy_of
from fedmx.assembly.start_file import Start, read_start
from fedmx.components.build import bind, build, resolve
from fedmx.components.catalogue import read_catalogue
from fedmx.components.component import Component
from fedmx.components.engines import CPU, FLOAT32, TORCH, engine_of, models_of
from fedmx.components.settings import signature_of
from fedmx.components.text import shown
from fedmx.errors import ExperimentError
from fedmx.experiment import Experiment
from fedmx.privacy.account import Account
from layers.compute import bits
from layers.compute.data.dataset import Samples
from layers.compute.data.datasets import CheckedFederatedData, Files
from layers.compute.data.partitions.held_back import HeldBack, held_number, hold_back
from layers.compute.data.targets import Targets
from layers.compute.engines.engine import Compute, Engine
from layers.compute.engines.evaluation import Evaluator
from layers.compute.errors import ComputeError
from layers.compute.losses.loss import Loss
from layers.compute.metrics import Metric
from layers.compute.optimisers import Optimiser
from layers.logic import Facilities, Logic, LogicError, Preset, Training
from layers.logic.client_sizes import ClientSizes
from layers.logic.clock import VirtualClock
from layers.logic.clock.uploads import Parallel, Uploads
from layers.logic.core.declaration import (
    Condition,
    Need,
    declared,
    held_out_by,
    refusal,
)
from layers.logic.core.privacy import DifferentialPrivacy
from layers.logic.round.evaluation import ClientEvaluation
from layers.logic.seeds import derive


@dataclass(eq=False)
class Assembly:
    """The parts of one experiment, each made at its first use.

    Args:
        experiment: the experiment.
        files: the folders of data sets.
        shape: shape of one example; None: read it from the data.
        targets: what the targets of samples are; None: read it from the data.
        told_words: the words of the data set's tokens, where the data are missing; None: read them
            from the data.
        start_file: the file with the initial weights; None: the experiment's `compute.start`.
        deployed: whether its clients are elsewhere, so that their secrets are not here.
        survey: whether clients are only asked for statistics of the stored samples, and no model is
            trained on these.

    Raises:
        ExperimentError: `experiment` is no `Experiment`.
    """

    experiment: Experiment
    files: Files = dataclasses.field(default_factory=Files)
    shape: tuple[int, ...] | None = None
    targets: Targets | None = None
    told_words: tuple[str, ...] | None = None
    start_file: Path | None = None
    deployed: bool = False
    survey: bool = False

    def __post_init__(self) -> None:
        given: object = self.experiment
        if not isinstance(given, Experiment):
            text = f"{shown(given)} is no experiment; give an Experiment"
            if isinstance(given, Mapping):
                text += ", as Experiment.from_dict(...) returns"
            elif isinstance(given, str | os.PathLike):
                text += f", as Experiment.read({shown(os.fspath(given))}) returns"
            raise ExperimentError(text)

    @cached_property
    def data(self) -> ExperimentData:
        """The data set and the model's inputs."""
        return ExperimentData(
            self.experiment, self.files, self.shape, self.targets, self.told_words
        )

    @cached_property
    def engine(self) -> Engine:
        """The engine, with the experiment's model.

        Raises:
            ComputeError: this process runs on other instructions than the experiment.
        """
        section, of_torch = self.experiment.compute, {}
        for key, usual in (("device", CPU), ("precision", FLOAT32)):
            given = getattr(section, key)
            if given == usual:
                continue
            if section.engine != TORCH or section.bits == bits.PORTABLE:
                raise ExperimentError(
                    f"compute.{key}: {given} is for engine: torch with bits: native; "
                    f"set them, or {key}: {usual}"
                )
            of_torch[key] = given
        bits.require(section.bits)  # before any data are loaded
        shape, targets = self.data.shape, self.data.targets
        model, models = section.model, self._models
        family = model.name.partition(":")[0] + ":"
        if family in models and model.object is None and "classes" not in model.settings:
            settings = {**model.settings, "classes": targets.size}
            model = dataclasses.replace(model, settings=settings)
        provided: dict[str, Any] = {"classes": targets.size, "targets": targets}
        if self._model_takes_words:
            provided["words"] = self.data.words
        make = bind("model", model, models, **provided)
        loss = None if section.loss is None else build("loss", section.loss)
        optimiser = self._optimiser
        new = engine_of(section.engine)
        engine = new(make, shape, targets, seed=self.experiment.seed, loss=loss, **of_torch)
        engine.optimiser, engine.accumulate = optimiser, section.train.accumulate
        if engine.accumulate > 1 and engine.buffers.size:
            raise ExperimentError(
                f"compute.train.accumulate: the model has buffers (BatchNorm), which would be of "
                f"each part of a mini-batch; set it to 1, not {engine.accumulate}, or use a model "
                "without them, such as one with GroupNorm"
            )
        return engine

    @property
    def _optimiser(self) -> Optimiser:
        """The optimiser of local training.

        Raises:
            ExperimentError: its settings are wrong, or it lacks the momentum that is set.
        """
        train = self.experiment.compute.train
        optimiser: Optimiser = build("optimiser", train.optimiser)
        if train.momentum and not optimiser.has_momentum:
            raise ExperimentError(
                f"compute.train.momentum: {train.optimiser.name} has no momentum beside its own "
                f"settings; set it to 0, not {train.momentum}, or use sgd or rmsprop"
            )
        return optimiser

    @property
    def _models(self) -> Mapping[str, Any]:
        """The models of the engine.

        Raises:
            ExperimentError: the experiment names a model of another engine.
        """
        engine, model = self.experiment.compute.engine, self.experiment.compute.model
        models, entry = models_of(engine), read_catalogue()["models"].get(model.name)
        if entry is not None and model.object is None and engine not in entry.engines:
            raise ExperimentError(
                model.problem(
                    f"model {model.name} is not on the engine {engine}, which has "
                    f"{', '.join(models)}; set compute.engine to {' or '.join(entry.engines)}"
                )
            )
        return models

    @property
    def _model_takes_words(self) -> bool:
        """Whether the model takes the words of the data set's tokens."""
        model = resolve("model", self.experiment.compute.model, self._models)
        return "words" in signature_of(model).settings

    @cached_property
    def metrics(self) -> tuple[Metric, ...] | None:
        """The metrics that the experiment names; None: the usual ones of the targets."""
        given = self.experiment.compute.evaluate.metrics
        return tuple(build("metric", one) for one in given) or None

    @cached_property
    def evaluator(self) -> Evaluator:
        """What an evaluation measures.

        Raises:
            ExperimentError: a metric does not exist, or is not for the targets of the data.
        """
        try:
            return Evaluator.of(self.metrics, self.engine.own_loss, self.data.targets)
        except ComputeError as error:
            raise ExperimentError(f"compute.evaluate.metrics: {error}") from None

    @cached_property
    def start(self) -> Start | None:
        """The initial weights from a file; None: the seed determines them.

        Raises:
            ExperimentError: the file cannot be read, or is of another model.
        """
        path = self.start_file or self.experiment.compute.start
        return None if path is None else read_start(path, self.engine)

    @cached_property
    def preset(self) -> Preset:
        """The parts of the logic.

        Raises:
            ExperimentError: a part does not exist, or its settings are wrong.
        """
        return preset_of(self.experiment)

    @property
    def logic(self) -> Logic:
        """The logic of the experiment, equal at both ends; it cannot be replaced.

        Raises:
            ExperimentError: its parts do not fit together.
        """
        return self._logic

    @logic.setter
    def logic(self, changed: Logic) -> None:
        raise ExperimentError(
            "logic: the logic of an experiment cannot be replaced, since workers, records and "
            "deployed clients make it from the experiment; name the part there, as in logic: "
            "{trainer: 'my_module:Own'} or {own: [head]}"
        )

    @cached_property
    def _logic(self) -> Logic:
        logic = logic_of(self.experiment, self.preset, self.data, lambda: self.engine)
        clients = self.experiment.compute.evaluate.clients
        if clients is None:
            return logic
        most = sum(self.evaluator.sizes().values())
        asked = ClientEvaluation(clients.every, clients.fraction, most, self.experiment.rounds)
        return dataclasses.replace(logic, evaluation=asked)

    @property
    def at_once(self) -> int | None:
        """The most clients that train at once in one process; None: one, as in a deployment."""
        return None if self.deployed else self.experiment.executor.at_once

    @cached_property
    def account(self) -> Account | None:
        """What the run spends of its privacy; None: it has no account.

        Raises:
            FedmxError: dp-accounting is not installed, or no noise keeps the budget.
        """
        privacy = privacy_of(self.experiment)
        if not isinstance(privacy, DifferentialPrivacy) or privacy.budget is None:
            return None
        mechanism = privacy.mechanism(self.preset)
        return Account.of(privacy.budget, mechanism, self.experiment.rounds, privacy.once())

    @property
    def server_logic(self) -> Logic:
        """The logic of the server, which can train on assets and on samples of its own, and knows
        the noise of a private run."""
        logic, facilities = self.logic, Facilities()
        privacy = privacy_of(self.experiment)
        if isinstance(privacy, DifferentialPrivacy) and self.account is not None:
            private = privacy.with_noise(self.preset, self.account.noise)
            logic = dataclasses.replace(logic, aggregator=private.aggregator)
        if not logic.assets and not logic.held_out:
            return logic
        if logic.assets:
            facilities = Facilities(
                train_on_asset=self._trained_on_asset,
                outputs_on_asset=self._outputs_on_asset,
                asset_sizes={name: len(rows) for name, rows in self.held_back.assets.items()},
            )
        if logic.held_out:
            train = partial(self._after_training, self._held_out_samples)
            facilities = dataclasses.replace(facilities, auxiliary=lambda *how: train(*how)[0])
        return dataclasses.replace(logic, facilities=facilities)

    def _after_training(
        self,
        samples: Samples,
        weights: np.ndarray,
        buffers: np.ndarray,
        training: Training,
        seed: int,
        loss: Loss | None = None,
        arrays: Mapping[str, np.ndarray] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return a model's weights and buffers after training on these samples."""
        engine = self.engine
        engine.load(weights, buffers)
        engine.train(samples, training, seed, loss=loss or engine.loss_alone, arrays=arrays or {})
        return engine.weights.copy(), engine.buffers.copy()

    def _trained_on_asset(self, name: str, *how: Any, **loss: Any) -> tuple[np.ndarray, np.ndarray]:
        return self._after_training(self.asset_samples[name], *how, **loss)

    def _outputs_on_asset(self, name: str, weights: np.ndarray, buffers: np.ndarray) -> np.ndarray:
        """Return what a model computes for the samples of an asset."""
        self.engine.load(weights, buffers)
        return self.engine.outputs(self.asset_samples[name]).logits

    @cached_property
    def _held_out_samples(self) -> Samples:
        return self.data.materialise(self.data.whole.train, self.held_back.held_out)

    @cached_property
    def held_back(self) -> HeldBack:
        """The samples that hooks take out of the training split before its partition.

        Raises:
            ExperimentError: hooks leave no sample to the clients.
        """
        seed, labels = self.experiment.seed, self.data.whole.train.y
        if not self.data.targets.classes:
            labels = np.zeros(len(labels), np.int64)  # no classes to balance
        shares: dict[str, float] = {}
        held_out = held_out_by((self.preset.aggregator, *self.preset.hooks))
        if any(hook.assets for hook in self.preset.hooks):
            logic = self.logic  # only here, because it builds the model
            shares = {name: asset.share for name, asset in logic.assets.items()}
        # These purposes seed the draws.
        seeds = derive(seed, "shared"), derive(seed, "held-out"), derive(seed, "validation")
        validation = self._held_by_server
        held_back = hold_back(labels, shares, held_out, validation, seeds)
        if held_back.rest is not None and not len(held_back.rest):
            taken = ", ".join(f"asset {name} {share:g}" for name, share in shares.items())
            raise ExperimentError(
                f"logic: hooks take all of the {len(labels)} training samples "
                f"({taken or 'no asset'}, held_out {held_out:g}, validation {validation:g}); leave "
                "the clients some"
            )
        return held_back

    @cached_property
    def parts(self) -> tuple[Sequence[np.ndarray], Sequence[np.ndarray]]:
        """Each client's rows of the training split, and of the test split."""
        clients = self.experiment.clients
        return divided(self.experiment, self.data.whole, clients, self.held_back.rest)

    @cached_property
    def assets(self) -> dict[str, AssetFile]:
        """The files that every client receives, by the names that hooks declare."""
        data = self.data
        return {
            name: file_of_samples(
                name, data.whole.train, self.held_back.assets[name], data.normalise
            )
            for name in self.logic.assets
        }

    @cached_property
    def asset_samples(self) -> dict[str, Samples]:
        """The samples in these files, as inputs of the model."""
        return {name: samples_in(asset) for name, asset in self.assets.items()}

    def sizes(self) -> ClientSizes:
        """Return each client's number of training samples."""
        clients, dataset = range(self.experiment.clients), self.data.dataset
        if isinstance(dataset, CheckedFederatedData):
            sizes = dataset.sizes
        else:
            sizes = np.array([len(rows) for rows in self.parts[0]], np.int64)
        if share := self._held_by_clients:
            sizes = sizes - held_number(np.broadcast_to(sizes, len(clients)), share)
        return ClientSizes(clients, sizes)

    def population(self) -> ClientSizes:
        """Return the sizes of the clients that selectors choose from."""
        sizes, without = self.sizes(), self.experiment.without
        if not without or keeps_places(self.experiment, self.preset.selector):
            return sizes
        ids = np.arange(self.experiment.clients, dtype=np.int64)
        return sizes.only(ids[~np.isin(ids, without)])

    def labels_of(self, client: int) -> np.ndarray:
        """Return the targets of a client's training samples, (n, ...)."""
        dataset = self.data.dataset
        if isinstance(dataset, CheckedFederatedData):
            y = dataset.client(client).y
            return np.asarray(y[self._trained(client, np.arange(len(y)))])
        labels: np.ndarray = dataset.train.y[self._trained(client, self.parts[0][client])]
        return labels

    def samples_of(self, client: int) -> Samples:
        """Return a client's training samples, as inputs of the model."""
        return self._own_samples(client, self._trained)

    def tests_of(self, client: int) -> Samples | None:
        """Return the samples on which a client evaluates; None: it has none.

        They are its validation samples if there are any, or else its part of the test split.
        """
        if self._held_by_clients:
            return self._own_samples(client, self._held)
        if isinstance(self.data.dataset, CheckedFederatedData):
            return None
        rows = self.parts[1][client]
        return self.data.materialise(self.data.dataset.test, rows) if len(rows) else None

    def _own_samples(self, client: int, of: Callable[[int, np.ndarray], np.ndarray]) -> Samples:
        """Return those of a client's samples of the training split that `of` gives."""
        dataset = self.data.dataset
        if isinstance(dataset, CheckedFederatedData):
            made = dataset.client(client)
            return self.data.materialise(made, of(client, np.arange(len(made))))
        return self.data.materialise(dataset.train, of(client, self.parts[0][client]))

    @property
    def _held_by_clients(self) -> float:
        """The share of its samples that each client holds out for validation."""
        evaluate = self.experiment.compute.evaluate
        return 0.0 if evaluate.clients is None else evaluate.validation or 0.0

    def _held(self, client: int, rows: np.ndarray) -> np.ndarray:
        """Return which of a client's rows it holds out."""
        rng = np.random.default_rng(derive(self.experiment.seed, "validation", client))
        number = int(held_number(np.array(len(rows)), self._held_by_clients))
        return np.asarray(np.sort(rng.permutation(rows)[:number]))

    def _trained(self, client: int, rows: np.ndarray) -> np.ndarray:
        """Return which of a client's rows it trains on."""
        if not self._held_by_clients:
            return rows
        return np.asarray(rows[~np.isin(rows, self._held(client, rows))])

    def clock(self) -> VirtualClock | None:
        """Return the simulation's virtual clock; None if the experiment has no devices.

        Raises:
            ExperimentError: the devices, the uploads or the availability have wrong settings.
        """
        experiment, clock = self.experiment, self.experiment.clock
        if clock.devices is None:
            return None
        try:
            return VirtualClock(
                experiment.clients,
                build("devices", clock.devices),
                derive(experiment.seed, "clock"),
                self._uploads(),
                build("availability", clock.availability),
                clock.dropout,
            )
        except LogicError as error:
            raise ExperimentError(f"clock: {error}") from error

    def _uploads(self) -> Uploads:
        """Return how uploads share the channel; by default as the selector needs.

        Raises:
            ExperimentError: they are parallel, but the selector needs serial uploads.
        """
        selector, reference = self.preset.selector, self.experiment.clock.uploads
        serial = Need.SERIAL_UPLOADS in declared(selector)
        if reference is None:
            reference = Component("serial" if serial else "parallel", where=("clock", "uploads"))
        uploads: Uploads = build("uploads", reference)
        if serial and isinstance(uploads, Parallel):
            rule = Need.SERIAL_UPLOADS, Condition.PARALLEL_UPLOADS
            text = refusal(*rule, selector, reference.name)
            raise ExperimentError(reference.source.problem(reference.where, text))
        return uploads

    def facts(self) -> dict[str, Any]:
        """Return the facts that a run folder needs to build the model again."""
        start = {} if self.start is None else {"start": self.start.facts}
        on_cpu = self.experiment.compute.device == CPU
        device = {} if on_cpu else {"device": self.engine.device}
        cohort = {} if self.at_once is None else {"cohort": self.at_once}
        metrics = [
            {"key": one.key, "label": one.label or one.key, "unit": one.unit, "better": one.better}
            for one in self.evaluator.metrics
        ]
        return {**self.data.facts(), "metrics": metrics, **start, **device, **cohort}

    def kept(self) -> dict[str, bytes]:
        """Return the files that a run folder needs to build the model again, by name."""
        files = {}
        if self.start is not None:
            files["start.safetensors"] = self.start.content
        if self._model_takes_words and self.data.words:
            files["words.json"] = json.dumps(self.data.words).encode()
        return files

    def server_compute(self) -> Compute:
        """Return the engine and the samples that evaluate the rounds on the server."""
        return Compute(self.engine, self.evaluated_samples, self.metrics)

    @cached_property
    def evaluated_samples(self) -> Samples:
        """The samples that evaluate the rounds: those for validation, or the test split."""
        rows = self.held_back.validation if self._held_by_server else np.zeros(0, np.int64)
        if not len(rows):
            return self.data.test_samples
        return self.data.materialise(self.data.whole.train, rows)

    def last_test(self) -> Compute | None:
        """Return the engine and the test split, if it is evaluated at the end of the run alone."""
        evaluate = self.experiment.compute.evaluate
        if evaluate.validation is None and evaluate.clients is None:
            return None
        if not len(self.data.dataset.test):
            return None
        return Compute(self.engine, self.data.test_samples, self.metrics)

    @property
    def _held_by_server(self) -> float:
        """The share of the training samples that the server holds out for validation."""
        evaluate = self.experiment.compute.evaluate
        return 0.0 if evaluate.clients is not None else evaluate.validation or 0.0

    def client_compute(self, client: int) -> Compute:
        """Return the engine and a client's part of the experiment's data.

        Raises:
            ExperimentError: the parts of too many clients are drawn together.
        """
        taken = bool(self.logic.assets or self.logic.held_out or self._held_by_server)
        alone = self.data.part_alone(client, taken=taken)
        samples = self.samples_of(client) if alone is None else alone
        tests = partial(self.tests_of, client)
        return Compute(self.engine, samples, self.metrics, tests)

    def own_compute(self, client: int, path: Path, part: tuple[int, int] | None = None) -> Compute:
        """Return the engine and the samples of a client that has its own data.

        Args:
            client: its number.
            path: an ``.npz`` file with x_train and y_train, and for evaluation x_test and y_test.
            part: (i, n): use only the i-th of n parts, by the experiment's partition; None: all.
        """
        own, rows = self.data.own_training(path, part)
        samples = self.data.materialise(own, self._trained(client, rows))

        def tests() -> Samples | None:
            if self._held_by_clients:
                return self.data.materialise(own, self._held(client, rows))
            return self.data.own_tests(path)

        return Compute(self.engine, samples, self.metrics, tests)
