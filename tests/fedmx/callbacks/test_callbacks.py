"""Callbacks hear of every round and may end the run; a resumed run ends where it would have."""

from __future__ import annotations

import json
import math
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedmx import (
    Callback,
    CallbackError,
    EarlyStopping,
    Experiment,
    FedmxError,
    KeepBest,
    ProgressBar,
    Round,
    RunFolder,
    Server,
    join,
    recorded,
    serve,
    simulate,
)
from fedmx.deployment.join import OwnPart
from fedmx.server.evaluation import Evaluation
from fedmx.server.step_back import StepBack
from layers.logic import RoundReport, Traffic
from layers.logic.core.report import ClientReport

ROUNDS, PATIENCE = 25, 3


def experiment(rounds: int = ROUNDS, **more: Any) -> Experiment:
    data = {"name": "blobs", "tests": 200, "spread": 2.0}
    compute = {"model": "logistic", "data": data, "train": {"epochs": 1, "learning_rate": 0.3}}
    logic = {"selector": {"name": "uniform", "fraction": 0.5}}
    return Experiment(rounds=rounds, clients=4, compute=compute, logic=logic, **more)


def new_folder(parent: Path) -> RunFolder:
    of = experiment()
    return RunFolder.create(parent, of.name, of.to_yaml(), {"digest": of.digest()})


def ran(server: Server, folder: RunFolder, until: int = ROUNDS) -> None:
    """Run and record, as a caller that leaves the loop after a round."""
    for round in (rounds := recorded(server, folder)):
        if round.round == until:
            break
    rounds.close()


@pytest.fixture(scope="module")
def all_rounds() -> list[Round]:
    return list(simulate(experiment()))


@pytest.fixture(scope="module")
def patient_until(all_rounds: list[Round]) -> int:
    """The first round that ends so many evaluations without a better accuracy."""
    accuracies = [round.accuracy or 0.0 for round in all_rounds]
    for end in range(PATIENCE + 1, ROUNDS):
        if max(accuracies[end - PATIENCE : end]) <= max(accuracies[: end - PATIENCE]):
            return end
    raise AssertionError("the run gets better to its end, and shows nothing")


def a_round(number: int, accuracy: float | None = None, loss: float | None = None) -> Round:
    report = RoundReport(number, 0.1, 2, (), Traffic())
    return Round(
        report, Evaluation({"accuracy": accuracy, "loss": loss}), seconds=1.0, elapsed_s=1.0
    )


class Diary(Callback):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def on_begin(self, run) -> None:
        self.told.append(("begin", [record["round"] for record in run.records]))

    def stop(self, round) -> None:
        self.told.append(("stop", round.round))

    def on_round(self, round) -> None:
        self.told.append(round.round)

    def on_end(self, status, reason) -> None:
        self.told.append((status, reason))


# --- what a callback is told ----------------------------------------------------------------


def test_a_resumed_run_tells_of_the_rounds_before_and_ends_with_its_files(tmp_path: Path) -> None:
    folder, found = new_folder(tmp_path), []

    class Looks(Diary):
        def on_end(self, status, reason) -> None:
            super().on_end(status, reason)
            found.append((folder.model_path.exists(), folder.report_path.exists()))

    diary = Looks()
    ran(simulate(experiment(3), callbacks=[diary]), folder, until=2)
    assert diary.told[-1] == ("stopped", "its caller left the loop")
    ran(simulate(experiment(3), callbacks=[diary]), folder)
    begin, stop, round, end = diary.told[-4:]
    assert begin == ("begin", [1, 2])
    assert (stop, round, end[0]) == (("stop", 3), 3, "done")
    assert found[-1] == (True, True)


def test_callbacks_do_not_change_a_bit_of_the_model(all_rounds: list[Round]) -> None:
    heard = list(simulate(experiment(3), callbacks=[Diary(), EarlyStopping(20)]))
    assert [one.model_sha256 for one in heard] == [one.model_sha256 for one in all_rounds[:3]]


