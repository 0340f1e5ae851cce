"""A fork without a client is the run that never had it, where that is possible, and says so."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from fedmx import Assembly, Experiment, RunFolder, simulate
from fedmx.history import fork
from fedmx.history.fork import first_rounds
from fedmx.run import RunError
from fedmx.run.checkpoint import read_checkpoint
from layers.logic import LogicError
from layers.logic.core.round import PlannedLane
from layers.logic.seeds import generator
from layers.logic.selectors.draws import draw_uniform, replaced
from layers.logic.selectors.uniform import BySize
from tests.fedmx.fork.parents import TREE, chain, cohorts, ended, models
from tests.fedmx.recorded_runs import record

BY_SIZE = {
    "selector": {"name": "by-size", "count": 2},
    "aggregator": {"name": "mean", "weights": "uniform"},
}


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return record(Experiment(**TREE), tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def by_size(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return record(Experiment(**{**TREE, "logic": BY_SIZE}), tmp_path_factory.mktemp("runs"))


def comes_late(run: RunFolder) -> int:
    """The client whose first round is the last of all first rounds."""
    first = first_rounds(run, range(6))
    return max(first, key=first.__getitem__)


def test_a_fork_without_a_client_is_the_run_without_it(parent: RunFolder, tmp_path: Path) -> None:
    gone = comes_late(parent)
    made = fork(parent, without=[gone])
    assert made.origin.round == first_rounds(parent, [gone])[gone] - 1 > 0
    assert made.origin.exact is True
    assert made.origin.note.startswith(f"Exact removal of client {gone}: ")
    never_had_it = record(Experiment(**TREE, without=[gone]), tmp_path)
    assert chain(ended(made)) == chain(never_had_it)
    assert not any(gone in cohort for cohort in cohorts(made.folder))
    assert models(made.folder)[-1] != models(parent)[-1]


def test_the_rounds_that_did_not_select_it_have_the_same_cohorts(parent: RunFolder) -> None:
    gone = comes_late(parent)
    without = cohorts(ended(fork(parent, without=[gone])))
    for cohort, other in zip(cohorts(parent), without, strict=True):
        assert len(other) == len(cohort) == 2
        if gone not in cohort:
            assert other == cohort
        else:
            assert {*cohort} - {gone} < {*other}


def test_an_early_fork_that_begins_before_the_client_is_exact_too(parent: RunFolder) -> None:
    gone = comes_late(parent)
    made = fork(parent, 1, without=[gone])
    assert made.origin.exact is True
    assert chain(ended(made)) == chain(ended(fork(parent, without=[gone])))


def test_a_fork_after_its_first_round_says_that_the_model_has_it(parent: RunFolder) -> None:
    gone = comes_late(parent)
    first = first_rounds(parent, [gone])[gone]
    made = fork(parent, first, without=[gone])
    assert made.origin.exact is False
    assert made.origin.note == (
        f"No exact removal of client {gone}: the model after round {first} holds what it sent "
        f"(client {gone} from round {first} on). A fork after round {first - 1} is exact."
    )
    assert [cohort for cohort in cohorts(ended(made))[first:] if gone in cohort] == []


def test_where_the_client_decided_who_was_selected_the_fork_begins_anew_or_says_so(
    by_size: RunFolder, tmp_path: Path
) -> None:
    gone = comes_late(by_size)
    made = fork(by_size, without=[gone])
    assert (made.origin.round, made.origin.exact) == (0, True)
    assert "BySize does not select by the clients' numbers alone" in made.origin.note
    never_had_it = record(Experiment(**{**TREE, "logic": BY_SIZE}, without=[gone]), tmp_path)
    assert chain(ended(made)) == chain(never_had_it)
    later = fork(by_size, 1, without=[gone])
    assert later.origin.exact is False
    assert later.origin.note.startswith(f"No exact removal of client {gone}: BySize does not ")


VARIATES = {"selector": {"name": "uniform", "count": 2}, "hooks": ["scaffold"]}


def test_where_a_hook_counts_clients_an_exact_fork_begins_before_round_1(tmp_path: Path) -> None:
    """SCAFFOLD divides by N, so that every round depends on the number of clients."""
    run = record(Experiment(**{**TREE, "logic": VARIATES}), tmp_path / "run")
    gone = comes_late(run)
    made = fork(run, without=[gone])
    assert (made.origin.round, made.origin.exact) == (0, True)
    assert "Scaffold works with the number of clients" in made.origin.note
    never_had_it = record(Experiment(**{**TREE, "logic": VARIATES}, without=[gone]), tmp_path / "w")
    assert chain(ended(made)) == chain(never_had_it)
    assert not fork(run, 1, without=[gone]).origin.exact


def test_the_variate_of_a_removed_client_is_in_no_sum_of_the_fork(tmp_path: Path) -> None:
    run = record(Experiment(**{**TREE, "logic": VARIATES}), tmp_path / "run")
    gone = cohorts(run)[0][0]
    made = fork(run, 3, without=[gone])
    kept = read_checkpoint(made.folder.checkpoint_path(3)).state["server"]["memory"]["0:Scaffold"]
    assert (kept["since"], kept["senders"].tolist()) == (3, [])
    assert not kept["sum"].any()
    path = ended(made).checkpoint_path(TREE["rounds"])
    kept = read_checkpoint(path).state["server"]["memory"]["0:Scaffold"]
    assert kept["clients"] == 5, "N is of those that are left"
    assert gone not in kept["senders"]
    idle = next(one for one in range(6) if not any(one in c for c in cohorts(run)[:3]))
    other = fork(run, 3, without=[idle])
    kept = read_checkpoint(other.folder.checkpoint_path(3)).state["server"]["memory"]["0:Scaffold"]
    assert "since" not in kept, "it has sent no variate"


@pytest.mark.parametrize("selector", [{"name": "uniform", "count": 2}, {"name": "by-size"}])
def test_n_does_not_count_who_is_left_out(selector: dict[str, Any]) -> None:
    tree = {**TREE, "logic": {**BY_SIZE, "selector": selector}}
    assert Assembly(Experiment(**tree)).logic.clients == 6
    assert Assembly(Experiment(**tree, without=[1, 4])).logic.clients == 4


def test_a_fork_of_a_fork_remembers_who_decided_before(by_size: RunFolder) -> None:
    gone = comes_late(by_size)
    uniform = ended(fork(by_size, 1, ["logic={selector: {name: uniform, count: 2}}"]))
    assert fork(uniform, 1, without=[gone]).origin.exact is False


def test_a_client_that_never_took_part_is_not_removed(tmp_path: Path) -> None:
    run = record(Experiment(**{**TREE, "rounds": 1}), tmp_path)
    idle = min({*range(6)} - {*first_rounds(run, range(6))})
    with pytest.raises(RunError, match="took part in no round, so the run is already the one"):
        fork(run, without=[idle])


@pytest.mark.parametrize(
    "logic",
    [
        {"preset": {"name": "fedsso", "beta": 0.75}},
        {"preset": {"name": "oort", "fraction": 0.75}},
        {"preset": {"name": "astraea", "gamma": 2}},
        {"selector": {"name": "round-robin", "count": 2}},
        {"selector": {"name": "uniform", "fraction": 1.0}},
    ],
)
def test_nobody_asks_a_client_that_a_run_is_without(logic: dict[str, Any]) -> None:
    given = Experiment(**{**TREE, "logic": logic, "rounds": 3}, without=[1, 4])
    with simulate(given) as simulation:
        for round in simulation:
            assert round.report.clients
            assert {one.client for one in round.report.clients} <= {0, 2, 3, 5}


def test_a_run_is_without_a_client_that_is_away_now_and_then() -> None:
    clock = {"devices": "lognormal", "availability": {"name": "chance", "share": 0.5, "span_s": 5}}
    logic = {"min_updates": 0}
    given = Experiment(**{**TREE, "logic": logic, "rounds": 9}, clock=clock, without=[1, 4])
    with simulate(given) as simulation:
        for round in simulation:
            assert {one.client for one in round.report.clients} <= {0, 2, 3, 5}
            assert round.report.clients


def test_a_replaced_cohort_is_a_uniform_draw_of_the_others() -> None:
    clients, draws = range(5), 6000
    found: Counter[tuple[int, ...]] = Counter()
    for seed in range(draws):
        drawn = draw_uniform(generator(seed, "select", 1), 5, 2)
        lanes = [PlannedLane((one,)) for one in sorted(drawn.tolist())]
        without = replaced(lanes, clients, (3,), seed, 1)
        if 3 not in drawn:
            assert without is lanes
        found[tuple(client for lane in without for client in lane.clients)] += 1
    pairs = list(combinations([0, 1, 2, 4], 2))
    assert set(found) == set(pairs)
    for pair in pairs:  # five standard deviations
        assert abs(found[pair] - draws / 6) < 5 * (draws * 5 / 36) ** 0.5


def test_where_nobody_is_left_to_replace_it_the_cohort_is_smaller() -> None:
    lanes = [PlannedLane((one,)) for one in range(3)]
    assert replaced(lanes, [0, 1, 2], (1,), 1, 1) == [PlannedLane((0,)), PlannedLane((2,))]
    assert replaced(lanes, [0, 1, 2], (0, 1, 2), 1, 1) == []


def test_a_logic_replaces_clients_only_if_they_are_selected_by_number() -> None:
    from dataclasses import replace

    from tests.fedmx.algorithms import experiment

    logic = Assembly(experiment({})).logic
    assert replace(logic, without=(1,)).without == (1,)
    with pytest.raises(LogicError, match=r"BySize .* numbers"):
        replace(logic, selector=BySize(), without=(1,))


def test_all_clients_may_have_taken_part_in_what_came_after_a_step_back(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "back", "name: back\n", {})
    rows = [(1, 0, "accepted"), (2, 1, "not-selected"), (3, 1, "accepted")]
    run.append_clients(
        [{"round": round, "client": one, "status": status} for round, one, status in rows]
    )
    run.append_round({"round": 1})
    assert first_rounds(run, [0, 1, 2]) == {0: 1, 1: 3}
    run.append_round({"round": 4, "stepped_back": [{"to": 3}, {"to": 1}]})
    assert first_rounds(run, [0, 1, 2]) == {0: 1, 1: 2, 2: 2}
