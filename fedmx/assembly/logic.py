"""The logic of an experiment, equal at both ends: selector, aggregator, hooks and training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fedmx.assembly.data import ExperimentData
from fedmx.components.build import build
from fedmx.components.component import Component
from fedmx.errors import ExperimentError
from fedmx.experiment import Experiment
from fedmx.experiment.sections import TrainSection
from layers.compute.engines.engine import Engine
from layers.compute.optimisers import Optimiser, Sgd
from layers.logic import Logic, LogicError, Preset, Selector, Training
from layers.logic.aggregators.mean import Mean
from layers.logic.core.attack import Attack, attack_in
from layers.logic.core.declaration import (
    RULES,
    Condition,
    Need,
    Trait,
    check_together,
    declared,
    refusal,
)
from layers.logic.core.local_tensors import Initial, LocalTensors, own_tensors
from layers.logic.core.privacy import Privacy
from layers.logic.core.trainer import LocalSgd
from layers.logic.selectors.uniform import Uniform


def preset_of(experiment: Experiment) -> Preset:
    """Return the parts of an experiment's logic.

    Its own selector, aggregator, trainer and list of own tensors replace those of its preset; its
    hooks precede the preset's. Privacy clips after all hooks that change updates; an attack lies
    after that.

    Raises:
        ExperimentError: a part does not exist, or its settings are wrong.
    """
    section = experiment.logic
    preset = Preset(Uniform(), Mean())
    if section.preset is not None:
        preset = build("preset", section.preset)
    replaced: dict[str, Any] = {
        noun: build(noun, given)
        for noun in ("selector", "aggregator", "trainer")
        if (given := getattr(section, noun)) is not None
    }
    if section.own is not None:
        replaced["own"] = section.own
    hooks = [build("hook", hook) for hook in section.hooks]
    preset = replace(preset, **replaced, hooks=(*hooks, *preset.hooks))
    if (privacy := privacy_of(experiment)) is not None and experiment.privacy is not None:
        try:
            preset = privacy.applied(preset, experiment.clients - len(experiment.without))
        except LogicError as error:
            raise ExperimentError(experiment.privacy.problem(str(error))) from None
    if experiment.attack is not None:
        lies = attack_of(experiment, experiment.attack)
        preset = replace(preset, hooks=(*preset.hooks, lies))
    return preset


def privacy_of(experiment: Experiment) -> Privacy | None:
    """Return the privacy of an experiment; None: it has none.

    Raises:
        ExperimentError: a setting is wrong.
    """
    if experiment.privacy is None:
        return None
    privacy: Privacy = build("privacy", experiment.privacy)
    return privacy


def attack_of(experiment: Experiment, reference: Component) -> Attack:
    """Return the attack of an experiment, with the numbers of the clients that lie.

    Raises:
        ExperimentError: a setting is wrong.
    """
    attack: Attack = build("attack", reference)
    try:
        return attack.among(experiment.clients, experiment.seed)
    except LogicError as error:
        raise ExperimentError(reference.problem(str(error))) from None


def keeps_places(experiment: Experiment, selector: Selector) -> bool:
    """Return whether the selector draws cohorts as if the clients of `without` took part.

    Other clients then replace them. So a round that draws none of them is the same with and without
    them.
    """
    always = experiment.clock.availability.name == "always"
    return always and Trait.BY_NUMBER in selector.provides


def logic_of(
    experiment: Experiment, preset: Preset, data: ExperimentData, model: Callable[[], Engine]
) -> Logic:
    """Return the logic of an experiment.

    Args:
        experiment: the experiment.
        preset: its parts; see `preset_of`.
        data: its data, for the number of labels.
        model: returns the engine with the model; called after the checks, since it takes a while.

    Raises:
        ExperimentError: the parts do not fit together.
    """
    section, train = experiment.logic, experiment.compute.train
    schedule = build("schedule", train.schedule)
    _check_data(experiment, preset, data)

    def learning_rate(round: int) -> float:
        rate: float = schedule.learning_rate(train.learning_rate, round - 1, experiment.rounds)
        return rate

    if preset.own and experiment.compute.evaluate.clients is not None:
        raise ExperimentError(
            "compute.evaluate.clients: tensors of the model stay on each client, and clients would "
            "evaluate the others alone; use compute.evaluate.personal in a simulation"
        )
    engine = model()
    _check_private(experiment, preset, engine)
    try:
        logic = Logic(
            layout=engine.layout,
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
            learning_rate=learning_rate,
            seed=experiment.seed,
            clients=experiment.clients - len(experiment.without),
            without=experiment.without if keeps_places(experiment, preset.selector) else (),
            min_updates=section.min_updates,
            deadline_s=experiment.clock.deadline_s,
            over_select=section.over_select,
            max_update=section.max_update,
            trainer=preset.trainer,
            local_tensors=_local_tensors_of(preset.own, engine) if preset.own else None,
            initial=_initial(experiment, preset, engine),
        )
        highest = max(map(learning_rate, range(1, experiment.rounds + 1)))
        if highest > train.learning_rate:  # the parts check every round's learning rate
            replace(logic, training=replace(logic.training, learning_rate=highest))
        _check_optimiser(train, logic, engine.optimiser)
    except LogicError as error:
        raise ExperimentError(f"logic: {error}") from error
    return logic


def _check_private(experiment: Experiment, preset: Preset, engine: Engine) -> None:
    """Check what an experiment has besides its parts, if they are private.

    Raises:
        ExperimentError: it has something that privacy excludes.
    """
    found = {one for hook in preset.hooks for one in declared(hook)}
    evaluate = experiment.compute.evaluate
    sums = evaluate.clients is not None
    buffers = any(tensor.stop > tensor.start for tensor in engine.buffers_layout)
    for one, condition, holds in (
        (Need.BOUNDED, Condition.BUFFERS, buffers),
        (Need.HIDDEN, Condition.BUFFERS, buffers),
        (Need.BOUNDED, Condition.OWN_ACCURACY, evaluate.per_client or evaluate.personal or sums),
        (Need.HIDDEN, Condition.OWN_ACCURACY, sums),
        (Trait.MASKED, Condition.OWN_ACCURACY, sums),
    ):
        if one in found and holds:
            raise ExperimentError(f"privacy: {refusal(one, condition, '', '')}")


def _check_optimiser(train: TrainSection, logic: Logic, optimiser: Optimiser) -> None:
    """Check that the parts can work with the optimiser of local training.

    Raises:
        LogicError: one cannot.
    """
    name, keeps = train.optimiser.name, optimiser.state == "keep"
    holds = {
        Condition.NOT_SGD: keeps or type(optimiser) is not Sgd,
        Condition.KEPT_STATE: keeps,
        Condition.DECOUPLED_DECAY: optimiser.decoupled and train.weight_decay > 0,
    }
    text = f"{name} with state: keep" if keeps else name
    conditions = dict.fromkeys((one for one in holds if holds[one]), text)
    rules = [rule for rule in RULES if not conditions.keys().isdisjoint((rule.one, rule.other))]
    check_together(logic, conditions, rules)


def _local_tensors_of(patterns: Sequence[str], engine: Engine) -> LocalTensors:
    """Return the tensors that stay on each client.

    Raises:
        ExperimentError: a pattern stands for no tensor, or no tensor would be sent.
    """
    try:
        own = own_tensors(patterns, engine.layout, engine.buffers_layout)
    except LogicError as error:
        raise ExperimentError(f"logic.own: {error}") from None
    return LocalTensors(engine.layout, own, engine.buffers_layout)


def _initial(experiment: Experiment, preset: Preset, engine: Engine) -> Initial | None:
    """Return the initial model, which clients draw from the seed, if they need it.

    With `compute.start` they do not know it: that file is the server's.
    """
    needed = preset.own or preset.trainer != LocalSgd()
    return engine.initial(experiment.seed) if needed and not experiment.compute.start else None


def _check_data(experiment: Experiment, preset: Preset, data: ExperimentData) -> None:
    """Check that the parts can work with the data.

    Raises:
        ExperimentError: one cannot.
    """
    partition = build("partition", experiment.compute.partition)
    attack = attack_in(preset.hooks)
    for part in (preset.selector, preset.aggregator, *preset.hooks, preset.trainer):
        try:
            part.check_data(data.targets.classes, partition)
        except LogicError as error:
            place = "attack." if part is attack else "logic: "
            raise ExperimentError(f"{place}{error}") from None