def test_a_deployed_server_calls_them_and_tells_clients_why_the_run_is_over(tmp_path: Path) -> None:
    class Enough(Callback):
        def stop(self, round) -> str | None:
            return "two are enough" if round.round == 2 else None

    data = {"name": "arrays", "path": str(tmp_path / "data.npz")}
    x, y = np.random.default_rng(1).normal(size=(40, 6)).astype(np.float32), np.arange(40) % 2
    np.savez(tmp_path / "data.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    deployed = Experiment(
        rounds=5,
        clients=1,
        compute={"model": "logistic", "data": data, "train": {"epochs": 1}},
        network={"address": "127.0.0.1:0"},
    )
    said: list[str] = []
    diary = Diary()

    def take_part(address: str) -> None:
        own = OwnPart(tmp_path / "data.npz")
        with join(address, 0, own, memory=tmp_path / "memory", give_up_s=30) as client:
            said.append(client.run())

    with serve(deployed, "one", callbacks=[Enough(), diary]) as server:
        client = threading.Thread(target=take_part, args=[server.address])
        client.start()
        assert [round.round for round in server.rounds()] == [1, 2]
        client.join(30)
    assert said == ["two are enough"]
    assert diary.told[-1] == ("done", "two are enough")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (KeyboardInterrupt(), ("interrupted", "interrupted")),
        (ValueError("no more"), ("failed", "ValueError: no more")),
        (FedmxError("no more"), ("failed", "FedmxError: no more")),
    ],
    ids=lambda one: type(one).__name__,
)
def test_every_callback_hears_how_a_run_ended_early_even_if_another_fails_then(
    error: BaseException, told: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    class Fails(Callback):
        def on_end(self, status, reason) -> None:
            raise OSError("the disk is full")

    before, after = Diary(), Diary()
    simulation = simulate(experiment(3), callbacks=[before, Fails(), after])
    with pytest.raises(type(error)) as caught, simulation.calling():
        raise error
    assert caught.value is error, "the first error is the one to show"
    assert before.told == after.told == [("begin", []), told]
    warned = [(one.levelname, one.getMessage()) for one in caplog.records]
    assert warned == [("WARNING", "callback Fails: the disk is full")]


@pytest.mark.parametrize(
    ("method", "when"),
    [
        ("on_begin", "before the first round"),
        ("stop", "in round 1"),
        ("on_round", "in round 1"),
        ("on_end", "at the end"),
    ],
)
def test_an_error_of_a_callback_names_its_method_and_the_round(method: str, when: str) -> None:
    def fails(self: Callback, *given: Any) -> None:
        raise OSError("no\n space")

    first, last = Diary(), Diary()
    failing = type("Failing", (Callback,), {method: fails})
    with pytest.raises(CallbackError) as caught:
        list(simulate(experiment(1), callbacks=[first, failing(), last]))
    assert str(caught.value) == f"Failing.{method} failed {when}: OSError: no space"
    assert isinstance(caught.value.__cause__, OSError)
    # Who was not told of the begin is not told of the end.
    assert (first.told[0], last.told == []) == (("begin", []), method == "on_begin")


@pytest.mark.parametrize(
    ("returned", "words"), [(None, r"^set the key$"), (True, r"Own\.stop returned True in round 1")]
)
def test_an_error_for_users_stays_so_and_a_reason_is_in_words(returned: Any, words: str) -> None:
    class Own(Callback):
        def stop(self, round: Round) -> Any:
            return returned

        def on_round(self, round: Round) -> None:
            raise FedmxError("set the key")

    with pytest.raises(FedmxError, match=words):
        list(simulate(experiment(1), callbacks=[Own()]))


def test_all_callbacks_hear_of_a_round_and_the_first_reason_counts() -> None:
    class Enough(Diary):
        def __init__(self, reason: str) -> None:
            super().__init__()
            self.reason = reason

        def stop(self, round) -> str:  # type: ignore[override]
            super().stop(round)
            return self.reason

    callbacks = Enough(""), Enough("one is enough"), Enough("one is too many")
    simulation = simulate(experiment(3), callbacks=callbacks)
    list(simulation)
    assert simulation.reason == "one is enough"
    end = ("done", "one is enough")
    assert [one.told for one in callbacks] == [[("begin", []), ("stop", 1), 1, end]] * 3


# --- mistakes -------------------------------------------------------------------------------


class Misspelt(Callback):
    def on_rounds(self, round) -> None: ...


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (EarlyStopping, "callbacks: .*the class EarlyStopping.* is no callback"),
        (print, "callbacks: .*built-in function.* is no callback"),
        (Misspelt(), "on_rounds is not a callback method; did you mean"),
    ],
)
def test_what_is_no_callback_is_refused(given: Any, said: str) -> None:
    with pytest.raises(CallbackError, match=said):
        simulate(experiment(), callbacks=[given])


