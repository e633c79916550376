"""Training with several replicas: the same losses as one replica with the same batches, whatever does not divide."""

import contextlib
import dataclasses
import json
from typing import Any, ClassVar

import numpy as np
import pytest
from training_cases import CASES, IMAGES, LABELS, TOKENS, make, mlp
from typer.testing import CliRunner

import unisync as us
from unisync import _dispatch
from unisync.cli import app
from unisync.errors import ArgumentError, CollectiveMismatchError, NonFiniteError, StateError
from unisync.parallel import contract
from unisync.parallel.dealing import deal

THREADS = ("numpy", "torch")


@contextlib.contextmanager
def world_of(replicas):
    if replicas == 1:
        yield None
    else:
        with us.init_distributed(replicas=replicas) as world:
            yield world


def train(replicas, made, data, epochs=2, batch_size=16, **options):
    """The trainer after training in a world of so many replicas; `made` makes it there."""
    with world_of(replicas):
        trainer = made()
        assert trainer.replicas == replicas
        trainer.train(data, epochs=epochs, batch_size=batch_size, verbose=False, **options)
        return trainer, trainer.history.step_losses


@pytest.mark.parametrize("case", CASES)
def test_losses_are_those_of_one_replica(backend, case):
    """53 images: the last batch has 5 samples, so that of 4 replicas some hold no real sample."""
    made, data, tolerance = CASES[case]
    size = 8 if data[0] is TOKENS else 16
    trainer, expected = train(1, made, data, batch_size=size)
    for replicas in (2, 4):
        replicated, losses = train(replicas, made, data, batch_size=size)
        assert len(losses) == len(expected)
        assert losses == pytest.approx(expected, rel=tolerance), replicas
        for ours, theirs in zip(replicated.history, trainer.history, strict=True):
            assert ours.get("accuracy") == pytest.approx(theirs.get("accuracy"), rel=1e-6)


def test_batches_that_do_not_divide_and_batches_smaller_than_the_world(backend):
    """Own batches of 7, 3 and 1 samples, some with weights."""

    def batches():
        sizes = [7, 3, 1, 7]
        for i, size in enumerate(sizes):
            rows = slice(sum(sizes[:i]), sum(sizes[: i + 1]))
            weights = np.linspace(0.5, 2.0, size) if size == 3 else None
            yield us.data.Batch(IMAGES[rows], LABELS[rows], weights)

    def steps(replicas):
        with world_of(replicas):
            trainer = make(mlp(), dtype="float64")
            results = [trainer.step(batch) for batch in batches()]
            return [r.loss for r in results], [r.metrics["accuracy"] for r in results]

    expected = steps(1)
    for found in (steps(2), steps(4)):
        assert found[0] == pytest.approx(expected[0], rel=1e-10)
        assert found[1] == pytest.approx(expected[1], rel=1e-6)


def mean_square(outputs, targets):
    """A loss that knows nothing of weights."""
    return us.mean(us.square(outputs[:, 0] - us.astype(targets, us.dtype_of(outputs))))


def squares(outputs, targets):
    """One value per sample."""
    return us.square(outputs[:, 0] - us.astype(targets, us.dtype_of(outputs)))


@pytest.mark.parametrize("loss", [mean_square, squares])
def test_losses_without_weights(backend, loss):
    data = IMAGES[:22], LABELS[:22]  # batches of 16 and 6

    def made():
        return make(mlp(), loss=loss, dtype="float64", metrics={"square": squares})

    trainer, expected = train(1, made, data)
    replicated, losses = train(4, made, data)
    assert losses == pytest.approx(expected, rel=1e-10)
    assert replicated.history["square"] == pytest.approx(trainer.history["square"], rel=1e-10)


def test_synchronised_batch_norm_is_that_of_the_whole_batch(backend):
    def made():
        return make(mlp(us.nn.BatchNorm(16, sync=True)), dtype="float64")

    data = IMAGES + 100, LABELS  # far from 0, where sums of squares would lose the variance
    trainer, expected = train(1, made, data)
    for replicas in (2, 4):
        replicated, losses = train(replicas, made, data)
        assert losses == pytest.approx(expected, rel=1e-10)
        for name in ("running_mean", "running_var"):
            ours, theirs = (us.to_numpy(t.state["2"][name]) for t in (replicated, trainer))
            assert ours == pytest.approx(theirs, rel=1e-10), name


