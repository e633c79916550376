"""What goes wrong between replicas that run code of their own, caused for real: nobody waits for ever, all is named."""

from __future__ import annotations

import gc
import os
import re
import signal
import threading
import time
import traceback
from pathlib import Path

import numpy as np
import pytest

import unisync as us
from unisync.errors import (
    CollectiveMismatchError,
    CollectiveTimeoutError,
    NotAnArrayError,
    ReplicaFailedError,
    ShapeError,
    StateError,
)

HERE = re.escape(__file__)


@pytest.fixture(params=["numpy", "torch"])
def threads(request, monkeypatch):
    """A world of two threads of NumPy, and of torch if it is there."""
    if request.param == "torch":
        pytest.importorskip("torch")
    with us.backend(request.param), us.init_distributed(replicas=2, timeout_s=30, device="cpu") as world:
        yield world


def works(world):
    """Whether the engine is as good as new."""
    total = us.spmd(lambda: us.all_reduce(us.ones(2), "sum"))()
    return [us.to_numpy(t).tolist() for t in total] == [[world.size] * 2] * world.size


def seen(fn):
    """fn, and a list of the errors that it raised in each replica."""
    errors = {}

    def watched(*args):
        try:
            return fn(*args)
        except BaseException as error:
            errors[us.replica_index()] = error
            raise

    return watched, errors


# Replicas disagree


def test_one_skips_a_collective(threads):
    def fn():
        if us.replica_index() == 0:
            us.all_reduce(us.ones(3))

    watched, errors = seen(fn)
    with pytest.raises(CollectiveMismatchError) as caught:
        us.spmd(watched)()
    text = str(caught.value)
    assert "replica 1 returned from the function after 0 collectives" in text
    assert re.search(rf"replica 0 is in collective 0, all_reduce\(mean\) of float32\[3\] at {HERE}:\d+", text)
    assert type(errors[0]) is CollectiveMismatchError
    assert works(threads)


def test_one_skips_a_collective_in_the_middle(threads):
    def fn():
        us.all_reduce(us.ones(3))
        if us.replica_index() == 0:
            us.barrier()
        us.all_reduce(us.ones(3))

    with pytest.raises(CollectiveMismatchError) as caught:
        us.spmd(fn)()
    text = str(caught.value)
    assert re.search(rf"replica 0: collective 1, barrier at {HERE}:\d+", text)
    assert re.search(rf"replica 1: collective 1, all_reduce\(mean\) of float32\[3\] at {HERE}:\d+", text)
    assert works(threads)


def _line(text):
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(i for i, line in enumerate(lines, 1) if line.endswith(f"# {text}"))


def _different_ops():
    if us.replica_index() == 0:
        return us.all_reduce(us.ones(3), "sum")  # left
    return us.all_reduce(us.ones(3), "max")  # right


def _waited(result):
    return result.wait() if hasattr(result, "wait") else result


def _mine(*of_each):
    """What is given for this replica."""
    return of_each[us.replica_index()]