def test_a_callback_that_fails_is_named_and_costs_no_round(tmp_path: Path) -> None:
    class Breaks(Callback):
        def on_round(self, round) -> None:
            if round.round == 2:
                raise OSError("the disk is full")

    folder, diary = new_folder(tmp_path), Diary()
    with pytest.raises(CallbackError, match=r"on_round failed in round 2: OSError: the disk"):
        ran(simulate(experiment(3), callbacks=[diary, Breaks()]), folder)
    assert diary.told[-1][0] == folder.status == "failed"
    assert "the disk is full" in folder.reason
    ran(simulate(experiment(3)), folder)
    assert [record["round"] for record in folder.rounds()] == [1, 2, 3]


def test_a_run_that_goes_on_without_a_callback_that_may_end_it_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = new_folder(tmp_path)
    ran(simulate(experiment(3), callbacks=[Diary(), EarlyStopping(7)]), folder, until=1)
    ran(simulate(experiment(3), callbacks=[EarlyStopping(7), Diary()]), folder, until=2)
    assert "without the callback" not in caplog.text
    ran(simulate(experiment(3)), folder)
    assert "the run goes on without the callback EarlyStopping(patience=7" in caplog.text


# --- early stopping -------------------------------------------------------------------------


def test_a_run_ends_when_its_accuracy_has_not_improved_for_the_patience(
    all_rounds: list[Round], patient_until: int
) -> None:
    simulation = simulate(experiment(), callbacks=[EarlyStopping(PATIENCE)])
    rounds = list(simulation)
    assert rounds[-1].round == patient_until
    assert rounds[-1].model_sha256 == all_rounds[patient_until - 1].model_sha256
    best = max(rounds, key=lambda round: (round.accuracy, -round.round))
    assert f"{best.accuracy:.4g} of round {best.round} since 3 evaluations" in simulation.reason


@pytest.mark.parametrize("before_the_end", [1, 2])
def test_a_resumed_run_ends_in_the_round_in_which_it_would_have_ended(
    tmp_path: Path, patient_until: int, before_the_end: int
) -> None:
    folder = new_folder(tmp_path)
    stopped = patient_until - before_the_end
    ran(simulate(experiment(), callbacks=[EarlyStopping(PATIENCE)]), folder, until=stopped)
    ran(simulate(experiment(), callbacks=[EarlyStopping(PATIENCE)]), folder)
    assert [record["round"] for record in folder.rounds()] == list(range(1, patient_until + 1))
    assert folder.status == "done"
    assert "no better" in folder.reason


def reasons(stopping: EarlyStopping, rounds: list[Round]) -> list[bool]:
    return [stopping.stop(round) is not None for round in rounds]


@pytest.mark.parametrize(
    ("settings", "values", "said"),
    [
        ((1,), [0.5, 0.5], "0.5 of round 1 since 1 evaluation"),
        ((2,), [0.12345, 0.5, 0.5, 0.4], "accuracy is no better than 0.5 of round 2 since 2 "),
        ((2,), [0.5, None, None, 0.5, None, 0.4], "0.5 of round 1 since 2 "),
        ((2, "loss"), [1.0, 0.12345, 2.0, 0.2], "loss is no better than 0.1235 of round 2 since 2"),
        ((2, "loss"), [math.nan, math.inf], "loss was not finite in 2 evaluations"),
        ((2, "loss", 0.1), [math.nan, 1.0, 0.95, 0.85, 0.8, math.nan], "0.85 of round 4 since 2"),
        ((2, "accuracy", 0.125), [0.5, 0.625, 0.625], "0.5 of round 1 since 2 "),
        ((2, "accuracy", 0.125), [0.5, 0.625, 0.6251], None),
    ],
)
def test_early_stopping_says_what_was_the_best(
    settings: Any, values: list[float | None], said: str | None
) -> None:
    stopping = EarlyStopping(*settings)
    stopping.on_begin(simulate(experiment()))
    of_loss = stopping.measure == "loss"
    *before, last = [
        stopping.stop(a_round(number, 0.5 if of_loss else value, value if of_loss else None))
        for number, value in enumerate(values, 1)
    ]
    assert before == [None] * len(before)
    assert last is None if said is None else said in str(last)


