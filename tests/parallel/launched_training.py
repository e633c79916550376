"""What training over processes promises; `test_processes.py` runs this file in launched worlds of every engine.

Every process runs these tests, as one replica. What is expected comes from a trainer without a world in the same
process, which trains on the whole batches.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest
from training_cases import CASES, IMAGES, LABELS, TOKENS, make, mlp

import unisync as us
from unisync.errors import (
    CheckpointError,
    CollectiveMismatchError,
    DataError,
    NonFiniteError,
)

BATCH = IMAGES[:16], LABELS[:16]


@pytest.fixture(scope="module", autouse=True)
def joined():
    """Some frameworks must hear of the other processes before they make an array."""
    us.init_distributed().end()


@contextlib.contextmanager
def launched():
    """The world of all processes."""
    with us.init_distributed() as world:
        assert world.process_count == world.size > 1
        yield world


@pytest.fixture
def world():
    with launched() as world:
        yield world


def numbers(trainer):
    kept = trainer.params, trainer.state, trainer.optimizer_state
    return [np.array(us.to_numpy(x) if us.is_array(x) else x) for x in us.tree.leaves(kept)]


def same_everywhere(values):
    """Whether all processes have the same numbers, bit for bit."""
    return all(
        all(np.array_equal(a, b) for a, b in zip(values, other, strict=True)) for other in us.all_gather_object(values)
    )


@pytest.mark.parametrize("case", CASES)
def test_losses_are_those_of_one_replica(case):
    """53 images: the last batch has 5 samples, so that of 4 replicas some hold no real sample."""
    made, data, tolerance = CASES[case]
    size = 8 if data[0] is TOKENS else 16
    alone = made()
    expected = alone.train(data, epochs=2, batch_size=size, verbose=False)
    with launched() as world:
        trainer = made()
        assert trainer.replicas == world.size
        found = trainer.train(data, epochs=2, batch_size=size, verbose=False)
        assert found.step_losses == pytest.approx(expected.step_losses, rel=tolerance)
        assert found["accuracy"] == pytest.approx(expected["accuracy"], rel=1e-6)
        assert same_everywhere(numbers(trainer))
        figures = trainer.evaluate(data, batch_size=7)
        assert figures == pytest.approx(alone.evaluate(data, batch_size=7), rel=max(tolerance, 1e-6))
        outputs = trainer.predict(data[0], batch_size=5)
        np.testing.assert_allclose(outputs, alone.predict(data[0]), rtol=1e-3, atol=1e-5)


def test_synchronised_batch_norm_is_that_of_the_whole_batch():
    data = IMAGES + 100, LABELS  # far from 0, where sums of squares would lose the variance

    def made():
        return make(mlp(us.nn.BatchNorm(16, sync=True)), dtype="float64")

    alone = made()
    expected = alone.train(data, batch_size=16, verbose=False).step_losses
    with launched():
        trainer = made()
        assert trainer.train(data, batch_size=16, verbose=False).step_losses == pytest.approx(expected, rel=1e-10)
        for name in ("running_mean", "running_var"):
            ours, theirs = (us.to_numpy(t.state["2"][name]) for t in (trainer, alone))
            assert ours == pytest.approx(theirs, rel=1e-10), name


def test_batches_of_each_process_s_own(world):
    """Sharded data: the rows of a batch are here and there, in unequal numbers; the sum of all is what counts."""
    r, n = world.process_index, world.size
    sizes = [5 + i for i in range(n)]
    begin, end = sum(sizes[:r]), sum(sizes[: r + 1])
    if world.backend == "jax":  # one shape for all, filled up where a batch is short
        begin, end = 6 * r, 6 * r + 6
        sizes = [6] * n
    whole = IMAGES[: sum(sizes)], LABELS[: sum(sizes)]
    trainer = make(mlp(), dtype="float64")
    steps = [trainer.step((IMAGES[begin:end], LABELS[begin:end]), sharded=True) for _ in range(3)]
    figures = trainer.evaluate((IMAGES[begin:end], LABELS[begin:end]), batch_size=4, sharded=True)
    weight = us.all_gather_object(end - begin)
    world.end()
    alone = make(mlp(), dtype="float64")
    expected = [alone.step(whole) for _ in range(3)]
    assert [s.loss for s in steps] == pytest.approx([s.loss for s in expected], rel=1e-10)
    assert [s.metrics["accuracy"] for s in steps] == pytest.approx([s.metrics["accuracy"] for s in expected])
    assert figures == pytest.approx(alone.evaluate(whole), rel=1e-6)
    assert weight == sizes


def test_training_on_sharded_data(world):
    """Each process has its own 9 samples, of which the second batch of 5 is filled up."""
    mine = slice(9 * world.process_index, 9 * world.process_index + 9)
    trainer = make(mlp(), dtype="float64")
    data = IMAGES[mine], LABELS[mine]
    history = trainer.train(data, epochs=2, batch_size=5, validation=data, verbose=False, sharded=True)
    parts = us.all_gather_object([np.arange(len(LABELS))[mine][rows] for rows in (slice(0, 5), slice(5, 9))])
    assert same_everywhere([np.array(history.step_losses), np.array(history["loss"]), np.array(history["test_loss"])])
    shuffled = make(mlp(), dtype="float64")
    unshuffled = shuffled.train(data, epochs=1, batch_size=5, verbose=False, shuffle=False, sharded=True)
    world.end()
    alone = make(mlp(), dtype="float64")
    expected = [
        alone.step((IMAGES[np.concatenate(rows)], LABELS[np.concatenate(rows)])).loss
        for rows in zip(*parts, strict=True)
    ]
    assert unshuffled.step_losses == pytest.approx(expected, rel=1e-10)
    assert unshuffled[0]["loss"] == pytest.approx(np.average(expected, weights=[5, 4]), rel=1e-10)


def test_weights_and_losses_that_know_none_in_sharded_batches(world):
    r, n = world.process_index, world.size

    def mean_square(outputs, targets):
        return us.mean(us.square(outputs[:, 0] - us.astype(targets, us.dtype_of(outputs))))

    weights = np.linspace(0.5, 2.0, 4 * n)
    mine = slice(4 * r, 4 * r + 4)
    weighed = make(mlp(), dtype="float64").step((IMAGES[mine], LABELS[mine], weights[mine]), sharded=True).loss
    plain = make(mlp(), loss=mean_square, dtype="float64").step((IMAGES[mine], LABELS[mine]), sharded=True).loss
    world.end()
    x, y = IMAGES[: 4 * n], LABELS[: 4 * n]
    assert weighed == pytest.approx(make(mlp(), dtype="float64").step((x, y, weights)).loss, rel=1e-10)
    assert plain == pytest.approx(make(mlp(), loss=mean_square, dtype="float64").step((x, y)).loss, rel=1e-10)


def test_sharded_data_of_unequal_lengths_are_told_before_the_first_step(world):
    rows = 8 + 8 * (world.process_index == 1)
    trainer = make(mlp())
    with pytest.raises(DataError, match=r"same number of batches in all processes, got \[1, 2"):
        trainer.train((IMAGES[:rows], LABELS[:rows]), batch_size=8, sharded=True, verbose=False)
    assert trainer.step(BATCH).loss > 0


def test_all_start_from_the_params_of_replica_0(world):
    params, _ = mlp().init(world.process_index)
    theirs, _ = mlp().init(0)
    trainer = make(mlp(), params=params)
    for a, b in zip(us.tree.leaves(trainer.params), us.tree.leaves(theirs), strict=True):
        assert np.array_equal(us.to_numpy(a), us.to_numpy(b))
    trainer.params = params  # and go on from them
    assert trainer.step(BATCH).loss > 0
    assert same_everywhere(numbers(trainer))


def test_params_of_unequal_shapes_are_told_with_replica_and_path(world):
    model = us.nn.Linear(4, 2 + (world.process_index == 1))
    with pytest.raises(
        CollectiveMismatchError, match=r"replica 1 has float32\[3\] at 'bias', replica 0 has float32\[2"
    ):
        make(model)


def test_seeds_that_differ_are_told_before_the_first_step(world):
    trainer = make(mlp(), seed=world.process_index)
    with pytest.raises(CollectiveMismatchError, match=r"`seed` must be the same.*replica 1"):
        trainer.step(BATCH)


def test_a_loss_that_is_not_finite_on_one_replica_updates_none(world):
    trainer = make(mlp(), dtype="float64")
    trainer.step(BATCH)
    before = numbers(trainer)
    bad = IMAGES[:16].copy()
    bad[15] = np.nan  # on the last replica
    with pytest.raises(NonFiniteError, match="step 2"):  # noqa: PT012
        trainer.step((bad, LABELS[:16]))
        trainer.step(BATCH)
        trainer.train((IMAGES, LABELS), batch_size=16, verbose=False)
    assert trainer.steps == 1
    for a, b in zip(before[:4], numbers(trainer)[:4], strict=True):
        assert np.array_equal(a, b)
    assert np.isfinite(trainer.step(BATCH).loss)


def test_training_resumes_bit_for_bit(world, tmp_path):
    folder = Path(us.broadcast_object(str(tmp_path))) / "run"
    model = mlp(us.nn.BatchNorm(16, sync=True), us.nn.Dropout(0.3))
    adam = us.optim.adam(us.optim.warmup_cosine(0.02, 3, 12))
    data = IMAGES[:32], LABELS[:32]
    whole = make(model, adam)
    whole.train(data, epochs=2, batch_size=16, verbose=False)
    first = make(model, adam)
    first.train(data, epochs=1, batch_size=16, verbose=False)
    first.save(folder)
    second = us.load(folder, optimizer=adam)
    second.train(data, epochs=1, batch_size=16, verbose=False)
    assert second.steps == whole.steps == 4
    for a, b in zip(numbers(whole), numbers(second), strict=True):
        assert np.array_equal(a, b)
    assert second.history.step_losses == whole.history.step_losses


def test_a_checkpoint_that_cannot_be_written_is_an_error_everywhere(world, tmp_path):
    blocked = Path(us.broadcast_object(str(tmp_path))) / "file"
    if world.process_index == 0:
        blocked.write_text("no checkpoint")
    us.barrier()
    trainer = make(mlp())
    with pytest.raises(CheckpointError):
        trainer.save(blocked)
    assert trainer.step(BATCH).loss > 0


def test_replicas_draw_numbers_of_their_own(world):
    """All see the same rows; what they drop differs, so without sync their params do."""
    size = 4 * world.size
    rows = np.concatenate([IMAGES[:4]] * world.size), np.concatenate([LABELS[:4]] * world.size)
    assert len(rows[0]) == size
    trainer = make(mlp(us.nn.Dropout(0.5)))
    trainer.step(rows)
    assert same_everywhere(numbers(trainer))
    trainer._engine.step(us.asarray(rows[0]), us.asarray(rows[1]), None, sync=False)
    found = us.all_gather_object(us.to_numpy(trainer.params["1"]["weight"]))
    assert all(not np.array_equal(found[0], other) for other in found[1:])


def test_iterables_of_batches_are_cut_by_each_process(world):
    batches = [(IMAGES[i : i + 8], LABELS[i : i + 8]) for i in range(0, 24, 8)]
    found = [
        make(mlp(), dtype="float64").train(data, epochs=1, verbose=False).step_losses
        for data in (batches, lambda: iter(batches), (batch for batch in batches))
    ]
    world.end()
    expected = make(mlp(), dtype="float64").train(batches, epochs=1, verbose=False).step_losses
    for losses in found:
        assert losses == pytest.approx(expected, rel=1e-10)


def test_early_stopping_ends_all_at_once_and_restores_the_best(world):
    stopping = us.callbacks.EarlyStopping("test_loss", patience=1)
    trainer = make(mlp(us.nn.BatchNorm(16)), us.optim.sgd(3.0))
    trainer.train((IMAGES, LABELS), epochs=6, batch_size=16, validation=BATCH, callbacks=[stopping], verbose=False)
    found = us.all_gather_object((trainer.epochs, stopping.best_epoch, stopping.best))
    assert len(set(found)) == 1
    assert trainer.step(BATCH).loss > 0


def loaders(backend, x, y, size, rank, replicas):
    """Batches of all rows in order, and a process's own share of each, as the framework's users load them."""
    if backend == "torch":
        import torch
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

        data = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
        sampler = DistributedSampler(data, replicas, rank, shuffle=False)
        return DataLoader(data, batch_size=size), DataLoader(data, batch_size=size // replicas, sampler=sampler)
    if backend == "tensorflow":
        import tensorflow as tf

        data = tf.data.Dataset.from_tensor_slices((x, y))
        return data.batch(size), data.shard(replicas, rank).batch(size // replicas)
    cuts = range(0, len(x), size)
    own = range(rank, size, replicas)
    return (
        lambda: ((x[i : i + size], y[i : i + size]) for i in cuts),
        lambda: ((x[i : i + size][own], y[i : i + size][own]) for i in cuts),
    )


def test_loaders_of_the_framework_whole_and_sharded(world):
    x, y = IMAGES[:32], LABELS[:32]
    whole, own = loaders(world.backend, x, y, 8, world.process_index, world.size)
    found = [
        make(mlp(), dtype="float64").train(data, epochs=2, verbose=False, sharded=sharded).step_losses
        for data, sharded in ((whole, False), (own, True))
    ]
    world.end()
    batches = [(x[i : i + 8], y[i : i + 8]) for i in range(0, 32, 8)]
    expected = make(mlp(), dtype="float64").train(batches, epochs=2, verbose=False).step_losses
    for losses in found:
        assert losses == pytest.approx(expected, rel=1e-10)