@pytest.mark.parametrize(
    ("fn", "left", "right"),
    [
        (_different_ops, "all_reduce(sum) of float32[3]", "all_reduce(max) of float32[3]"),
        (lambda: us.all_reduce(us.ones(_mine(3, 4))), "float32[3]", "float32[4]"),
        (lambda: us.all_reduce(us.ones(3, dtype=_mine("float32", "int64")), "sum"), "float32[3]", "int64[3]"),
        (lambda: us.all_reduce(us.ones(3, dtype=_mine("float16", "float32"))), "float16[3]", "float32[3]"),
        (lambda: us.all_reduce([us.ones(3), us.ones(_mine(4, 3))]), "float32[7]", "float32[6]"),
        (lambda: us.all_reduce([us.ones(_mine(3, 4)), us.ones(_mine(4, 3))]), "2 arrays #", "2 arrays #"),
        (lambda: us.broadcast([us.ones(_mine(3, 4)), us.ones(_mine(4, 3))]), "(0, 2 arrays #", "(0, 2 arrays #"),
        (lambda: us.all_reduce(us.ones(_mine((3, 2), (2, 3)))), "float32[3, 2]", "float32[2, 3]"),
        (lambda: us.broadcast(us.ones(2), _mine(0, 1)), "broadcast(0)", "broadcast(1)"),
        (lambda: us.all_gather(us.ones((1, _mine(2, 3)))), "float32[1, 2]", "float32[1, 3]"),
        (lambda: us.permute(us.ones(2), [(0, _mine(0, 1))]), "permute([(0, 0)])", "permute([(0, 1)])"),
        (lambda: _mine(us.barrier, lambda: us.all_gather_object(1))(), "barrier", "all_gather_object"),
        (lambda: _waited(us.all_reduce(us.ones(2), async_op=_mine(True, False))), "(mean, async)", "(mean)"),
    ],
    ids=[
        "op",
        "shape",
        "dtype",
        "half",
        "tree",
        "layout",
        "layout of broadcast",
        "order of axes",
        "root",
        "further axes",
        "pairs",
        "collective",
        "async",
    ],
)
def test_both_are_named_where_they_differ(threads, fn, left, right):
    watched, errors = seen(fn)
    with pytest.raises(CollectiveMismatchError) as caught:
        us.spmd(watched)()
    for error in (caught.value, *errors.values()):
        assert type(error) is CollectiveMismatchError
        assert re.search(rf"replica 0: collective 0, .*{re.escape(left)}.* at {HERE}:\d+", str(error))
        assert re.search(rf"replica 1: collective 0, .*{re.escape(right)}.* at {HERE}:\d+", str(error))
    assert works(threads)


def test_the_lines_are_those_of_the_calls(threads):
    with pytest.raises(CollectiveMismatchError) as caught:
        us.spmd(_different_ops)()
    assert f"{__file__}:{_line('left')}" in str(caught.value)
    assert f"{__file__}:{_line('right')}" in str(caught.value)


def test_different_groups():
    def fn():
        groups = [[0, 1], [2, 3]] if us.replica_index() != 3 else [[0, 2], [1, 3]]
        return us.all_reduce(us.ones(1), groups=groups)

    with us.backend("numpy"), us.init_distributed(replicas=4) as world:
        with pytest.raises(CollectiveMismatchError, match=r"groups=\[\[0, 2\], \[1, 3\]\]"):
            us.spmd(fn)()
        assert works(world)


def test_a_collective_in_the_gradient_of_one_alone(threads):
    def loss(x):
        y = us.all_reduce(x, "sum")
        return us.sum(y if us.replica_index() == 0 else us.stop_gradient(y) + 0 * x)

    with pytest.raises(CollectiveMismatchError, match="gradient of all_reduce"):
        us.spmd(us.grad(loss))(us.ones(2))
    assert works(threads)


# One raises


def test_one_raises_in_the_middle_of_a_step(threads):
    def fn():
        us.all_reduce(us.ones(1))
        if us.replica_index() == 1:
            raise RuntimeError("disk full")  # here
        return us.all_reduce(us.ones(1))

    watched, errors = seen(fn)
    with pytest.raises(RuntimeError, match="disk full") as caught:
        us.spmd(watched)()
    assert any("raised in replica 1 of 2" in note for note in caught.value.__notes__)
    assert f'test_faults.py", line {_line("here")}' in "".join(traceback.format_exception(caught.value))
    assert type(errors[0]) is ReplicaFailedError
    assert errors[0].__cause__ is errors[1] is caught.value
    assert "replica 1 raised RuntimeError: disk full" in str(errors[0])
    assert works(threads)


def test_all_raise(threads):
    def fn():
        raise ValueError(f"mine is {us.replica_index()}")

    with pytest.raises(ValueError, match="mine is") as caught:
        us.spmd(fn)()
    assert "raised" in " ".join(caught.value.__notes__)
    assert works(threads)


@pytest.mark.parametrize(
    ("fn", "error"),
    [
        (
            lambda: us.all_reduce(us.ones(3), groups=[[0]]) if us.replica_index() else us.all_reduce(us.ones(3)),
            ValueError,
        ),
        (lambda: us.reduce_scatter(us.ones(3 + us.replica_index())), ShapeError),
        (lambda: us.all_reduce("a" if us.replica_index() else us.ones(1)), NotAnArrayError),
        (lambda: us.broadcast_object(threading.Lock()), TypeError),  # cannot be copied
    ],
    ids=["groups", "shape", "type", "object"],
)
def test_a_call_that_is_wrong_in_itself_fails_the_others(threads, fn, error):
    with pytest.raises(error):
        us.spmd(fn)()
    assert works(threads)