def test_the_loss_of_training_is_measured_in_every_round() -> None:
    def trained(number: int, loss: float) -> Round:
        one = ClientReport(1, "accepted", samples=10, metrics={"loss": loss})
        report = RoundReport(number, 0.1, 2, (one,), Traffic())
        return Round(report, Evaluation(), seconds=1.0, elapsed_s=1.0)

    stopping = EarlyStopping(2, "train_loss")
    stopping.on_begin(simulate(experiment()))
    losses = (1.0, 0.5, 0.75, 0.5)
    said = [stopping.stop(trained(number, loss)) for number, loss in enumerate(losses, 1)]
    best = "train_loss is no better than 0.5 of round 2 since 2 evaluations"
    assert said == [None, None, None, best]


def test_early_stopping_begins_anew_with_each_run() -> None:
    stopping = EarlyStopping(2)
    assert stopping.stop(a_round(2, 0.75)) is None
    simulation = simulate(experiment())
    simulation.remember([{"round": 1, "accuracy": 0.5}, {"round": 3, "accuracy": 0.25}])
    stopping.on_begin(simulation)
    assert stopping.stop(a_round(4, 0.375)) == (
        "accuracy is no better than 0.5 of round 1 since 2 evaluations"
    )


def test_after_a_step_back_the_rounds_that_are_gone_count_no_more() -> None:
    stopping = EarlyStopping(2)
    assert reasons(stopping, [a_round(1, 0.1), a_round(2, 0.9), a_round(3, 0.2)]) == [False] * 3
    again = [a_round(2, 0.3), a_round(3, 0.4), a_round(4, 0.35), a_round(5, 0.38)]
    assert reasons(stopping, again) == [False, False, False, True]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"patience": 0}, "patience .*not 0"),
        ({"patience": 1.5}, "patience .*not 1.5"),
        ({"least": -1}, "least .*not -1"),
        ({"least": math.inf}, "least .*not inf"),
    ],
)
def test_wrong_settings_of_early_stopping_are_named(settings: Any, said: str) -> None:
    with pytest.raises(FedmxError, match=said):
        EarlyStopping(**settings)


@pytest.mark.parametrize(
    ("measure", "said"),
    [
        ("acuracy", "'acuracy'; did you mean 'accuracy'"),
        ("rmse", "'rmse'; .*train_loss"),
        ("client_accuracy_mean", r"is not measured; set compute\.evaluate\.per_client"),
    ],
)
def test_a_measure_that_the_run_does_not_have_is_named_before_the_first_round(
    measure: str, said: str
) -> None:
    simulation = simulate(experiment(), callbacks=[EarlyStopping(2, measure)])
    with pytest.raises(FedmxError, match=said):
        next(simulation.rounds())


# --- the best model -------------------------------------------------------------------------


def vector(path: Path) -> np.ndarray:
    return np.concatenate([tensor.ravel() for tensor in load_file(path).values()])


def test_a_resumed_run_keeps_the_same_best_model(tmp_path: Path, all_rounds: list[Round]) -> None:
    best = max(all_rounds, key=lambda round: (round.accuracy, -round.round))
    assert best.round < ROUNDS
    whole, parts = new_folder(tmp_path / "whole"), new_folder(tmp_path / "parts")
    keeper = KeepBest()
    ran(simulate(experiment(), callbacks=[keeper]), whole)
    assert (keeper.best_round, keeper.best_value) == (best.round, best.accuracy)
    ran(simulate(experiment(), callbacks=[KeepBest()]), parts, until=best.round)
    ran(simulate(experiment(), callbacks=[KeepBest()]), parts)
    kept = [folder.path / "best.safetensors" for folder in (whole, parts)]
    assert kept[0].read_bytes() == kept[1].read_bytes()
    assert kept[0].with_suffix(".json").read_text() == kept[1].with_suffix(".json").read_text()

    simulation = simulate(experiment(best.round))
    for _ in simulation:
        pass
    assert np.array_equal(np.sort(vector(kept[0])), np.sort(simulation.weights))