def test_batch_norm_alone_sees_its_own_rows_and_no_padding(backend):
    """Replica 0 of 2 sees rows 0 to 7; in the second batch replica 1 sees nothing, and nothing becomes NaN."""
    with world_of(2):
        trainer = make(us.nn.Sequential([us.nn.Flatten(), us.nn.BatchNorm(64), us.nn.Linear(64, 5)]))
        trainer.step((IMAGES[:16], LABELS[:16]))
        mean = IMAGES[:8].reshape(8, 64).mean(axis=0)
        assert us.to_numpy(trainer.state["1"]["running_mean"]) == pytest.approx(0.1 * mean, rel=1e-4, abs=1e-6)
        assert np.isfinite(trainer.step((IMAGES[:1], LABELS[:1])).loss)
        one = us.parallelize(trainer.model, params=trainer.params, state=trainer.state, loss=trainer.loss)
        assert trainer.evaluate((IMAGES, LABELS))["loss"] == pytest.approx(one.evaluate((IMAGES, LABELS))["loss"])


def test_evaluate_and_predict_in_order_over_uneven_batches(backend):
    with world_of(1):
        expected = make(mlp())
        figures, outputs = expected.evaluate((IMAGES, LABELS)), expected.predict(IMAGES)
    with world_of(4):
        trainer = make(mlp())
        for size in (7, 53):
            assert trainer.evaluate((IMAGES, LABELS), batch_size=size) == pytest.approx(figures, rel=1e-5)
        assert trainer.predict(IMAGES, batch_size=15) == pytest.approx(outputs, rel=1e-4, abs=1e-6)
        assert trainer.predict(IMAGES[:2]) == pytest.approx(outputs[:2], rel=1e-4, abs=1e-6)


def test_a_loss_that_is_not_finite_on_one_replica_updates_none(backend):
    with world_of(2):
        trainer = make(mlp(), dtype="float64")
        trainer.step((IMAGES[:16], LABELS[:16]))
        before = us.tree.map(lambda x: np.array(us.to_numpy(x)), trainer.params)
        bad = IMAGES[:16].copy()
        bad[15] = np.nan  # on replica 1
        with pytest.raises(NonFiniteError, match="step 2"):  # noqa: PT012
            trainer.step((bad, LABELS[:16]))
            trainer.step((IMAGES[:16], LABELS[:16]))
            trainer.train((IMAGES, LABELS), batch_size=16, verbose=False)
        assert trainer.steps == 1
        for a, b in zip(us.tree.leaves(before), us.tree.leaves(trainer.params), strict=True):
            assert np.array_equal(a, us.to_numpy(b))
        assert np.isfinite(trainer.step((IMAGES[:16], LABELS[:16])).loss)


def numbers(trainer):
    kept = trainer.params, trainer.state, trainer.optimizer_state
    return [np.array(us.to_numpy(x) if us.is_array(x) else x) for x in us.tree.leaves(kept)]


def test_training_resumes_bit_for_bit(backend, tmp_path):
    model = mlp(us.nn.BatchNorm(16, sync=True), us.nn.Dropout(0.3))
    adam = us.optim.adam(us.optim.warmup_cosine(0.02, 3, 12))
    data = IMAGES[:32], LABELS[:32]
    with world_of(2):
        whole = make(model, adam)
        whole.train(data, epochs=2, batch_size=16, verbose=False)
        first = make(model, adam)
        first.train(data, epochs=1, batch_size=16, verbose=False)
        first.save(tmp_path / "run")
        second = us.load(tmp_path / "run", optimizer=adam)
        second.train(data, epochs=1, batch_size=16, verbose=False)
        assert second.steps == whole.steps == 4
        for a, b in zip(numbers(whole), numbers(second), strict=True):
            assert np.array_equal(a, b)
        assert second.history.step_losses == whole.history.step_losses
    alone = us.load(tmp_path / "run", optimizer=adam)  # and on one replica, from the same file
    assert alone.train(data, batch_size=16, verbose=False)[0]["loss"] == pytest.approx(
        whole.history[-1]["loss"], rel=0.2
    )


def test_params_lent_stay_as_they_were(backend):
    with world_of(2):
        trainer = make(mlp())
        lent = trainer.params
        before = us.tree.map(lambda x: np.array(us.to_numpy(x)), lent)
        trainer.step((IMAGES[:16], LABELS[:16]))
        assert not np.array_equal(us.to_numpy(trainer.params["1"]["weight"]), before["1"]["weight"])
        for a, b in zip(us.tree.leaves(before), us.tree.leaves(lent), strict=True):
            assert np.array_equal(a, us.to_numpy(b))
        trainer.params = lent
        trainer.optimizer = us.optim.sgd(0.0)
        trainer.step((IMAGES[:16], LABELS[:16]))
        assert np.array_equal(us.to_numpy(trainer.params["1"]["weight"]), before["1"]["weight"])


