"""The parts of an experiment: data, engine and logic, as the server or a client needs them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedmx.assembly.asset_file import AssetFile
from fedmx.assembly.samples_file import file_of_samples, samples_in
from fedmx.assembly.start_file import Start, read_start
from fedmx.assembly.uploads import build_uploads
from fedmx.components.build import bind, build, resolve
from fedmx.components.catalogue import CATALOGUE
from fedmx.components.settings import signature_of
from fedmx.errors import ExperimentError
from fedmx.experiment import Experiment
from layers.compute import bits
from layers.compute.data.datasets import (
    CheckedFederatedData,
    DataError,
    Dataset,
    FederatedData,
    Files,
    as_dataset,
)
from layers.compute.data.datasets.arrays import Arrays
from layers.compute.data.datasets.normalise import Normalise, materialise
from layers.compute.data.partitions import divide
from layers.compute.data.partitions.biased import Biased
from layers.compute.data.partitions.held_back import HeldBack, hold_back
from layers.compute.data.samples import Samples
from layers.compute.engines.compute import Compute
from layers.compute.engines.mxnet.engine import MXNetEngine
from layers.compute.engines.mxnet.models.zoo import ZOOS
from layers.logic import Logic, LogicError, Preset, Selector, Training
from layers.logic.aggregators.mean import Mean
from layers.logic.algorithms.fedaim.selector import FedAimSplit
from layers.logic.clock import VirtualClock
from layers.logic.population.client_sizes import ClientSizes
from layers.logic.seeds import derive
from layers.logic.selectors.uniform import Uniform


@dataclass(frozen=True)
class Assembly:
    """The parts of one experiment, each made when it is first needed.

    Args:
        experiment: the experiment.
        files: where data sets are.
        shape: shape of one example; None: as in the experiment's data.
        classes: number of labels; None: as in the experiment's data.
        told_words: the words of the data set's tokens, if the data are not here; None: they are.
        start_file: the file to begin from, instead of the experiment's; None: the experiment's.
    """

    experiment: Experiment
    files: Files = dataclasses.field(default_factory=Files)
    shape: tuple[int, ...] | None = None
    classes: int | None = None
    told_words: tuple[str, ...] | None = None
    start_file: Path | None = None

    @cached_property
    def dataset(self) -> Dataset | CheckedFederatedData:
        """The experiment's data set, or data whose samples come client by client.

        Raises:
            ExperimentError: there is no such data set, or its settings are wrong.
            DataError: its files are missing or wrong.
        """
        experiment, reference = self.experiment, self.experiment.compute.data
        given: dict[str, Any] = {}
        # Data that are made or read by client; some of them for all clients at once.
        if hasattr(resolve("data set", reference, CATALOGUE["data"]), "client"):
            given = {"clients": experiment.clients, "seed": derive(experiment.seed, "data")}
        found = build("data set", reference, CATALOGUE["data"], **given)
        if isinstance(found, Dataset):
            return found
        if isinstance(found, FederatedData):
            self._check_no_partition()
            return CheckedFederatedData.of(found, experiment.clients, reference.name)
        if hasattr(found, "load"):
            return as_dataset(found.load(self.files), reference.name)
        return as_dataset(found, reference.name)

    @property
    def whole(self) -> Dataset:
        """The data set, with the training samples of all clients.

        Raises:
            ExperimentError: its samples come client by client.
        """
        if isinstance(self.dataset, Dataset):
            return self.dataset
        raise ExperimentError(
            f"compute.data: the samples of {self.dataset.name} come client by client, and this "
            "needs those of all clients together (assets of hooks, samples that are held out, "
            "compute.evaluate.per_client); leave it out, or use another data set"
        )

    def _check_no_partition(self) -> None:
        """Check that no partition is given for data that come client by client.

        Raises:
            ExperimentError: there is one.
        """
        partition = self.experiment.compute.partition
        if partition.name != "iid" or partition.settings:
            raise ExperimentError(
                f"compute.partition: the samples of {self.experiment.compute.data.name} come "
                f"client by client, so that {partition.name} has nothing to divide; leave it out"
            )

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the data set's tokens; none on a client that has other data instead."""
        if self.told_words is not None:
            return self.told_words
        if self.shape is None:
            return self.dataset.words
        try:
            return self.dataset.words
        except DataError:
            return ()

    @cached_property
    def parts(self) -> tuple[Sequence[np.ndarray], Sequence[np.ndarray]]:
        """Each client's rows of the training and of the test split."""
        experiment = self.experiment
        partition = build("partition", experiment.compute.partition, CATALOGUE["partitions"])
        seed = derive(experiment.seed, "partition")
        return divide(self.whole, partition, experiment.clients, seed, self.held_back.rest)

    @cached_property
    def held_back(self) -> HeldBack:
        """The samples that hooks take out of the training split before it is divided.

        Raises:
            ExperimentError: hooks leave no sample to the clients.
        """
        seed, labels = self.experiment.seed, self.whole.train.y
        if not any(hook.assets or hook.held_out for hook in self.preset.hooks):
            return hold_back(labels, {}, 0, 0, 0)  # without the logic, which builds the model
        logic = self.logic
        shares = {name: asset.share for name, asset in logic.assets.items()}
        # The purpose "shared" stays as it is: another one would change the draws.
        seeds = derive(seed, "shared"), derive(seed, "held-out")
        held_back = hold_back(labels, shares, logic.held_out, *seeds)
        if held_back.rest is not None and not len(held_back.rest):
            taken = ", ".join(f"asset {name} {share:g}" for name, share in shares.items())
            raise ExperimentError(
                f"logic: hooks take all of the {len(labels)} training samples "
                f"({taken or 'no asset'}, held_out {logic.held_out:g}); leave the clients some"
            )
        return held_back

    @cached_property
    def assets(self) -> dict[str, AssetFile]:
        """The files that every client is given, by the names under which hooks declare them."""
        return {
            name: file_of_samples(
                name, self.whole.train, self.held_back.assets[name], self.normalise
            )
            for name in self.logic.assets
        }

    @cached_property
    def asset_samples(self) -> dict[str, Samples]:
        """The samples in these files, as the model takes them."""
        return {name: samples_in(asset) for name, asset in self.assets.items()}

    @cached_property
    def normalise(self) -> Normalise | None:
        """How stored values become inputs; None: unchanged."""
        given = self.experiment.compute.normalise
        return None if given is None else Normalise(given.scale, given.mean, given.std)

    @cached_property
    def engine(self) -> MXNetEngine:
        """The engine, with the experiment's model.

        Raises:
            ComputeError: this process runs on other instructions than the experiment.
        """
        bits.require(self.experiment.compute.bits)
        shape = self.dataset.shape if self.shape is None else self.shape
        classes = self.dataset.classes if self.classes is None else self.classes
        reference = self.experiment.compute.model
        zoo = reference.name.partition(":")[0]
        if zoo in ZOOS and reference.object is None and "classes" not in reference.settings:
            settings = {**reference.settings, "classes": classes}
            reference = dataclasses.replace(reference, settings=settings)
        provided: dict[str, Any] = {"classes": classes}
        if self.takes_words:
            provided["words"] = self.words
        make = bind("model", reference, CATALOGUE["models"], **provided)
        return MXNetEngine(make, shape, classes, seed=self.experiment.seed)

    @property
    def takes_words(self) -> bool:
        """Whether the model takes the words of the data set's tokens."""
        reference = self.experiment.compute.model
        return "words" in signature_of(resolve("model", reference, CATALOGUE["models"])).settings

    @cached_property
    def start(self) -> Start | None:
        """The weights that the run begins from; None: they are drawn from the seed.

        Raises:
            ExperimentError: the file cannot be read, or is of another model.
        """
        path = self.start_file or self.experiment.compute.start
        return None if path is None else read_start(path, self.engine)

    def facts(self) -> dict[str, Any]:
        """Return what a run folder says of the parts, so that its model can be built again."""
        start = {} if self.start is None else {"start": self.start.facts}
        return {"shape": list(self.dataset.shape), "classes": self.dataset.classes, **start}

    def kept(self) -> dict[str, bytes]:
        """Return the files that a run folder keeps for the same purpose, by name."""
        files = {}
        if self.start is not None:
            files["start.safetensors"] = self.start.content
        if self.takes_words and self.words:
            files["words.json"] = json.dumps(self.words).encode()
        return files

    @cached_property
    def preset(self) -> Preset:
        """Selector, aggregator and hooks: those of the preset, with the experiment's changes.

        The experiment's selector and aggregator replace the preset's; its hooks stand before them.

        Raises:
            ExperimentError: a part does not exist, or its settings are wrong.
        """
        section = self.experiment.logic
        preset = Preset(Uniform(), Mean())
        if section.preset is not None:
            preset = build("preset", section.preset, CATALOGUE["presets"])
        selector, aggregator = preset.selector, preset.aggregator
        if section.selector is not None:
            selector = build("selector", section.selector, CATALOGUE["selectors"])
        if section.aggregator is not None:
            aggregator = build("aggregator", section.aggregator, CATALOGUE["aggregators"])
        hooks = [build("hook", hook, CATALOGUE["hooks"]) for hook in section.hooks]
        return Preset(selector, aggregator, (*hooks, *preset.hooks))

    @cached_property
    def logic(self) -> Logic:
        """The logic of the experiment, equal at both ends.

        Raises:
            ExperimentError: its parts do not fit together.
        """
        experiment, preset = self.experiment, self.preset
        section, train = experiment.logic, experiment.compute.train
        schedule = build("schedule", train.schedule, CATALOGUE["schedules"])
        self._check_labels(preset.selector)
        self._check_distances(preset.selector)
        try:
            return Logic(
                layout=self.engine.layout,
                selector=preset.selector,
                aggregator=preset.aggregator,
                hooks=preset.hooks,
                training=Training(
                    epochs=train.epochs,
                    steps=train.steps,
                    batch_size=train.batch_samples,
                    learning_rate=train.learning_rate,
                    momentum=train.momentum,
                    weight_decay=train.weight_decay,
                ),
                learning_rate=lambda round: schedule.learning_rate(
                    train.learning_rate, round - 1, experiment.rounds
                ),
                seed=experiment.seed,
                clients=experiment.clients,
                min_updates=section.min_updates,
                deadline_s=experiment.clock.deadline_s,
                over_select=section.over_select,
                max_update=section.max_update,
            )
        except LogicError as error:
            raise ExperimentError(f"logic: {error}") from error

    def _check_labels(self, selector: Selector) -> None:
        """Check that the selector expects as many labels as the data have.

        With too few, no client could answer; with too many, every client would look biased.

        Raises:
            ExperimentError: the selector expects another number.
        """
        asked = {question.classes for question in selector.surveys() if question.classes}
        for number in sorted(asked):
            classes = self.dataset.classes if self.classes is None else self.classes
            if number != classes:
                data = self.experiment.compute.data.name
                raise ExperimentError(
                    f"logic: the selector expects {number} labels, but {data} has {classes}; "
                    f"set classes to {classes}"
                )

    def _check_distances(self, selector: Selector) -> None:
        """Check that FedAIM and the partition measure by one distance who is extremely biased.

        A threshold of its own, in either of them, says that two distances are meant.

        Raises:
            ExperimentError: they measure by two.
        """
        partition = self.experiment.compute.partition
        if partition.name != "biased" or not isinstance(selector, FedAimSplit):
            return
        made: Biased = build("partition", partition, CATALOGUE["partitions"])
        thresholds = (made.threshold, selector.threshold)
        if made.distance != selector.distance and thresholds == (None, None):
            raise ExperimentError(
                f"compute.partition: biased makes extremely biased clients by {made.distance}, "
                f"but the selector fedaim looks for them by {selector.distance}; set distance to "
                "the same in both, or give the selector a threshold if two are meant"
            )

    @cached_property
    def server_logic(self) -> Logic:
        """The logic of the server, which can train on assets and on samples of its own."""
        logic, engine = self.logic, self.engine
        if logic.assets:
            sizes = {name: len(rows) for name, rows in self.held_back.assets.items()}
            logic = dataclasses.replace(
                logic, train_on_asset=self._train_on_asset, asset_sizes=sizes
            )
        if not logic.held_out:
            return logic
        held_out = materialise(self.whole.train, self.held_back.held_out, self.normalise)

        def auxiliary(
            weights: np.ndarray, buffers: np.ndarray, training: Training, seed: int
        ) -> np.ndarray:
            engine.load(weights, buffers)
            engine.train(held_out, training, seed)
            return engine.weights.copy()

        return dataclasses.replace(logic, auxiliary=auxiliary)

    def _train_on_asset(
        self, name: str, weights: np.ndarray, buffers: np.ndarray, training: Training, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return a model's weights and buffers after training on the samples of an asset."""
        engine = self.engine
        engine.load(weights, buffers)
        engine.train(self.asset_samples[name], training, seed)
        return engine.weights.copy(), engine.buffers.copy()

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
                build("devices", clock.devices, CATALOGUE["devices"]),
                derive(experiment.seed, "clock"),
                build_uploads(clock.uploads, self.preset.selector),
                build("availability", clock.availability, CATALOGUE["availabilities"]),
                clock.dropout,
            )
        except LogicError as error:
            raise ExperimentError(f"clock: {error}") from error

    def sizes(self) -> ClientSizes:
        """Return each client's number of training samples."""
        clients = range(self.experiment.clients)
        if isinstance(self.dataset, CheckedFederatedData):
            return ClientSizes(clients, self.dataset.sizes)
        return ClientSizes(clients, np.array([len(rows) for rows in self.parts[0]], np.int64))

    def labels_of(self, client: int) -> np.ndarray:
        """Return the labels of a client's training samples, int64 (n,)."""
        if isinstance(self.dataset, CheckedFederatedData):
            return self.dataset.client(client).y
        labels: np.ndarray = self.dataset.train.y[self.parts[0][client]]
        return labels

    def samples_of(self, client: int) -> Samples:
        """Return a client's training samples, as the model takes them."""
        if isinstance(self.dataset, CheckedFederatedData):
            return materialise(self.dataset.client(client), None, self.normalise)
        return materialise(self.dataset.train, self.parts[0][client], self.normalise)

    @cached_property
    def test_rows(self) -> np.ndarray:
        """The rows of the test split for the global model's evaluation: all, or a random sample."""
        number = self.experiment.compute.evaluate.sample
        total = len(self.dataset.test)
        if number is None or number >= total:
            return np.arange(total)
        rng = np.random.default_rng(derive(self.experiment.seed, "evaluate"))
        return np.sort(rng.permutation(total)[:number])

    @cached_property
    def _evaluated(self) -> Samples:
        whole = len(self.test_rows) == len(self.dataset.test)
        rows = None if whole else self.test_rows
        return materialise(self.dataset.test, rows, self.normalise)

    def test_samples(self) -> Samples:
        """Return the samples that the global model is evaluated on; made once."""
        return self._evaluated

    def use_data(self, dataset: Dataset, rows: Sequence[np.ndarray]) -> None:
        """Use an equal data set instead of the one that is there or would be read.

        Args:
            dataset: the data set.
            rows: each client's rows of the training split.
        """
        test_rows = self.parts[1] if "parts" in vars(self) else []
        vars(self).update(dataset=dataset, parts=(rows, test_rows))

    def use_samples(self, evaluated: Samples, assets: Mapping[str, Samples]) -> None:
        """Use equal samples instead of those that are there or would be made.

        Args:
            evaluated: the samples that the global model is evaluated on.
            assets: the samples of the assets, by name.
        """
        vars(self).update(_evaluated=evaluated, asset_samples=assets)

    def server_compute(self) -> Compute:
        """Return the engine and the samples of the server."""
        return Compute(self.engine, self.test_samples())

    def client_compute(self, client: int) -> Compute:
        """Return the engine and the samples of a client with the experiment's data."""
        return Compute(self.engine, self.samples_of(client))

    def own_compute(self, path: Path, part: tuple[int, int] | None = None) -> Compute:
        """Return the engine and the samples of a client with data of its own.

        Args:
            path: an ``.npz`` file with x_train, y_train, x_test and y_test.
            part: (i, n): use only the i-th of n parts, by the experiment's partition; None: all.
        """
        own = Arrays(str(path)).load(self.files)
        rows = None
        if part is not None:
            partition = build(
                "partition", self.experiment.compute.partition, CATALOGUE["partitions"]
            )
            seed = derive(self.experiment.seed, "partition")
            rows = divide(own, partition, part[1], seed)[0][part[0]]
        return Compute(self.engine, materialise(own.train, rows, self.normalise))