def test_system_exit_comes_out(threads):
    def fn():
        if us.replica_index() == 0:
            raise SystemExit(3)
        us.barrier()

    with pytest.raises(SystemExit):
        us.spmd(fn)()
    assert works(threads)


def test_nothing_is_kept_alive_by_a_failure(threads):
    import weakref

    class Big:
        pass

    def fn(kept=None):
        big = Big()
        refs.append(weakref.ref(big))
        if us.replica_index() == 0:
            raise ValueError
        us.barrier()

    refs = []
    with pytest.raises(ValueError):
        us.spmd(fn)()
    assert works(threads)
    gc.collect()
    assert [ref() for ref in refs] == [None] * len(refs)


# One does not come


def test_one_sleeps_past_the_timeout(threads):
    with us.init_distributed(replicas=2, timeout_s=1, device="cpu") as world:

        def fn():
            us.barrier()
            if us.replica_index() == 1:
                time.sleep(2.5)  # nap
            return us.all_reduce(us.ones(4), "sum")

        watched, errors = seen(fn)
        begin = time.monotonic()
        with pytest.raises(CollectiveTimeoutError) as caught:
            us.spmd(watched)()
        assert time.monotonic() - begin < 4
        text = str(caught.value)
        assert "replica 1 did not come within 1 s to collective 1, all_reduce(sum) of float32[4]" in text
        assert f"replica 1 is at {__file__}:{_line('nap')}, after collective 0, barrier" in text
        assert re.search(rf"replica 0 is in collective 1, .* at {HERE}:\d+, for 1\.\d s", text)
        assert {type(e) for e in errors.values()} == {CollectiveTimeoutError}
        assert works(world)


def test_one_that_never_comes_is_left_behind(threads, monkeypatch):
    from unisync.backends import _threads

    monkeypatch.setattr(_threads, "GRACE_S", 0.2)
    let_go = threading.Event()
    ended = threading.Event()
    with us.init_distributed(replicas=2, timeout_s=0.5, device="cpu") as world:

        def fn():
            if us.replica_index() == 0:
                let_go.wait()  # stuck
                try:
                    us.barrier()
                finally:
                    ended.set()
            us.barrier()

        with pytest.raises(CollectiveTimeoutError, match="replica 0 did not come") as caught:
            us.spmd(fn)()
        assert any("replica 0 still runs" in note and "left behind" in note for note in caught.value.__notes__)
        assert works(world)
        let_go.set()
        assert ended.wait(5)
        assert works(world)  # the late one disturbed nobody


def test_a_message_that_never_comes(threads):
    def fn():
        return us.recv(us.ones(1), source=1) if us.replica_index() == 0 else None

    with pytest.raises(CollectiveMismatchError, match="replica 1 returned from the function"):
        us.spmd(fn)()
    assert works(threads)


def test_a_message_that_is_never_received(threads):
    with pytest.raises(CollectiveMismatchError, match="1 from replica 0 to 1"):
        us.spmd(lambda: us.send(us.ones(1), to=1) if us.replica_index() == 0 else None)()
    assert works(threads)


def test_a_message_of_another_shape(threads):
    def fn():
        if us.replica_index() == 0:
            us.send(us.ones(3), to=1)
        else:
            us.recv(us.ones(2), source=0)

    with pytest.raises(CollectiveMismatchError, match=r"float32\[3\], got float32\[2\]"):
        us.spmd(fn)()
    assert works(threads)


# Interruptions and reports


