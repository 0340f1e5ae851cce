"""The parts of an experiment: data, engine and logic, as the server or a client needs them."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedmx.assembly.assets import AssetFile, file_of_samples, samples_in
from fedmx.assembly.data import Division, ExperimentData, held_back_of
from fedmx.assembly.parts import clock_of, engine_of, keeps_places, logic_of, preset_of, takes_words
from fedmx.assembly.start_file import Start, read_start
from fedmx.components.text import shown
from fedmx.errors import ExperimentError
from fedmx.experiment import Experiment
from layers.compute.data.dataset import Samples
from layers.compute.data.datasets import CheckedFederatedData, Files
from layers.compute.data.partitions.held_back import HeldBack
from layers.compute.engines.mxnet.engine import Compute, MXNetEngine
from layers.logic import Facilities, Logic, Preset, Training
from layers.logic.client_sizes import ClientSizes
from layers.logic.clock import VirtualClock
from layers.logic.watch.watcher import Watcher


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

    Raises:
        ExperimentError: the experiment is something else.
    """

    experiment: Experiment
    files: Files = dataclasses.field(default_factory=Files)
    shape: tuple[int, ...] | None = None
    classes: int | None = None
    told_words: tuple[str, ...] | None = None
    start_file: Path | None = None

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
        """The data set, and the samples in it as the model takes them."""
        return ExperimentData(
            self.experiment, self.files, self.shape, self.classes, self.told_words
        )

    @cached_property
    def engine(self) -> MXNetEngine:
        """The engine, with the experiment's model.

        Raises:
            ComputeError: this process runs on other instructions than the experiment.
        """
        return engine_of(self.experiment, self.data)

    @cached_property
    def start(self) -> Start | None:
        """The weights that the run begins from; None: they are drawn from the seed.

        Raises:
            ExperimentError: the file cannot be read, or is of another model.
        """
        path = self.start_file or self.experiment.compute.start
        return None if path is None else read_start(path, self.engine)

    @cached_property
    def preset(self) -> Preset:
        """Selector, aggregator and hooks.

        Raises:
            ExperimentError: a part does not exist, or its settings are wrong.
        """
        return preset_of(self.experiment)

    @cached_property
    def logic(self) -> Logic:
        """The logic of the experiment, equal at both ends.

        Raises:
            ExperimentError: its parts do not fit together.
        """
        return logic_of(self.experiment, self.preset, self.data, lambda: self.engine.layout)

    @cached_property
    def server_logic(self) -> Logic:
        """The logic of the server, which can train on assets and on samples of its own."""
        logic = self.logic
        facilities = Facilities()
        if logic.assets:
            facilities = Facilities(
                train_on_asset=lambda name, *how: self._trained(self.asset_samples[name], *how),
                asset_sizes={name: len(rows) for name, rows in self.held_back.assets.items()},
            )
        if logic.held_out:
            held_out = self.data.materialise(self.data.whole.train, self.held_back.held_out)
            facilities = dataclasses.replace(
                facilities, auxiliary=lambda *how: self._trained(held_out, *how)[0]
            )
        return dataclasses.replace(logic, facilities=facilities)

    def _trained(
        self,
        samples: Samples,
        weights: np.ndarray,
        buffers: np.ndarray,
        training: Training,
        seed: int,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return a model's weights and buffers after training on these samples."""
        engine = self.engine
        engine.load(weights, buffers)
        engine.train(samples, training, seed)
        return engine.weights.copy(), engine.buffers.copy()

    def watch(self, watcher: Watcher | None) -> None:
        """Let this watcher, and no other, see what is made of the parts from now on; None: nobody.

        A server or a client that exists already keeps its own.
        """
        vars(self)["logic"] = dataclasses.replace(self.logic, watcher=watcher)
        vars(self).pop("server_logic", None)

    @cached_property
    def held_back(self) -> HeldBack:
        """The samples that hooks take out of the training split before it is divided.

        Raises:
            ExperimentError: hooks leave no sample to the clients.
        """
        seed, labels = self.experiment.seed, self.data.whole.train.y
        if not any(hook.assets or hook.held_out for hook in self.preset.hooks):
            return held_back_of(labels, {}, 0, seed)  # without the logic, which builds the model
        shares = {name: asset.share for name, asset in self.logic.assets.items()}
        return held_back_of(labels, shares, self.logic.held_out, seed)

    @cached_property
    def parts(self) -> tuple[Sequence[np.ndarray], Sequence[np.ndarray]]:
        """Each client's rows of the training and of the test split."""
        division = Division.of(self.experiment)
        return division.parts(self.data.whole, self.experiment.clients, self.held_back.rest)

    @cached_property
    def assets(self) -> dict[str, AssetFile]:
        """The files that every client is given, by the names under which hooks declare them."""
        data = self.data
        return {
            name: file_of_samples(
                name, data.whole.train, self.held_back.assets[name], data.normalise
            )
            for name in self.logic.assets
        }

    @cached_property
    def asset_samples(self) -> dict[str, Samples]:
        """The samples in these files, as the model takes them."""
        return {name: samples_in(asset) for name, asset in self.assets.items()}

    def sizes(self) -> ClientSizes:
        """Return each client's number of training samples."""
        clients, dataset = range(self.experiment.clients), self.data.dataset
        if isinstance(dataset, CheckedFederatedData):
            return ClientSizes(clients, dataset.sizes)
        return ClientSizes(clients, np.array([len(rows) for rows in self.parts[0]], np.int64))

    def population(self) -> ClientSizes:
        """Return the sizes of the clients of which cohorts are drawn."""
        sizes, without = self.sizes(), self.experiment.without
        if not without or keeps_places(self.experiment, self.preset.selector):
            return sizes
        ids = np.arange(self.experiment.clients, dtype=np.int64)
        return sizes.only(ids[~np.isin(ids, without)])

    def labels_of(self, client: int) -> np.ndarray:
        """Return the labels of a client's training samples, int64 (n,)."""
        dataset = self.data.dataset
        if isinstance(dataset, CheckedFederatedData):
            return dataset.client(client).y
        labels: np.ndarray = dataset.train.y[self.parts[0][client]]
        return labels

    def samples_of(self, client: int) -> Samples:
        """Return a client's training samples, as the model takes them."""
        dataset = self.data.dataset
        if isinstance(dataset, CheckedFederatedData):
            return self.data.materialise(dataset.client(client), None)
        return self.data.materialise(dataset.train, self.parts[0][client])

    def clock(self) -> VirtualClock | None:
        """Return the simulation's virtual clock; None if the experiment has no devices.

        Raises:
            ExperimentError: the devices, the uploads or the availability have wrong settings.
        """
        devices = self.experiment.clock.devices
        if devices is None:
            return None
        return clock_of(self.experiment, devices, self.preset.selector)

    def use(self, assets: Mapping[str, Samples], rows: Sequence[np.ndarray] | None) -> None:
        """Use equal samples and rows instead of those that are there or would be made.

        Args:
            assets: the samples of the assets, by name.
            rows: each client's rows of the training split; None: what is there stays.
        """
        vars(self)["asset_samples"] = assets
        if rows is not None:
            test_rows = self.parts[1] if "parts" in vars(self) else []
            vars(self)["parts"] = (rows, test_rows)

    def facts(self) -> dict[str, Any]:
        """Return what a run folder says of the parts, so that its model can be built again."""
        start = {} if self.start is None else {"start": self.start.facts}
        return {**self.data.facts(), **start}

    def kept(self) -> dict[str, bytes]:
        """Return the files that a run folder keeps for the same purpose, by name."""
        files = {}
        if self.start is not None:
            files["start.safetensors"] = self.start.content
        if takes_words(self.experiment.compute.model) and self.data.words:
            files["words.json"] = json.dumps(self.data.words).encode()
        return files

    def server_compute(self) -> Compute:
        """Return the engine and the samples of the server."""
        return Compute(self.engine, self.data.test_samples)

    def client_compute(self, client: int) -> Compute:
        """Return the engine and the samples of a client with the experiment's data."""
        return Compute(self.engine, self.samples_of(client))

    def own_compute(self, path: Path, part: tuple[int, int] | None = None) -> Compute:
        """Return the engine and the samples of a client with data of its own.

        Args:
            path: an ``.npz`` file with x_train, y_train, x_test and y_test.
            part: (i, n): use only the i-th of n parts, by the experiment's partition; None: all.
        """
        return Compute(self.engine, self.data.own_samples(path, part))