def test_beside_the_best_model_of_this_run_stand_its_numbers_and_its_hash(tmp_path: Path) -> None:
    for number in (4, 1):  # the second takes no notice of the first
        keeper = KeepBest(tmp_path / "best.safetensors")
        best = list(simulate(experiment(number), callbacks=[keeper]))[keeper.best_round - 1]
        assert json.loads((tmp_path / "best.json").read_text()) == {
            "round": best.round,
            "accuracy": best.accuracy,
            "loss": best.loss,
            "model_sha256": best.model_sha256,
        }


@pytest.mark.parametrize(
    ("name", "there"),
    [("a.safetensors", "a.safetensors"), ("a.safetensors", "a.json"), ("a.yaml", "a.yaml")],
)
def test_the_best_model_replaces_no_file_of_others(tmp_path: Path, name: str, there: str) -> None:
    (tmp_path / there).write_text('{"mine": true}')
    with pytest.raises(FedmxError, match=re.escape(there)):
        next(simulate(experiment(), callbacks=[KeepBest(tmp_path / name)]).rounds())
    assert [one.name for one in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == '{"mine": true}'
    with pytest.raises(FedmxError, match="KeepBest: the run has no folder; give a file"):
        next(simulate(experiment(), callbacks=[KeepBest()]).rounds())


def test_a_best_model_that_was_undone_by_a_step_back_is_replaced(tmp_path: Path) -> None:
    keeper = KeepBest(tmp_path / "best.safetensors")
    keeper.on_begin(simulate(experiment()))
    step = StepBack(4, 1, "a broken model", (), ())
    again = replace(a_round(2, 0.25), stepped_back=(step,))
    seen = []
    for round in (a_round(1, 0.5), a_round(2), a_round(3, 0.75), again, a_round(3, 0.125)):
        keeper.on_round(round)
        seen.append((keeper.best_round, keeper.best_value))
    assert seen == [(1, 0.5), (1, 0.5), (3, 0.75), (2, 0.25), (2, 0.25)]
    keeper.on_round(replace(a_round(3, 0.125), stepped_back=(step,)))
    assert keeper.best_round == 2, "the best model is of an earlier round, which still counts"


@pytest.mark.parametrize("lost", ["best.safetensors", "best.json"])
def test_a_resumed_run_writes_the_best_model_again_if_one_of_its_files_is_gone(
    tmp_path: Path, lost: str
) -> None:
    folder = new_folder(tmp_path)
    ran(simulate(experiment(3), callbacks=[KeepBest()]), folder, until=2)
    (folder.path / lost).unlink()
    keeper = KeepBest()
    ran(simulate(experiment(3), callbacks=[keeper]), folder)
    assert keeper.best_round == 3
    assert json.loads((folder.path / "best.json").read_text())["round"] == 3
    assert (folder.path / "best.safetensors").exists()


# --- the progress bar -----------------------------------------------------------------------


def test_the_bar_shows_the_rounds_and_the_accuracy_and_goes_back_with_the_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bar, simulation = ProgressBar(), simulate(experiment(8))
    simulation.state = replace(simulation.state, round=2)
    bar.on_begin(simulation)
    assert re.search(r" 2/8 ", capsys.readouterr().err)
    shown = []
    for round in (a_round(3, 0.71236), a_round(5), a_round(4, 0.5)):
        bar.on_round(round)
        bar._bar.refresh()
        last = capsys.readouterr().err.split("\r")[-1]
        shown.append(re.findall(r" (\d/8) .*(accuracy [\d.]+%)", last))
    bar.on_end("done", "all 8 rounds were run")
    assert [one for (one,) in shown] == [
        ("3/8", "accuracy 71.24%"),
        ("5/8", "accuracy 71.24%"),
        ("4/8", "accuracy 50.00%"),
    ]
    assert capsys.readouterr().err.endswith("\n"), "the next line does not begin in the bar's"
    ProgressBar().on_end("failed", "it never began")
