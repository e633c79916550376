"""Callbacks: when they are called, early stopping, and what training prints."""

import numpy as np
import pytest

import unisync as us
from unisync.errors import ArgumentError, ArgumentTypeError, UnknownNameError
from unisync.parallel.progress import Bar, Lines, Silent, reporter

X = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
Y = np.arange(20) % 2


def trainer(learning_rate=0.1):
    return us.parallelize(
        us.nn.Linear(4, 2), loss=us.losses.softmax_cross_entropy, optimizer=us.optim.sgd(learning_rate)
    )


def train(made, callbacks, epochs=3):
    return made.train((X, Y), epochs=epochs, batch_size=8, callbacks=callbacks, verbose=False)


def test_functions_per_step_and_per_epoch(backend):
    steps, epochs = [], []
    calls = [
        us.callbacks.on_step(lambda made, result: steps.append((made.steps, result.loss))),
        us.callbacks.on_epoch(lambda made, record: epochs.append((made.epochs, record["loss"]))),
    ]
    history = train(trainer(), calls)
    assert [step for step, _ in steps] == list(range(1, 10))
    assert [loss for _, loss in steps] == history.step_losses
    assert epochs == [(record["epoch"], record["loss"]) for record in history]


def test_a_class_of_ones_own_is_called_in_order():
    seen = []

    class Spy(us.callbacks.Callback):
        def on_start(self, trainer):
            seen.append("start")

        def on_step(self, trainer, result):
            seen.append("step")

        def on_epoch(self, trainer, record):
            seen.append("epoch")
            record["mine"] = 1

        def on_end(self, trainer):
            seen.append("end")

    made = trainer()
    history = train(made, Spy(), epochs=2)
    assert seen == ["start", *["step"] * 3, "epoch", *["step"] * 3, "epoch", "end"]
    assert history["mine"] == made.history["mine"] == [1, 1]


def test_stop_ends_after_the_step():
    made = trainer()
    stop = us.callbacks.on_step(lambda trainer, result: trainer.stop() if trainer.steps == 4 else None)
    history = train(made, [stop])
    assert (made.steps, len(history)) == (4, 2)
    assert len(train(made, [], epochs=1)) == 1


def test_early_stopping_restores_the_best(backend):
    """The watched value is scripted: best in epoch 2, and never again."""
    script = iter([1.0, 0.5, 0.9, 0.6, 0.7])
    kept = {}

    def record(made, record):
        record["watched"] = next(script)
        kept[record["epoch"]] = np.array(us.to_numpy(made.params["weight"]))

    made = trainer()
    stopping = us.callbacks.EarlyStopping("watched", patience=2, mode="min")
    history = train(made, [us.callbacks.on_epoch(record), stopping], epochs=5)
    assert len(history) == 4
    assert (stopping.best, stopping.best_epoch) == (0.5, 2)
    assert np.array_equal(us.to_numpy(made.params["weight"]), kept[2])
    made.step((X, Y))


@pytest.mark.parametrize(
    ("options", "values", "epochs"),
    [
        ({"monitor": "accuracy", "patience": 1}, [0.1, 0.3, 0.3, 0.9], 3),
        ({"monitor": "my_loss", "patience": 1, "min_delta": 0.1}, [1.0, 0.95, 0.5], 2),
        ({"monitor": "x", "mode": "max", "patience": 3}, [3.0, 1.0, 2.0, 1.0, 9.0], 4),
    ],
)
def test_early_stopping_modes(options, values, epochs):
    script = iter(values)
    calls = [
        us.callbacks.on_epoch(lambda made, record: record.update({options["monitor"]: next(script)})),
        us.callbacks.EarlyStopping(**options),
    ]
    assert len(train(trainer(), calls, epochs=len(values))) == epochs


def test_unusable_callbacks():
    with pytest.raises(ArgumentTypeError, match=r"us\.callbacks\.on_epoch"):
        train(trainer(), [print])
    with pytest.raises(UnknownNameError, match="Try: 'loss'"):
        train(trainer(), [us.callbacks.EarlyStopping("los")])
    with pytest.raises(UnknownNameError, match="Try: 'max'"):
        us.callbacks.EarlyStopping(mode="maxi")
    with pytest.raises(ArgumentError, match="`patience` must be at least 0"):
        us.callbacks.EarlyStopping(patience=-1)


def test_lines(capsys):
    made = trainer()
    made.train((X, Y), epochs=2, batch_size=8, validation=(X, Y))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("epoch 2/2  loss 0.")
    for word in ("accuracy ", "test_loss ", "test_accuracy ", " s"):
        assert word in lines[0]
    train(made, [])
    assert capsys.readouterr().out == ""


def test_a_bar_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    bar = reporter(None, 2)
    try:
        assert isinstance(bar, Bar)
        bar.start(1, 3)
        bar.step()
        bar.end({"epoch": 1, "loss": 0.5, "seconds": 1.0})
    finally:
        bar.close()
    assert "epoch 1/2  loss 0.5000  1.00 s" in capsys.readouterr().out
    assert type(reporter(False, 2)) is Silent
    assert type(reporter(True, 2)) is Lines
