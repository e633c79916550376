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