def test_replicas_that_start_apart_are_told_before_the_first_step(backend):
    model = mlp()
    with us.init_distributed(replicas=2) as world:
        params, _ = model.init(0)
        odd = us.tree.map(lambda x: x, params)
        odd["1"] = {**odd["1"], "bias": odd["1"]["bias"] + 1e-6}
        apart = world.scatter(us.tree.map(lambda a, b: us.concat([a, b]), params, odd))
        trainer = make(model, params=apart)
        with pytest.raises(CollectiveMismatchError, match=r"params.*replica 1 has other values.*'1/bias'"):
            trainer.step((IMAGES[:16], LABELS[:16]))
        same = make(model, params=world.replicate(params))
        assert same.step((IMAGES[:16], LABELS[:16])).loss > 0


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({"w": np.zeros((2, 3), np.float32)}, r"float32\[2, 3\] at 'w', replica 0 has float32\[3, 2\]"),
        ({"w": np.zeros((3, 2))}, r"float64\[3, 2\] at 'w'"),
        ({"w": np.zeros((3, 2), np.float32), "b": np.zeros(1)}, r"other entries than replica 0 at \['b'\]"),
        ({"w": np.full((3, 2), 1e-30, np.float32)}, "other values"),
    ],
)
def test_what_the_contract_check_tells_apart(other, what):
    first = {"w": np.zeros((3, 2), np.float32)}
    contract.check("params", [first, first])
    with pytest.raises(CollectiveMismatchError, match=rf"replica 2 has .*{what}"):
        contract.check("params", [first, first, other])


@dataclasses.dataclass(frozen=True, repr=False)
class Breaks(us.nn.Layer):
    """A layer that raises on one replica once it is told to."""

    armed: ClassVar[bool] = False

    def init_params(self, key):
        return {"w": np.ones((1,))}

    def forward(self, params, x):
        if Breaks.armed and us.replica_index() == 1:
            raise ZeroDivisionError("the user's own error")
        return x * params["w"]


@pytest.mark.parametrize("name", THREADS)
def test_an_error_on_one_replica_is_the_error_of_the_step(name):
    """The others do not wait for ever, and training can go on."""
    with us.backend(name), us.init_distributed(replicas=2):
        trainer = make(us.nn.Sequential([us.nn.Flatten(), Breaks(), us.nn.Linear(64, 5)]))
        batch = IMAGES[:16], LABELS[:16]
        first = trainer.step(batch).loss
        Breaks.armed = True
        try:
            with pytest.raises(ZeroDivisionError, match="the user's own error"):
                trainer.step(batch)
        finally:
            Breaks.armed = False
        assert trainer.steps == 1
        assert trainer.step(batch).loss < first


def test_steps_without_sync_go_their_own_ways(backend):
    """Each replica trains on its half; the figures are those of the whole batch."""
    x, y = IMAGES[:16], LABELS[:16]
    traced = []

    def loss(outputs, targets, weights=None):
        traced.append(1)
        return us.losses.softmax_cross_entropy(outputs, targets, weights)

    halves = [make(mlp(), dtype="float64") for _ in range(2)]
    for i, half in enumerate(halves):
        half.step((x[8 * i : 8 * i + 8], y[8 * i : 8 * i + 8]))
    with us.init_distributed(replicas=2):
        trainer = make(mlp(), loss=loss, dtype="float64")
        whole = trainer.evaluate((x, y))["loss"]
        engine: Any = trainer._engine
        batch = (us.asarray(x.astype(np.float64)), us.asarray(y), None)
        figures = engine.step(*batch, sync=False)
        assert float(figures[0]) == pytest.approx(whole, rel=1e-10)
        assert bool(figures[1])
        for replica, half in enumerate(halves):
            ours = us.tree.leaves(engine._kept["params"][replica])
            for a, b in zip(ours, us.tree.leaves(half.params), strict=True):
                assert us.to_numpy(a) == pytest.approx(us.to_numpy(b), rel=1e-10, abs=1e-12)
        engine.step(*batch, sync=True)
        count = len(traced)
        for sync in (True, False, True, False):
            engine.step(*batch, sync=sync)
        assert us.current_backend() in THREADS or len(traced) == count, "a variant was compiled twice"


