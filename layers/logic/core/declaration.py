"""The declarations of parts: their needs and traits, and the pairs that exclude each other.

A part says what it needs (`Part.requires`) and what it does (`Part.provides`). `RULES` is the one
table of refused pairs; a part checks relations of its numbers in its `check`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, Literal, TypeAlias

from layers.logic.core.parts import Parts
from layers.logic.errors import LogicError
from layers.settings import Settings


class Need(Enum):
    """What a part requires of the clients, of a round, or of other parts."""

    RECEIVED_LOSS = "uses the received model's loss, which each client reports"
    ASKED_LOSS = "asks clients for the loss of the model that it has made of their updates"
    RECEIVED_GRADIENT = "uses the received model's mean gradient, which each client computes"
    RMS_LOSS = "uses the metric `rms_loss` of each update"
    STEPS = "uses the number of local steps of each update, which must not exceed the task's"
    EACH_CLIENT = "uses the updates of single clients"
    TOLD = "uses what single clients tell of their data, such as losses, norms or answers"
    EQUAL_WEIGHTS = "draws clients by their size"
    DENSE = "compares the updates value by value"
    PLAN_WEIGHTS = "gives each client its weight in the mean"
    SERIAL_UPLOADS = "assumes one upload at a time"
    DEADLINE = "fits clients into a round of a given length"
    LABELS = "uses the labels of all clients"
    ONE_VERSION = "compares updates, which must start from the same model"
    BOUNDED = "bounds and hides how much one client changes a round (privacy)"
    HIDDEN = (
        "hides everything that a client sends except its number of samples (local privacy, or "
        "noise in a secure sum)"
    )
    SAME_TASKS = "needs the same model and training for all clients of a round"
    WHOLE_UPDATES = "replaces updates by vectors that are made of the updates of others"
    SGD = "computes with local steps of SGD, whose momentum starts at zero in each round"
    DECAY_IN_GRADIENT = "keeps tensors still by gradients that cancel weight decay"


class Trait(Enum):
    """What a part provides, or does to others."""

    BY_NUMBER = (
        "selects by the seed, the round and the clients' numbers alone, in lanes of one client"
    )
    ASYNCHRONOUS = "lets tasks outlive the round (asynchronous rounds)"
    ASKS_COHORT = "asks the clients of a cohort, or leaves some out"
    ONLY_LABELS = "selects by the clients' labels, and asks them about nothing else"
    OTHER_TASKS = "lets some clients of a round train otherwise"
    BY_SAMPLES = "weighs updates by samples"
    OTHER_WEIGHTS = "is a mean that ignores the plan's weights"
    BY_SLICES = "reads updates slice by slice, so that they may be on disk"
    ROBUST = "bounds the influence of a few arbitrary clients"
    ENCODES_UPDATE = "sends the update in its slot, with an empty delta"
    ENCODES_MODEL = "encodes the model"
    MASKED = "sends masked updates: the server reads only their sum"
    ONE_SUM = "lets the server read the sum of the updates, and no other sum"
    FROM_MEAN = "needs only the mean of the updates"
    LOSSY = "encodes updates with loss"
    SPARSE = "sends less than half of an update's values"
    SENDS_GRADIENTS = "sends gradients in place of the update"
    CHANGES_UPDATE = "changes updates before they are encoded"
    SUMS = "sums what clients send, without a bound"
    EQUAL_WEIGHTS = "is the mean of the updates with equal weights"
    USES_SINGLE = "uses single updates, or what clients send beside them, on the server"
    SENDS_MORE = "sends more than the update, or answers questions"
    KEEPS_OPTIMISER = "keeps the state of the client's optimiser from round to round"


class Condition(Enum):
    """What an experiment has besides its parts."""

    LOCAL = "tensors that stay on each client"
    WITHOUT = "clients that other clients replace"
    DEADLINE = "a deadline (`clock.deadline_s`)"
    RESERVE = "clients in reserve (`over_select` above 1)"
    BUFFERS = "a model with buffers (BatchNorm)"
    OWN_ACCURACY = "results on each client's own samples (`compute.evaluate`)"
    RELATIVE_PATIENCE = "a patience that follows the answer times of all (`network.patience`)"
    SHARED_LANES = "lanes of several clients or passes"
    OFFERS = "offers, with the norm of each update"
    PARALLEL_UPLOADS = "parallel uploads"
    ON_DISK = "updates on disk (`run.fold_memory_mb`)"
    NOT_SGD = "an optimiser other than SGD, or one that keeps its state (`compute.train.optimiser`)"
    KEPT_STATE = "an optimiser that keeps its state (`state: keep`)"
    DECOUPLED_DECAY = "weight decay outside of the gradient (`adamw`)"


Declared: TypeAlias = "Need | Trait | Condition"


class Part(Settings):
    """A part of a logic: its declarations are sets in the class, or properties.

    A part whose declarations depend on its settings writes them as properties.
    """

    refusal = LogicError

    held_out: float = 0.0
    """Share of the training samples that are taken out, for the server alone to train on."""

    counts_clients: bool = False
    """Whether it works with the number of clients (`ServerContext.clients`)."""

    memory_fits: bool = False
    """Whether a fork can go on with the memory of the same part with other settings."""

    @property
    def requires(self) -> Set[Need]:
        """What this part requires."""
        return frozenset()

    @property
    def provides(self) -> Set[Trait]:
        """What this part provides."""
        return frozenset()

    @property
    def follows(self) -> Set[Trait]:
        """What follows from the methods of this part."""
        return frozenset()

    def check(self, logic: Parts) -> None:
        """Check that this part can work with the other parts; called before anything runs.

        It is for conditions that no declaration expresses, such as a relation of two numbers.

        Raises:
            LogicError: it cannot work with them.
        """

    def check_data(self, classes: int, partition: object) -> None:
        """Check that this part can work with the data; called before anything runs.

        Args:
            classes: the number of labels.
            partition: what divides the data among the clients.

        Raises:
            LogicError: it cannot work with them.
        """


@dataclass(frozen=True)
class Rule:
    """A declaration that excludes or needs another declaration.

    Attributes:
        one: the declaration of one part, or a condition of the experiment.
        other: the declaration of another part, or a condition.
        why: the reason; ``{one}`` and ``{other}`` are the classes of the parts or the values of the
            conditions, ``{value}`` is the other part with its settings.
        advice: what to do.
        needed: the one that must provide `other`: selector, aggregator, hook, trainer or
            experiment; empty: it must not be there.
    """

    one: Declared
    other: Declared
    why: str
    advice: str
    needed: Literal["", "selector", "aggregator", "hook", "trainer", "experiment"] = ""

    def text(self, one: object, other: object) -> str:
        """Return the reason and the advice in one line, about parts or values of conditions."""
        return f"{self.why}; {self.advice}".format(one=_name(one), other=_name(other), value=other)


def _name(value: object) -> str:
    return type(value).__name__ if isinstance(value, Part) else str(value)


_ROWS: Mapping[tuple[Any, ...], str] = {
    (Trait.ENCODES_UPDATE, Trait.ENCODES_UPDATE): "{one} and {other} each encode the update, "
    "which travels in one encoding; keep one",
    (Trait.ENCODES_MODEL, Trait.ENCODES_MODEL): "{one} and {other} each encode the model, which "
    "travels in one encoding; keep one",
    (Condition.LOCAL, Trait.ENCODES_MODEL): "{other} encodes the whole model for the clients, but "
    "local tensors stay on each client; leave one of them out",
    (Condition.LOCAL, Need.ASKED_LOSS): "{other} asks clients about the whole model, but local "
    "tensors stay on each client; leave one of them out",
    (Condition.LOCAL, Trait.SENDS_GRADIENTS): "{other} sends gradients of the whole model, but "
    "local tensors stay on each client; leave one of them out",
    (Condition.WITHOUT, Trait.BY_NUMBER, "selector"): "{other} selects by more than the clients' "
    "numbers, so that no client can replace another; leave the clients out of the population",
    (Need.PLAN_WEIGHTS, Trait.OTHER_WEIGHTS): "{one} draws clients by size and gives each its "
    "weight, but {value} ignores it; set aggregator to {{name: mean, weights: plan}}",
    (Need.EQUAL_WEIGHTS, Trait.BY_SAMPLES): "{one} draws clients by their size, and {other} would "
    "count it twice, since it weighs by samples; set logic.aggregator to one that does not, as in "
    "{{name: mean, weights: uniform}}",
    (Need.DENSE, Trait.SPARSE): "{other} sends less than half of an update's values; where most "
    "clients send no value, {one} is 0 and does not change the model; use a rule that compares "
    "whole updates, such as geometric-median or norm-clip, or set sparse: true in the aggregator "
    "to allow it",
    (Trait.SUMS, Trait.ROBUST): "{one} sums what each client sends, which removes the bound of "
    "{other} against arbitrary clients; use an aggregator that is not robust, such as mean, or "
    "leave {one} out",
    (Trait.SENDS_GRADIENTS, Trait.CHANGES_UPDATE): "{other} changes the update, and {one} sends "
    "the gradients in place of it, so that the change would be lost; return the model (in fedsgd "
    "with reply: model), or leave {other} out",
    (Need.DEADLINE, Condition.DEADLINE, "experiment"): "{one} fits clients into a round of a "
    "given length; set clock.deadline_s",
    (Need.DEADLINE, Condition.RESERVE): "{one} takes as many clients as fit into the round, so "
    "none can be asked in reserve; set over_select to 1, not {other}",
    (
        Trait.ASYNCHRONOUS,
        Need.ONE_VERSION,
    ): "{one} folds updates that start from different versions of "
    "the model, but {other} compares updates, which must start from the same version; use a "
    "selector whose rounds wait, such as uniform",
    (
        Trait.ASYNCHRONOUS,
        Trait.ASKS_COHORT,
    ): "{one} selects clients one by one, and {other} asks or "
    "leaves out the clients of a whole cohort before it trains; use a selector whose rounds wait, "
    "such as uniform",
    (
        Trait.ASYNCHRONOUS,
        Condition.DEADLINE,
    ): "a round of {one} ends after a number of updates, and "
    "tasks outlive it, so it has no deadline; leave out clock.deadline_s",
    (Trait.ASYNCHRONOUS, Condition.RESERVE): "{one} replaces each client that is lost, so none is "
    "asked in reserve; set over_select to 1, not {other}",
    (Need.WHOLE_UPDATES, Trait.ENCODES_UPDATE): "{one} computes updates from whole updates of "
    "other clients, but {other} encodes them for the server alone; leave one of them out, or use "
    "an attack of each client alone, such as sign-flip",
    (Need.WHOLE_UPDATES, Condition.LOCAL): "{one} computes updates from whole updates of other "
    "clients, but does not get local tensors; leave one of them out, or use an attack of each "
    "client alone, such as sign-flip",
    (Need.BOUNDED, Trait.ASYNCHRONOUS): "{other} folds updates as they arrive, so that one client "
    "changes which others count; use the selector poisson, or cyclic with privacy dp-ftrl",
    (Need.BOUNDED, Trait.BY_SAMPLES): "{other} weighs updates by samples, so that a client with "
    "many changes a round by more than the clip; use a mean with weights: uniform, as in logic: "
    "{{aggregator: {{name: mean, weights: uniform}}}}",
    (Need.BOUNDED, Trait.EQUAL_WEIGHTS, "aggregator"): "{other} is not a mean with equal weights: "
    "what one client changes in it has no bound that the noise could hide; use aggregator: "
    "{{name: mean, weights: uniform}}",
    (Need.BOUNDED, Trait.SENDS_GRADIENTS): "{other} encodes gradients before they are clipped; "
    "leave it out",
    (Need.BOUNDED, Trait.USES_SINGLE): "{other} uses single updates, or what clients send beside "
    "them, on the server, where they are neither clipped nor hidden by noise; leave it out",
    (Need.BOUNDED, Trait.SUMS): "{other} sums what clients send beside their updates, which is "
    "neither clipped nor hidden by noise; leave it out",
    (Need.BOUNDED, Trait.ASKS_COHORT): "{other} asks the clients of a cohort, or leaves some out, "
    "so that the data of one change who counts; leave it out",
    (Need.BOUNDED, Condition.DEADLINE): "a deadline of {other} s leaves out whoever is late, and "
    "who is late depends on who else takes part; leave out clock.deadline_s",
    (Need.BOUNDED, Condition.RESERVE): "with over_select {other} the first to answer count, so "
    "that one client takes the place of another, and no sampling amplifies privacy; set "
    "over_select to 1",
    (Need.BOUNDED, Condition.LOCAL): "noise would change the tensors that stay on each client; "
    "leave out logic.own",
    (Need.BOUNDED, Condition.BUFFERS): "the model has buffers (BatchNorm), which clients would "
    "send without clipping and noise; use a model without them, such as one with GroupNorm",
    (Need.BOUNDED, Condition.OWN_ACCURACY): "results on clients' own samples would be recorded "
    "without noise; leave out compute.evaluate.clients, per_client and personal",
    (Need.HIDDEN, Condition.OWN_ACCURACY): "clients would send results on their own samples "
    "without noise; leave out compute.evaluate.clients",
    (Need.BOUNDED, Condition.RELATIVE_PATIENCE): "network.patience gives clients up by the answer "
    "times of the others, so that one client changes who counts; set network.patience to null, "
    "and network.patience_s to seconds",
    (Need.HIDDEN, Trait.ASYNCHRONOUS): "{other} may give a client several tasks in a round, and "
    "epsilon counts one; use a selector that plans each round at its begin, such as uniform",
    (Need.HIDDEN, Need.LABELS): "{other} makes the number of a client's samples depend on its "
    "labels, and that number is sent; leave it out",
    (Need.HIDDEN, Need.RECEIVED_LOSS): "{other} uses the clients' losses, which are not sent: "
    "they are not hidden; use another part",
    (Need.HIDDEN, Need.ASKED_LOSS): "{other} uses the clients' losses, which are not sent: they "
    "are not hidden; use another part",
    (Need.HIDDEN, Need.RMS_LOSS): "{other} uses the clients' losses, which are not sent: they are "
    "not hidden; use another part",
    (Need.HIDDEN, Trait.SENDS_MORE): "{other} sends more than the update, or answers questions, "
    "which is not hidden; leave it out",
    (Need.HIDDEN, Trait.SENDS_GRADIENTS): "{other} sends gradients in place of the update that is "
    "hidden; leave it out",
    (Need.HIDDEN, Condition.BUFFERS): "the model has buffers (BatchNorm), which clients would "
    "send without noise; use a model without them, such as one with GroupNorm",
    (Need.SERIAL_UPLOADS, Condition.PARALLEL_UPLOADS): "{one} assumes one upload at a time, not "
    "{other} uploads; leave it out, or write clock: {{uploads: serial}}",
    (Need.EACH_CLIENT, Condition.SHARED_LANES): "{one} needs each client's own update, but "
    "{other} made lanes of several clients or passes, which give only the sum; use another "
    "aggregator, such as mean, or let {other} call train for each client",
    (Trait.MASKED, Trait.ENCODES_UPDATE, "hook"): "{one} masks updates, but does not say "
    "that they travel in its slot; let it provide Trait.ENCODES_UPDATE",
    (Trait.MASKED, Trait.FROM_MEAN, "aggregator"): "{one} lets the server read only the sum of "
    "the updates, but {other} works with single ones; set logic.aggregator to mean, or leave "
    "{one} out",
    (Need.SAME_TASKS, Trait.OTHER_TASKS): "{one} needs the same task for all clients, since a "
    "server that gave others one without effect would read the update of one in the sum, but "
    "{other} lets some train otherwise; leave it out, or set server: honest in privacy",
    (Trait.ONE_SUM, Trait.SUMS): "{one} lets the server read only the sum of the updates, but "
    "{other} sums what clients send beside them; leave one of them out",
    (Trait.MASKED, Trait.USES_SINGLE): "{one} lets the server read only the sum of the updates, "
    "but {other} uses single ones there; leave one of them out",
    (
        Trait.MASKED,
        Trait.ASYNCHRONOUS,
    ): "{one} lets the server read only the sum of the updates, but "
    "{other} weighs each by its staleness; leave one of them out",
    (Trait.MASKED, Need.EACH_CLIENT): "{one} lets the server read only the sum of the updates, "
    "but {other} uses those of single clients; leave one of them out",
    (Trait.MASKED, Need.PLAN_WEIGHTS): "{one} lets the server read only the sum of the updates, "
    "but {other} gives each client a weight there; leave one of them out",
    (Trait.MASKED, Need.TOLD): "{one} lets the server read only the sum of the updates, but "
    "{other} uses what each client tells of its data; use a selector that does not, such as "
    "uniform",
    (Trait.MASKED, Need.RECEIVED_LOSS): "{one} lets the server read only the sum of the updates, "
    "but {other} uses the losses of single clients; leave one of them out",
    (Trait.MASKED, Need.ASKED_LOSS): "{one} lets the server read only the sum of the updates, "
    "but {other} uses the losses of single clients; leave one of them out",
    (Trait.MASKED, Need.RMS_LOSS): "{one} lets the server read only the sum of the updates, "
    "but {other} uses the losses of single clients; leave one of them out",
    (Trait.MASKED, Condition.OWN_ACCURACY): "the server reads only the sum of the updates, but "
    "clients would send results on their own samples; leave out compute.evaluate.clients",
    (Trait.MASKED, Condition.SHARED_LANES): "{one} lets the server read only the sum of the "
    "updates, but {other} made lanes of several clients or passes, which go on from single ones; "
    "use a selector with lanes of one client, such as uniform",
    (Trait.MASKED, Condition.OFFERS): "{one} lets the server read only the sum of the updates, "
    "but {other} selects by offers, which reveal the norm of each; use a selector that does not, "
    "such as uniform",
    (Condition.ON_DISK, Trait.BY_SLICES, "aggregator"): "{other} needs all updates of a round in "
    "memory, but run.fold_memory_mb folds them slice by slice from disk; set it to null, or use "
    "an aggregator that reads slices, such as mean, trimmed-mean, median or krum",
    (Need.SGD, Condition.NOT_SGD): "{one} computes with local steps of SGD, whose momentum starts "
    "at zero in each round, but clients train with {other}; set compute.train.optimiser to sgd",
    (Need.DECAY_IN_GRADIENT, Condition.DECOUPLED_DECAY): "{one} keeps tensors still by gradients "
    "that cancel weight decay, but that of {other} is outside of the gradient; set "
    "compute.train.weight_decay to 0, or use the optimiser adam",
    (Condition.KEPT_STATE, Trait.KEEPS_OPTIMISER, "trainer"): "{one} keeps its state from round to "
    "round, and {other} does not say that it does; set state to reset, or use a trainer of "
    "LocalSgd",
}
"""The reason and the advice of each rule, by what it is about. What `one` must have has the place
that must provide it as a third word; otherwise `other` must not be there."""


def _rules() -> Iterator[Rule]:
    for (one, other, *needed), text in _ROWS.items():
        why, _, advice = text.rpartition("; ")
        yield Rule(one, other, why, advice, *needed)


RULES = tuple(_rules())
"""What does not go together. A logic checks the rules before anything runs. `SHARED_LANES` and
`OFFERS` are checked in each round; `PARALLEL_UPLOADS`, `ON_DISK`, `BUFFERS`, `OWN_ACCURACY`,
`RELATIVE_PATIENCE` and the conditions of the optimiser where an experiment is built."""


def encoded(update: bool, model: bool) -> frozenset[Trait]:
    """Return the traits of a hook that encodes the update, the model, or both."""
    both = {Trait.ENCODES_UPDATE: update, Trait.ENCODES_MODEL: model}
    return frozenset(trait for trait, encodes in both.items() if encodes)


PROMISES = frozenset(
    {
        Trait.BY_NUMBER,
        Trait.BY_SLICES,
        Trait.EQUAL_WEIGHTS,
        Trait.FROM_MEAN,
        Trait.KEEPS_OPTIMISER,
        Trait.ONLY_LABELS,
    }
)
"""The traits by which a part allows something, and which it does not have by another part in its
settings: it must keep them itself."""


def with_inner(part: Any) -> Iterator[Any]:
    """Yield a part, the parts in its settings, and those in theirs."""
    yield part
    for one in fields(part) if is_dataclass(part) else ():
        value = getattr(part, one.name)
        for inner in value if isinstance(value, tuple | list) else (value,):
            if isinstance(inner, Part):
                yield from with_inner(inner)


def held_out_by(parts: Iterable[Part]) -> float:
    """Return the share of the training samples that the server keeps for all of these parts."""
    every = (one for part in parts for one in with_inner(part))
    return max((one.held_out for one in every), default=0.0)


def declarers(part: Part) -> dict[Need | Trait, Part]:
    """Return all declarations of a part, each with the part itself or the inner one that has it."""
    found: dict[Need | Trait, Part] = {}
    for one in with_inner(part):
        own = {*one.requires, *one.provides, *one.follows}
        for declaration in own if one is part else own - PROMISES:
            found.setdefault(declaration, one)
    return found


def declared(part: Part) -> frozenset[Need | Trait]:
    """Return all declarations of a part: its own, those that follow from its methods, and those of
    the parts in its settings."""
    return frozenset(declarers(part))


def check_together(
    logic: Parts, conditions: Mapping[Condition, str], rules: Iterable[Rule] | None = None
) -> None:
    """Check the parts of a logic, and the conditions of its experiment, against the table.

    Args:
        logic: the parts.
        conditions: the conditions that hold, each with its value as messages show it.
        rules: the rules to check; None: all.

    Raises:
        LogicError: two of them exclude each other, or no part provides the need of one.
    """
    holders: dict[Declared, list[Any]] = {one: [] for one in (*Need, *Trait, *Condition)}
    for part in (logic.selector, logic.aggregator, *logic.hooks, logic.trainer):
        for one, declarer in declarers(part).items():
            holders[one].append(declarer)
    for condition, value in conditions.items():
        holders[condition].append(value)
    for rule in RULES if rules is None else rules:
        others = holders[rule.other]
        for place, part in enumerate(holders[rule.one]):
            if rule.needed:
                if not others:
                    raise LogicError(rule.text(part, getattr(logic, rule.needed, "")))
                continue
            for other in others[place + 1 :] if rule.one == rule.other else others:
                raise LogicError(rule.text(part, other))


def refusal(one: Declared, other: Declared, of_one: object, of_other: object) -> str:
    """Return the message of the rule about two declarations.

    Args:
        one: the declaration that the rule is about.
        other: the other one.
        of_one: the part that has `one`, or the value of the condition.
        of_other: the part that has `other` or lacks it, or the value of the condition.
    """
    return next(
        rule.text(of_one, of_other) for rule in RULES if (rule.one, rule.other) == (one, other)
    )


def exclusions(part: Part) -> Iterator[str]:
    """Yield the declarations that are refused beside a part, each in a few words."""
    mine = declared(part)
    for rule in RULES:
        if rule.one in mine:
            yield f"{'without' if rule.needed else 'with'} {described(rule.other)}"
        elif not rule.needed and rule.other in mine:
            yield f"with {described(rule.one)}"


def described(one: Declared) -> str:
    """Return a declaration in words."""
    return one.value if isinstance(one, Condition) else f"a part that {one.value}"
