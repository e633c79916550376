"""A loss or gradient that is not finite: training stops, names the step, and keeps the last good parameters."""

import numpy as np
import pytest

import unisync as us
from unisync.errors import NonFiniteError


def batches(n, bad=None):
    """Batches of four samples; the inputs of one of them hold a NaN."""
    draws = np.random.default_rng(0)
    made = [(draws.normal(size=(4, 3)).astype(np.float32), np.ones((4, 1), np.float32)) for _ in range(n)]
    if bad is not None:
        made[bad][0][1, 1] = np.nan
    return made


def trainer(loss=us.losses.mse, **options):
    return us.parallelize(us.nn.Linear(3, 1), loss=loss, **({"optimizer": us.optim.adam(0.01)} | options))


def numbers(made):
    leaves = us.tree.leaves((made.params, made.optimizer_state))
    return [np.array(us.to_numpy(leaf) if us.is_array(leaf) else leaf) for leaf in leaves]


@pytest.mark.parametrize(("bad", "jit"), [(0, True), (3, True), (49, True), (3, False)])
def test_the_step_is_named_and_nothing_after_it_counts(backend, bad, jit):
    good, made = trainer(jit=jit), trainer(jit=jit)
    for batch in batches(50)[:bad]:
        good.step(batch)
    with pytest.raises(NonFiniteError, match=rf"the loss became nan in step {bad + 1} \(epoch 1\)"):
        made.train(batches(50, bad), verbose=False)
    assert made.steps == bad
    assert made.history.step_losses == pytest.approx(good.history.step_losses)
    for ours, theirs in zip(numbers(made), numbers(good), strict=True):
        assert np.array_equal(ours, theirs)


def test_training_goes_on_after_it(backend):
    made = trainer()
    with pytest.raises(NonFiniteError):
        made.train(batches(5, 2), verbose=False)
    made.optimizer = us.optim.sgd(0.01)
    made.train(batches(3), verbose=False)
    assert made.steps == 5
    assert np.isfinite(made.history.step_losses).all()


@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
def test_a_gradient_that_is_not_finite(backend):
    """The square root of 0 is finite, its derivative is not."""
    made = trainer(lambda outputs, targets: us.mean(us.sqrt(us.abs(outputs * 0.0))))
    with pytest.raises(NonFiniteError, match=r"a gradient became NaN or infinite \(loss 0\) in step 1"):
        made.train(batches(1), verbose=False)


def steps_until_error(made, batch, most):
    for _ in range(most):
        made.step(batch)


def test_step_finds_it_within_32_steps(backend):
    made = trainer()
    made.step(batches(1)[0])
    with pytest.raises(NonFiniteError, match="in step 2 "):
        steps_until_error(made, batches(1, 0)[0], 32)
    assert made.steps == 1


def test_a_checkpoint_is_never_written_of_a_failed_step(backend, tmp_path):
    made = trainer()
    made.step(batches(1, 0)[0])
    with pytest.raises(NonFiniteError):
        made.save(tmp_path / "c")
    assert not (tmp_path / "c").exists()
    made.save(tmp_path / "c")
    assert us.load(tmp_path / "c").steps == 0


@pytest.mark.parametrize("weights", [[1.0, -1.0, 1.0], [0.0, 0.0, 0.0], [1.0, float("nan"), 1.0]])
def test_weights_of_a_users_batch(backend, weights):
    made = us.parallelize(us.nn.Linear(2, 2), loss=us.losses.mse, optimizer=us.optim.sgd(0.1))
    batch = (np.ones((3, 2), np.float32), np.ones((3, 2), np.float32), np.array(weights, np.float32))
    with pytest.raises(us.errors.DataError, match="`weights` of a batch must be numbers ≥ 0"):
        made.step(batch)


X, Y = np.ones((4, 2), np.float32), np.ones((4, 2), np.float32)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((X.tolist(), Y.tolist()), r"x and y must be arrays.*Try: \(np.asarray\(x\)"),
        ([X.tolist(), Y.tolist()], "x and y must be arrays"),
        ((X, Y.tolist()), "x and y must be arrays"),
        (((X, X), Y), "one array for x"),
        ({"image": X, "label": Y}, r"Try: trainer.train\(\(data\['image'\], data\['label'\]"),
        ({"x": X.tolist(), "y": Y.tolist()}, r"Try: np.asarray\(x\)"),
        ([{"image": X, "label": Y}], "got dict with"),
        ([(X.tolist(), Y.tolist())], r"Try: np.asarray\(x\)"),
    ],
)
def test_data_that_are_no_arrays(data, message):
    made = us.parallelize(us.nn.Linear(2, 2), loss=us.losses.mse, optimizer=us.optim.sgd(0.1))
    with pytest.raises(us.errors.DataError, match=message):
        made.train(data, verbose=False)


def test_two_batches_are_data():
    made = us.parallelize(us.nn.Linear(2, 2), loss=us.losses.mse, optimizer=us.optim.sgd(0.1))
    for batches in ([(X, Y), (X, Y)], ((X, Y), (X, Y)), [{"x": X, "y": Y}] * 2):
        assert len(made.train(batches, verbose=False).step_losses) == 2


def test_names_that_history_and_callbacks_do_not_have():
    made = us.parallelize(us.nn.Linear(2, 2), loss=us.losses.mse, optimizer=us.optim.sgd(0.1))
    history = made.train((X, Y), batch_size=4, validation=(X, Y), verbose=False)
    with pytest.raises(us.errors.UnknownNameError, match=r"got 'los'. Try: 'loss'"):
        history["los"]
    stopping = us.callbacks.EarlyStopping("val_loss")
    with pytest.raises(us.errors.UnknownNameError, match="Try: 'test_loss'"):
        made.train((X, Y), batch_size=4, validation=(X, Y), verbose=False, callbacks=[stopping])
    with pytest.raises(us.errors.UnknownNameError, match=r"validation=\(x, y\)"):
        made.train((X, Y), batch_size=4, verbose=False, callbacks=[stopping])
    with pytest.raises(us.errors.DataError, match=r"got list\. Try") as found:
        made.predict(X.tolist())
    assert len(str(found.value)) < 120
    with pytest.raises(us.errors.CheckpointError, match=r"^the params must be those of this model, got no weight"):
        made.params = {"bias": us.ones(2)}