def test_replicas_draw_different_numbers(backend):
    """Both replicas see the same rows; what they drop differs, so without sync their params do."""
    rows = np.concatenate([IMAGES[:8]] * 2), np.concatenate([LABELS[:8]] * 2)
    with us.init_distributed(replicas=2):
        trainer = make(mlp(us.nn.Dropout(0.5)))
        trainer.step(rows)
        engine: Any = trainer._engine
        assert engine.keyed
        engine.step(us.asarray(rows[0]), us.asarray(rows[1]), None, sync=False)
        a, b = (us.to_numpy(engine._kept["params"][r]["1"]["weight"]) for r in range(2))
        assert not np.array_equal(a, b)


def test_a_trainer_does_not_outlive_its_world(backend):
    with us.init_distributed(replicas=2):
        trainer = make(mlp())
        loss = trainer.step((IMAGES[:16], LABELS[:16])).loss
    for use in (lambda: trainer.step((IMAGES[:16], LABELS[:16])), lambda: trainer.predict(IMAGES)):
        with pytest.raises(StateError, match="which has ended"):
            use()
    alone = make(mlp(), params=trainer.params)
    assert alone.step((IMAGES[:16], LABELS[:16])).loss < loss


def test_losses_that_wait_to_be_read_hold_no_gradients():
    """A loss travels in one buffer with the gradients; up to 32 steps wait to be read."""
    with us.backend("numpy"), us.init_distributed(replicas=2):
        trainer = make(mlp())
        trainer.step((IMAGES[:16], LABELS[:16]))
        loss: Any = trainer._engine.step(IMAGES[:16], LABELS[:16], None)[0]
        assert all(value.base is None or value.base.size == 1 for value in map(np.asarray, loss._values))


def test_the_command_trains_with_replicas(backend, tmp_path, monkeypatch):
    monkeypatch.setattr(_dispatch, "_chosen", None)  # what --backend sets

    def losses(replicas):
        file = tmp_path / f"{replicas}.json"
        options = ["--backend", backend, "--replicas", str(replicas), "--epochs", "1", "--batch-size", "500"]
        result = CliRunner().invoke(app, ["train", "mlp", *options, "--json", str(file)])
        assert result.exit_code == 0, result.output
        return json.loads(file.read_text())["step_losses"]

    try:
        assert losses(2) == pytest.approx(losses(1), rel=1e-4)
    finally:
        us.init_distributed(replicas=1).end()


def test_options_that_need_one_replica(backend):
    with us.init_distributed(replicas=2):
        with pytest.raises(ArgumentError, match="torch_compile"):
            make(mlp(), torch_compile=True)
        if us.current_backend() not in THREADS:
            with pytest.raises(ArgumentError, match="jit"):
                make(mlp(), jit=False)
    with us.init_distributed(mode={"data": 1, "model": 2}), pytest.raises(StateError, match="axes"):
        make(mlp())


def test_params_of_another_backend_than_the_world_s():
    with us.backend("numpy"):
        params, _ = mlp().init(0)
    with us.backend("torch"), us.init_distributed(replicas=2), pytest.raises(StateError, match="'torch', got 'numpy'"):
        make(mlp(), params=params)


@pytest.mark.parametrize("rows", [8, 7, 5, 2, 1])
@pytest.mark.parametrize("weighs", [True, False])
def test_parts_put_together_say_the_same_as_the_whole(rows, weighs):
    x = np.arange(rows, dtype=np.float64)
    parts = deal(x, x, None, 4, weighs)
    assert len({part.x.shape for part in parts}) == 1
    means = [np.average(p.x, weights=np.ones_like(p.x) if p.share == 0 else p.weights) for p in parts]
    shares = [1 / 4 if p.share is None else float(p.share) for p in parts]
    assert np.dot(means, shares) == pytest.approx(x.mean())
    assert all(p.weights is None for p in parts) or weighs


def test_a_trainer_is_neither_made_nor_used_by_replicas(backend):
    def make():
        return us.parallelize(us.nn.Linear(4, 3), loss=us.losses.softmax_cross_entropy, optimizer=us.optim.sgd(0.1))

    batch = np.ones((4, 4), np.float32), np.arange(4) % 3
    with us.init_distributed(replicas=2, device="cpu"):
        trainer = make()
        for fn in (lambda: trainer.step(batch).loss, lambda: make().step(batch).loss):
            with pytest.raises(StateError, match=r"inside us\.spmd"):
                us.spmd(fn)()
