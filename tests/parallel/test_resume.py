"""Save and load: training goes on bit for bit, on another backend too, and what does not fit is refused."""

import dataclasses

import numpy as np
import pytest

import unisync as us
from unisync import checkpoint
from unisync.errors import CheckpointError

X = np.random.default_rng(0).normal(size=(32, 6)).astype(np.float32)
Y = np.arange(32) % 3

MODEL = us.nn.Sequential(
    [us.nn.Linear(6, 8), us.nn.BatchNorm(8), us.nn.ReLU(), us.nn.Dropout(0.2),
     us.nn.Linear(8, 3)]
)  # fmt: skip


def adam():
    return us.optim.adam(us.optim.warmup_cosine(0.02, 3, 12))


def trainer(**options):
    return us.parallelize(
        options.pop("model", MODEL), loss=us.losses.softmax_cross_entropy, optimizer=adam(), **options
    )


def train(made, epochs, **options):
    made.train((X, Y), epochs=epochs, batch_size=16, verbose=False, **options)
    return made


def numbers(made):
    kept = made.params, made.state, made.optimizer_state
    return {
        path: np.array(us.to_numpy(leaf) if us.is_array(leaf) else leaf)
        for path, leaf in zip(us.tree.paths(kept), us.tree.leaves(kept), strict=True)
    }


def assert_same(one, two, exactly=True):
    ours, theirs = numbers(one), numbers(two)
    assert ours.keys() == theirs.keys()
    for path, value in ours.items():
        if exactly:
            assert np.array_equal(value, theirs[path]), path
        else:
            assert value == pytest.approx(theirs[path], rel=1e-3, abs=1e-5), path


def seconds_left_out(history):
    return [{k: v for k, v in record.items() if k != "seconds"} for record in history]


def test_four_epochs_are_two_and_two(backend, tmp_path):
    whole = train(trainer(seed=3), 4)
    train(trainer(seed=3), 2).save(tmp_path / "c")
    for resumed in (us.load(tmp_path / "c", optimizer=adam()), trainer(seed=99)):
        if resumed.seed == 99:
            resumed.restore(tmp_path / "c")
        assert (resumed.epochs, resumed.steps, resumed.seed) == (2, 4, 3)
        train(resumed, 2)
        assert_same(resumed, whole)
        assert resumed.history.step_losses == whole.history.step_losses
        assert seconds_left_out(resumed.history) == seconds_left_out(whole.history)


def test_from_the_middle_of_an_epoch(backend, tmp_path):
    whole = train(trainer(), 2)

    def save_at_third(made, result):
        if made.steps == 3:
            made.save(tmp_path / "c")

    train(trainer(), 2, callbacks=[us.callbacks.on_step(save_at_third)])
    resumed = us.load(tmp_path / "c", optimizer=adam())
    assert (resumed.epochs, resumed.steps) == (1, 3)
    train(resumed, 1)
    assert_same(resumed, whole)
    assert seconds_left_out(resumed.history) == seconds_left_out(whole.history)


def test_on_another_backend(backend, tmp_path):
    with us.backend("numpy"):
        saved = train(trainer(model=us.nn.Sequential([us.nn.Linear(6, 8), us.nn.ReLU(), us.nn.Linear(8, 3)])), 1)
        saved.save(tmp_path / "c")
        train(saved, 1)
    resumed = us.load(tmp_path / "c", optimizer=adam())
    assert resumed.backend == backend
    train(resumed, 1)
    assert_same(resumed, saved, exactly=False)


def test_bfloat16(backend, tmp_path):
    made = us.parallelize(us.nn.Linear(6, 3), loss=us.losses.softmax_cross_entropy, dtype="bfloat16")
    made.save(tmp_path / "c")
    back = us.load(tmp_path / "c")
    assert us.dtype_of(back.params["weight"]) == "bfloat16"
    assert np.array_equal(us.to_numpy(back.params["weight"]), us.to_numpy(made.params["weight"]))


def test_without_an_optimizer_until_it_is_given(backend, tmp_path):
    train(trainer(), 1).save(tmp_path / "c")
    loaded = us.load(tmp_path / "c")
    assert loaded.loss is us.losses.softmax_cross_entropy
    assert set(loaded.evaluate((X, Y))) == {"loss", "accuracy"}
    loaded.save(tmp_path / "again")
    late = us.load(tmp_path / "again")
    late.optimizer = adam()
    assert_same(train(late, 1), train(trainer(), 2))


@dataclasses.dataclass(frozen=True)
class Scale(us.nn.Layer):
    features: int

    def init_params(self, key):
        return {"scale": np.ones(self.features)}

    def forward(self, params, x):
        return x * params["scale"]


def test_a_layer_of_ones_own_must_be_given(tmp_path):
    model = us.nn.Sequential([Scale(6), us.nn.Linear(6, 3)])
    trainer(model=model).save(tmp_path / "c")
    with pytest.raises(CheckpointError, match=r"Scale\(features=6\).*us\.load\(path, model=model\)"):
        us.load(tmp_path / "c")
    assert us.load(tmp_path / "c", model).model is model


def test_what_does_not_fit(tmp_path):
    train(trainer(), 1).save(tmp_path / "c")
    with pytest.raises(CheckpointError, match="params must be those of this model"):
        us.load(tmp_path / "c", us.nn.Linear(6, 3))
    with pytest.raises(CheckpointError, match="optimizer_state must be those of this model"):
        us.load(tmp_path / "c", optimizer=us.optim.sgd(0.1, momentum=0.9))
    wide = us.nn.Sequential([us.nn.Linear(6, 3)])
    trainer(model=wide).save(tmp_path / "d")
    with pytest.raises(CheckpointError, match=r"params/0/weight must have shape \(3, 7\), got \(3, 6\)"):
        us.load(tmp_path / "d", us.nn.Sequential([us.nn.Linear(7, 3)]))
    checkpoint.write(tmp_path / "e", {"mine": {}}, {})
    with pytest.raises(CheckpointError, match="has layers that unisync does not have"):
        us.load(tmp_path / "e")
    with pytest.raises(CheckpointError, match="is not a trainer's checkpoint"):
        us.load(tmp_path / "e", MODEL)
