"""The trainer: the same losses on every backend, tails counted exactly, lazy results, lent params that stay valid."""

import dataclasses
import functools

import numpy as np
import pytest

import unisync as us
from unisync.errors import ArgumentError, ArgumentTypeError, DataError, StateError


def digits_like(n=100, classes=10, seed=0):
    """Noisy copies of ten patterns, and which pattern each is."""
    draws = np.random.default_rng(seed)
    y = draws.integers(0, classes, n)
    patterns = np.random.default_rng(1).normal(size=(classes, 8, 8, 1))
    return (patterns[y] + draws.normal(size=(n, 8, 8, 1))).astype(np.float32), y


def mlp(*more):
    return us.nn.Sequential([us.nn.Flatten(), us.nn.Linear(64, 32), us.nn.ReLU(), *more, us.nn.Linear(32, 10)])


def trainer(model=None, **options):
    defaults = {"loss": us.losses.softmax_cross_entropy, "optimizer": us.optim.sgd(0.05, momentum=0.9)}
    return us.parallelize(mlp() if model is None else model, **(defaults | options))


@functools.cache
def reference_losses():
    with us.backend("numpy"):
        return trainer().train(digits_like(), epochs=3, batch_size=32, verbose=False).step_losses


def test_losses_equal_on_every_backend(backend):
    made = trainer()
    history = made.train(digits_like(), epochs=3, batch_size=32, verbose=False)
    assert made.backend == backend
    assert made.steps == len(history.step_losses) == 12
    assert made.epochs == len(history) == 3
    assert history.step_losses == pytest.approx(reference_losses(), rel=1e-4)
    assert history[-1]["loss"] < history[0]["loss"]
    assert us.namespace(made.params["1"]["weight"]).NAME == backend  # noqa: SIM300


def test_losses_of_adam_in_float64(backend):
    def run():
        made = trainer(optimizer=us.optim.adam(1e-2), dtype="float64")
        return made.train(digits_like(), epochs=3, batch_size=32, verbose=False).step_losses

    with us.backend("numpy"):
        expected = run()
    assert run() == pytest.approx(expected, rel=1e-9)


def test_padded_tail_trains_like_a_short_one(backend):
    """BatchNorm's statistics and the loss leave out the rows that fill up the last batch."""
    x, y = digits_like(70)
    model = mlp(us.nn.BatchNorm(32))
    padded, short = trainer(model), trainer(model)
    padded.train((x, y), epochs=2, batch_size=32, verbose=False)
    for epoch in range(2):
        for batch in us.data.Loader(x, y, 32, pad=False).batches(epoch):
            short.step(batch)
    assert padded.history.step_losses == pytest.approx(short.history.step_losses, rel=1e-4)
    for name in ("running_mean", "running_var"):
        assert us.to_numpy(padded.state["3"][name]) == pytest.approx(us.to_numpy(short.state["3"][name]), rel=1e-4)


def test_evaluate_and_predict_are_exact_over_uneven_batches(backend):
    x, y = digits_like(53)
    made = trainer()
    whole = made.evaluate((x, y), batch_size=1000)
    for size in (1, 7, 53):
        assert made.evaluate((x, y), batch_size=size) == pytest.approx(whole, rel=1e-5)
    outputs = made.predict(x, batch_size=20)
    assert outputs.shape == (53, 10)
    assert outputs == pytest.approx(made.predict(x), rel=1e-4, abs=1e-6)
    assert (outputs.argmax(-1) == y).mean() == pytest.approx(whole["accuracy"])


