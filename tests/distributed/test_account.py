"""What a process says of itself: where its threads stand, and which collective it waits in."""

from __future__ import annotations

import ast
import threading
import time

import pytest

from unisync import _context
from unisync._context import Scope
from unisync._events import PACKAGE, Ring, now_ns
from unisync.backends import _account, _collectives
from unisync.backends._account import Account


class Engine:
    """An engine whose collectives take as long as the test wants."""

    size = 2
    separate = False

    def __init__(self):
        from unisync import _dispatch

        self.backend = _dispatch.load("numpy")
        self.entered, self.leave = threading.Event(), threading.Event()

    def waited(self):
        return None, None

    def barrier(self):
        self.entered.set()
        assert self.leave.wait(10)

    def start_all_reduce(self, x, op, groups):
        return self

    def wait(self):
        self.barrier()
        return 1.0

    def all_reduce_mean(self, x, groups):
        raise ValueError("refused")


@pytest.fixture
def engine():
    made = Engine()
    yield made
    made.leave.set()


def during(engine, ring, call):
    """What the account says while a thread is in a call."""
    account = Account()
    account.watch(ring, 5.0, 1)

    def run():
        with _context.inside(Scope(engine, 0, ring)):
            call()

    thread = threading.Thread(target=run)
    thread.start()
    assert engine.entered.wait(10)
    time.sleep(0.05)
    states = [account.state(), account.state()]
    engine.leave.set()
    thread.join(10)
    return states, account.state()


def test_a_collective_under_way(engine):
    ring = Ring()
    (state, _), after = during(engine, ring, _collectives.barrier)
    number, text, age_s = state["collective"]
    assert (number, state["count"]) == (0, 1)
    assert text.startswith(f"collective 0, barrier at {__file__}:")
    assert 0.04 < age_s < 5
    assert after["collective"] is None
    assert after["last"] == text


def test_one_that_was_begun_before_is_waited_for_since_now(engine):
    ring = Ring()

    def call():
        handle = _collectives.all_reduce(1.0, "sum", None, True)
        time.sleep(0.2)
        handle.wait()

    (first, second), after = during(engine, ring, call)
    assert first["collective"][2] < 0.04 < 0.2
    assert first["collective"][2] <= second["collective"][2]
    assert "all_reduce(sum, async)" in first["collective"][1]
    assert after["collective"] is None


def test_one_that_is_not_waited_for_is_no_wait(engine):
    ring = Ring()
    with _context.inside(Scope(engine, 0, ring)):
        handle = _collectives.all_reduce(1.0, "sum", None, True)
    account = Account()
    account.watch(ring, 5.0, 1)
    assert account.state()["collective"] is None
    engine.leave.set()
    handle.wait()


def test_one_that_raised_is_no_wait(engine):
    ring = Ring()
    with _context.inside(Scope(engine, 0, ring)), pytest.raises(ValueError, match="refused"):
        _collectives.all_reduce(1.0, "mean", None, False)
    account = Account()
    account.watch(ring, 5.0, 1)
    assert account.state()["collective"] is None


def test_few_collectives_are_told_while_they_go_on_and_more_when_they_stop():
    ring, account = Ring(), Account()
    account.watch(ring, 5.0, 1)
    for _ in range(60):
        ring.end(ring.begin(0, "barrier", "train.py:1", (), "", 0), None, None)
    assert [n for n, *_ in account.state()["events"]] == [56, 57, 58, 59]
    assert [n for n, *_ in account.state()["events"]] == list(range(12, 60))
    ring.end(ring.begin(0, "barrier", "train.py:1", (), "", 0), None, None)
    assert len(account.state()["events"]) == 4
    ring.end(ring.begin(0, "barrier", "train.py:1", (), "", 0), None, None)
    assert len(account.state(full=True)["events"]) == 48


def test_steps_of_compiled_programs():
    ring, account = Ring(), Account()
    account.watch(ring, 5.0, 1)
    ring.end(ring.begin(-1, "all_reduce(mean)", "train.py:5", (4,), "float32", 16), None, None)
    account.step = _account.Step(7, "train_step", ("all_reduce(mean) at train.py:5",), now_ns())
    state = account.state()
    assert state["steps"] == 8
    assert "step" not in state
    account.waiting = "", time.monotonic() - 1.0
    number, text, age_s = account.state()["step"]
    assert number == 7
    assert text == "step 7 of train_step, whose collectives are: all_reduce(mean) at train.py:5"
    assert 1.0 <= age_s < 5.0
    ring.end(ring.begin(-1, "broadcast(0)", "train.py:9", (4,), "float32", 16), None, None)
    state = account.state()
    assert "step" not in state
    assert state["collective"][:2] == (1, "collective 1, broadcast(0) of float32[4] at train.py:9")
    account.stepped()
    assert account.state()["collective"] is None


def test_the_line_of_the_users_code():
    assert _account.main_line().split(":")[0] == __file__


def test_the_functions_that_are_looked_for_exist():
    found = set()
    for path in ("backends/_collectives.py", "backends/torch/overlap.py"):
        with open(PACKAGE + path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                found.add((path.rpartition("/")[2], node.name))
            elif isinstance(node, ast.ClassDef):
                names = [f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)]
                found |= {(path.rpartition("/")[2], name) for name in names}
    assert found >= _account._CALLS | _account._WAITS