def test_ctrl_c_ends_the_call(threads):
    started = threading.Barrier(3)

    def interrupt():
        started.wait(10)
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    def fn():
        started.wait(10)
        for _ in range(100_000):
            us.all_reduce(us.ones(1))

    helper = threading.Thread(target=interrupt)
    helper.start()
    with pytest.raises(KeyboardInterrupt):
        us.spmd(fn)()
    helper.join()
    assert works(threads)


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no SIGUSR1 here")
def test_sigusr1_prints_what_each_replica_does(threads, capfd):
    ready = threading.Barrier(2)
    go_on = threading.Event()

    def ask():
        ready.wait(10)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.2)
        go_on.set()

    def fn():
        us.all_reduce(us.ones(2))
        if us.replica_index() == 1:
            ready.wait(10)
            go_on.wait(10)  # busy
        us.barrier()

    helper = threading.Thread(target=ask)
    helper.start()
    us.spmd(fn)()
    helper.join()
    text = capfd.readouterr().err
    assert "unisync: 2 replicas" in text
    assert re.search(rf"replica 0 is in collective 1, barrier at {HERE}:\d+, for \d", text)
    assert f"replica 1 is at {__file__}:{_line('busy')}, after collective 0, all_reduce(mean)" in text
    assert "collective 0, all_reduce(mean) of float32[2]" in text


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no SIGUSR1 here")
def test_the_signal_is_given_back(backend):
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    with us.init_distributed(replicas=2, device="cpu"):
        assert callable(signal.getsignal(signal.SIGUSR1))
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no SIGUSR1 here")
def test_the_signal_serves_the_world_after_one_that_another_thread_ended(capfd):
    with us.backend("numpy"):
        helper = threading.Thread(target=us.init_distributed(replicas=2).end)
        helper.start()
        helper.join()
        with us.init_distributed(replicas=3):
            signal.raise_signal(signal.SIGUSR1)
    assert "3 replicas" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no SIGUSR1 here")
def test_a_handler_of_the_users_is_left_alone():
    def mine(signum, frame):
        pass

    before = signal.signal(signal.SIGUSR1, mine)
    try:
        with us.backend("numpy"), us.init_distributed(replicas=2):
            assert signal.getsignal(signal.SIGUSR1) is mine
        assert signal.getsignal(signal.SIGUSR1) is mine
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_second_call_at_the_same_time_is_refused(threads):
    inside, go_on = threading.Event(), threading.Event()

    def fn():
        inside.set()
        go_on.wait(10)

    other = threading.Thread(target=lambda: us.spmd(fn)())
    other.start()
    assert inside.wait(10)
    with pytest.raises(StateError, match=r"one us\.spmd call at a time"):
        us.spmd(us.barrier)()
    go_on.set()
    other.join()
    assert works(threads)


def test_every_collective_is_noted_with_its_stamps(threads):
    from unisync import _events

    noted = []
    _events.sink = noted.append
    try:
        us.spmd(lambda: us.all_reduce({"a": us.ones(2), "b": us.ones((2, 2))}, "sum"))()
    finally:
        _events.sink = None
    assert sorted((e.replica, e.op.split(" #")[0], e.shape, e.dtype, e.bytes) for e in noted) == [
        (0, "all_reduce(sum, 2 arrays", (6,), "float32", 24), (1, "all_reduce(sum, 2 arrays", (6,), "float32", 24),
    ]  # fmt: skip
    for e in noted:
        assert e.site.startswith(f"{__file__}:")
        assert e.arrival_ns <= e.blocked_ns <= e.resumed_ns <= e.done_ns


def test_waiting_is_stamped(threads):
    from unisync import _events

    def fn():
        if us.replica_index() == 1:
            time.sleep(0.1)
        us.all_reduce(us.ones(2))

    noted = []
    _events.sink = noted.append
    try:
        us.spmd(fn)()
    finally:
        _events.sink = None
    waited_s = {e.replica: (e.resumed_ns - e.blocked_ns) / 1e9 for e in noted}
    assert waited_s[0] > 0.08
    assert waited_s[1] < 0.05


# Nothing is read after its owner may write to it


def test_arrays_may_be_written_to_right_after_a_collective():
    with us.backend("numpy"), us.init_distributed(replicas=2):

        def fn():
            r = us.replica_index()
            x = np.empty(300_000, np.float32)
            for i in range(60):
                x[:] = i + r
                total, whole, theirs = us.all_reduce(x, "sum"), us.all_gather(x), us.permute(x, [(0, 1), (1, 0)])
                x[:] = -1
                assert (total == 2 * i + 1).all()
                assert (whole == np.repeat([i, i + 1], x.size)).all()
                assert (theirs == i + 1 - r).all()
            return x

        us.spmd(fn)()