def test_epoch_record_is_the_mean_over_samples(backend):
    x, y = digits_like(50)
    made = trainer(optimizer=us.optim.sgd(0.0))
    record = made.train((x, y), batch_size=32, validation=(x, y), verbose=False)[0]
    expected = made.evaluate((x, y))
    assert record["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    assert record["accuracy"] == pytest.approx(expected["accuracy"], rel=1e-5)
    assert record["test_loss"] == pytest.approx(expected["loss"], rel=1e-5)
    assert set(record) == {"epoch", "loss", "accuracy", "test_loss", "test_accuracy", "seconds"}


def test_step_results_are_lazy_and_of_the_params_before(backend):
    x, y = digits_like(32)
    made = trainer()
    before = made.evaluate((x, y))
    results = [made.step((x, y)) for _ in range(3)]
    assert made._log.losses == []
    assert results[0].loss == pytest.approx(before["loss"], rel=1e-5)
    assert results[0].metrics["accuracy"] == pytest.approx(before["accuracy"])
    assert isinstance(results[1].loss, float)
    assert made.history.step_losses == pytest.approx([r.loss for r in results], rel=1e-6)


def test_lent_trees_stay_as_they_are(backend):
    x, y = digits_like(32)
    made = trainer(optimizer=us.optim.adam(0.01))
    given, _ = mlp().init(1)
    other = trainer(params=given, optimizer=us.optim.adam(0.01))
    kept = made.params, made.optimizer_state, given
    copies = us.tree.map(lambda leaf: np.array(us.to_numpy(leaf)) if us.is_array(leaf) else leaf, kept)
    for _ in range(3):
        made.step((x, y))
        other.step((x, y))
        made.params  # noqa: B018
    for leaf, copy in zip(us.tree.leaves(kept), us.tree.leaves(copies), strict=True):
        assert np.array_equal(us.to_numpy(leaf) if us.is_array(leaf) else leaf, copy)
    assert not np.array_equal(us.to_numpy(made.params["1"]["weight"]), copies[0]["1"]["weight"])


@dataclasses.dataclass(frozen=True)
class Remembers(us.nn.Layer):
    """A layer whose state is the weight of the step before, the very array."""

    def init_params(self, key):
        return {"weight": np.ones(10)}

    def init_state(self):
        return {"before": np.zeros(10)}

    def apply(self, params, state, x, train=False, key=None):
        return x * params["weight"], {"before": params["weight"]}


def test_params_that_a_model_keeps_are_not_overwritten(backend):
    made = trainer(us.nn.Sequential([us.nn.Flatten(), us.nn.Linear(64, 10), Remembers()]))
    for _ in range(3):
        before = us.to_numpy(made.params["2"]["weight"]).copy()
        made.step(digits_like(8))
        made.step(digits_like(8))
        middle = us.to_numpy(made.state["2"]["before"])
        assert not np.array_equal(middle, before)
        assert not np.array_equal(middle, us.to_numpy(made.params["2"]["weight"]))


def test_dropout_draws_by_seed_and_step(backend):
    x, y = digits_like(64)

    def losses(seed):
        made = trainer(mlp(us.nn.Dropout(0.5)), seed=seed, optimizer=us.optim.sgd(0.0))
        return [made.step((x, y)).loss for _ in range(3)]

    first = losses(0)
    assert losses(0) == first
    assert len(set(first)) == 3
    plain = trainer(mlp(us.nn.Dropout(0.5)), optimizer=us.optim.sgd(0.0))
    assert plain.evaluate((x, y)) == plain.evaluate((x, y))


def test_a_key_is_made_only_for_models_that_draw(backend):
    x, y = digits_like(32)
    plain, random = trainer(), trainer(mlp(us.nn.Dropout(0.5)))
    for made in (plain, random):
        made.step((x, y))
    assert (plain._engine.keyed, random._engine.keyed) == (False, True)


def test_a_model_of_the_narrow_interface(backend):
    """Any object with init and apply trains; the state is carried along, Python numbers in it too."""

    class Line:
        def init(self, key):
            return {"w": us.asarray([[0.0]])}, {"calls": 0}

        def apply(self, params, state, x, train, key):
            return x @ params["w"], {"calls": state["calls"] + 1 if train else state["calls"]}

    x = np.linspace(-1, 1, 20, dtype=np.float32)[:, None]
    made = us.parallelize(Line(), loss=us.losses.mse, optimizer=us.optim.sgd(0.5))
    made.train((x, 3 * x), epochs=20, batch_size=20, verbose=False)
    assert float(us.to_numpy(made.params["w"])[0, 0]) == pytest.approx(3, abs=0.05)
    assert int(made.state["calls"]) == 20
    assert made.metrics == {}


@pytest.mark.parametrize("form", ["weights", "per sample", "scalar"])
def test_a_users_loss(backend, form):
    """However the loss treats samples, the uneven tail counts as what it is."""

    def per_sample(outputs, targets):
        return us.square(outputs - targets)

    losses = {
        "weights": us.losses.mse,
        "per sample": per_sample,
        "scalar": lambda outputs, targets: us.mean(per_sample(outputs, targets)),
    }
    x = np.linspace(-1, 1, 10, dtype=np.float32)[:, None]
    made = us.parallelize(us.nn.Linear(1, 1), loss=losses[form], optimizer=us.optim.sgd(0.1))
    expected = us.parallelize(us.nn.Linear(1, 1), loss=us.losses.mse, optimizer=us.optim.sgd(0.1))
    for one in (made, expected):
        one.train((x, 2 * x), epochs=2, batch_size=4, verbose=False)
    assert made.history.step_losses == pytest.approx(expected.history.step_losses, rel=1e-5)
    assert made.evaluate((x, 2 * x), 3) == pytest.approx(expected.evaluate((x, 2 * x)), rel=1e-5)


def test_weights_of_the_users_own(backend):
    x, y = digits_like(8)
    made = trainer(optimizer=us.optim.sgd(0.0))
    weights = np.array([1, 1, 1, 0, 0, 0, 0, 0], np.float32)
    assert made.step((x, y, weights)).loss == pytest.approx(made.evaluate((x[:3], y[:3]))["loss"], rel=1e-5)
    scalar = trainer(loss=lambda outputs, targets: us.mean(outputs))
    with pytest.raises(ArgumentError, match="must take `weights`"):
        scalar.step((x, y, weights))


def test_a_users_metric(backend):
    def top2(outputs, targets):
        best = us.argsort(outputs, axis=-1)[:, -2:]
        return us.any(best == us.expand_dims(targets, axis=1), axis=1)

    x, y = digits_like(50)
    made = trainer(metrics={"top2": top2, "accuracy": us.metrics.accuracy})
    order = np.argsort(made.predict(x), axis=-1)[:, -2:]
    expected = (order == y[:, None]).any(axis=1).mean()
    assert made.evaluate((x, y), 32)["top2"] == pytest.approx(expected)
    record = made.train((x, y), batch_size=32, verbose=False)[0]
    assert list(record) == ["epoch", "loss", "top2", "accuracy", "seconds"]
    made.metrics = {"mean": lambda outputs, targets: us.mean(outputs)}
    with pytest.raises(ArgumentError, match="metric 'mean' must return one value per sample"):
        made.step((x, y))


def test_loss_and_optimizer_may_come_later(backend):
    x, y = digits_like(32)
    made = us.parallelize(mlp())
    with pytest.raises(StateError, match=r"must have a loss to train.*Try: trainer\.loss = "):
        made.step((x, y))
    made.loss = us.losses.softmax_cross_entropy
    assert set(made.evaluate((x, y))) == {"loss", "accuracy"}
    with pytest.raises(StateError, match=r"must have an optimizer to train.*Try: trainer\.optimizer = "):
        made.train((x, y), batch_size=32)
    made.optimizer = us.optim.sgd(0.1)
    first = made.step((x, y)).loss
    made.optimizer = us.optim.adam(0.01)
    assert made.step((x, y)).loss < first


def test_floats_take_the_dtype_of_the_params(backend):
    x, y = digits_like(32)
    single, double = trainer(), trainer(dtype="float64")
    single.step((x.astype(np.float64), y))
    double.step((x, y))
    assert us.dtype_of(single.params["1"]["weight"]) == "float32"
    assert us.dtype_of(double.params["1"]["weight"]) == "float64"
    assert us.dtype_of(us.tree.leaves(double.params)[0]) == "float64"


def test_without_jit_the_same(backend):
    x, y = digits_like(40)
    fast, slow = trainer(), trainer(jit=False)
    for made in (fast, slow):
        made.train((x, y), batch_size=32, verbose=False)
    assert slow.history.step_losses == pytest.approx(fast.history.step_losses, rel=1e-4)


def test_the_trainers_backend_holds_whatever_is_current(backend):
    x, y = digits_like(32)
    made = trainer()
    with us.backend("numpy"):
        made.step((x, y))
        assert set(made.evaluate((x, y))) == {"loss", "accuracy"}
    assert us.namespace(us.tree.leaves(made.params)[0]).NAME == backend  # noqa: SIM300


@pytest.mark.parametrize(
    ("data", "options", "error", "message"),
    [
        ((np.zeros((0, 8, 8, 1), np.float32), np.zeros(0, int)), {}, DataError, "at least one sample"),
        ((np.zeros((5, 8, 8, 1), np.float32), np.zeros(4, int)), {}, DataError, "got 5 and 4"),
        (digits_like(10), {"batch_size": 64}, ArgumentError, "at most the number of samples, 10, got 64"),
        (digits_like(10), {"batch_size": 0}, ArgumentError, "`batch_size` must be at least 1, got 0"),
        (digits_like(10), {"batch_size": -3}, ArgumentError, "`batch_size` must be at least 1, got -3"),
        (digits_like(10), {"epochs": 0}, ArgumentError, "`epochs` must be at least 1"),
        ("digits", {}, DataError, "iterable of batches, got str"),
        (np.zeros((5, 64)), {}, DataError, "iterable of batches, got ndarray"),
        ([], {}, DataError, "at least one batch"),
        ([(1, 2, 3, 4)], {}, DataError, "a batch must be"),
        ((digits_like(10)[0], np.zeros(10)), {"batch_size": 5}, DataError, "must be integers, got float"),
        ((digits_like(10)[0], np.full(10, 10)), {"batch_size": 5}, DataError, r"lie in \[0, 10\)"),
        ((digits_like(10)[0], np.arange(10) - 1), {"batch_size": 5}, DataError, r"lie in \[0, 10\)"),
    ],
)
def test_unusable_data(backend, data, options, error, message):
    with pytest.raises(error, match=message):
        trainer().train(data, verbose=False, **options)


def test_bad_label_in_a_later_batch_of_an_iterable(backend):
    x, y = digits_like(8)
    made = trainer()
    with pytest.raises(DataError, match="row 2"):
        made.train([(x, y), (x, np.where(np.arange(8) == 2, 11, y))], verbose=False)
    assert made.steps == 1


def test_wrong_shape_into_a_layer_names_it(backend):
    x, y = digits_like(8)
    with pytest.raises(us.errors.ShapeError, match=r"Linear\(64, 32\).*\(8, 16\)"):
        trainer().step((x[:, :4, :4], y))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"loss": "mse"}, ArgumentTypeError, "`loss` must be a function"),
        ({"optimizer": 0.1}, ArgumentTypeError, "`optimizer` must be of us.optim"),
        ({"metrics": [len]}, ArgumentTypeError, "`metrics` must be a dict"),
        ({"metrics": {"loss": len}}, ArgumentError, "must not be named 'loss'"),
        ({"model": len}, ArgumentTypeError, "`model` must have a method init"),
    ],
)
def test_unusable_arguments(options, error, message):
    with pytest.raises(error, match=message):
        trainer(**options)


@dataclasses.dataclass(frozen=True)
class Scale(us.nn.Layer):
    features: int

    def init_params(self, key):
        return {"scale": np.ones(self.features)}

    def forward(self, params, x):
        return x * params["scale"]


def test_a_layer_of_the_users_own(backend):
    x, y = digits_like(32)
    made = trainer(mlp(Scale(32)))
    first = made.step((x, y)).loss
    assert made.step((x, y)).loss < first
