"""Verdicts as a function of events and times: right worlds get none, wrong ones the right one, whatever the timing."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from unisync.distributed.verdicts import LEFT_S, SETTLE_S, Judge

OPS = ("all_reduce(sum) float32 (4,)", "all_reduce(sum) float32 (5,)", "barrier  ()")
TIMEOUT_S = 3.0


def state(program, count, inside_s=None, epoch=1, timeout_s=TIMEOUT_S, **more):
    """The report of a rank that has begun `count` collectives of a program, and is in the last for so long."""
    begun = [(i, program[i], f"collective {i}, {program[i]} at train.py:{i}") for i in range(count)]
    collective = None if inside_s is None else (count - 1, begun[-1][2], inside_s)
    last = begun[-1][2] if begun else ""
    return {
        "epoch": epoch, "count": count, "timeout": timeout_s, "period": 0.5, "events": begun[-4:], "last": last,
        "at": "train.py:99", "collective": collective, **more,
    }  # fmt: skip


def joined(size):
    judge = Judge(size)
    for rank in range(size):
        judge.joined(rank, 0.0)
    return judge


PROGRAM = [OPS[0]] * 6


# Each verdict


def test_a_rank_that_dies_is_named_with_its_place_and_those_who_wait():
    judge = joined(3)
    judge.reported(0, state(PROGRAM, 3, inside_s=0.2), 1.0)
    judge.reported(2, state(PROGRAM, 2), 1.0)
    judge.lost(2, 1.1)
    assert judge.judge(1.1 + SETTLE_S / 2) is None
    assert judge.unsettled()
    judge.exited(2, "was killed by SIGKILL", False, 1.2)
    verdict = judge.judge(1.1 + SETTLE_S)
    assert (verdict.kind, verdict.rank) == ("failed", 2)
    assert verdict.text.startswith("rank 2 was killed by SIGKILL, last heard of at train.py:99, after collective 1, ")
    assert "rank 0 is in collective 2, all_reduce(sum) float32 (4,) at train.py:2, for" in verdict.text
    assert "rank 1 is at" in verdict.text


def test_a_lost_connection_says_so_without_a_launcher():
    judge = joined(2)
    judge.lost(1, 1.0)
    assert judge.judge(1.0 + SETTLE_S).text.startswith("rank 1 ended without a word, as if it was killed")


def test_an_error_is_told_with_its_traceback():
    judge = joined(2)
    judge.failed(1, "Traceback (most recent call last):\n  File train.py\nValueError: boom\n", 1.0)
    judge.said_bye(1, 1.1)
    judge.exited(1, "exited with code 1", False, 1.2)
    verdict = judge.judge(2.0)
    assert (verdict.kind, verdict.rank) == ("failed", 1)
    assert verdict.text.startswith("rank 1 failed: ValueError: boom\n  rank 0 ")
    assert verdict.text.endswith("  File train.py\nValueError: boom")


def test_the_first_failure_is_the_cause():
    judge = joined(3)
    judge.lost(2, 1.0)
    judge.failed(0, "RuntimeError: connection closed by peer", 1.1)
    judge.failed(1, "RuntimeError: connection closed by peer", 1.05)
    assert judge.judge(2.0).rank == 2


def test_the_verdict_does_not_change():
    judge = joined(2)
    judge.lost(1, 1.0)
    first = judge.judge(2.0)
    judge.failed(0, "RuntimeError: echo", 2.1)
    assert judge.judge(5.0) is first


@pytest.mark.parametrize("how", ["bye", "exit"])
def test_a_rank_that_leaves_while_others_wait(how):
    judge = joined(2)
    judge.reported(1, state(PROGRAM, 3), 1.0)
    if how == "bye":
        judge.said_bye(1, 1.0)
    judge.lost(1, 1.01)
    judge.exited(1, "exited with code 0", True, 1.02)
    judge.reported(0, state(PROGRAM, 4, inside_s=0.5), 1.1)
    assert judge.judge(1.2) is None
    verdict = judge.judge(1.1 + LEFT_S)
    assert (verdict.kind, verdict.rank) == ("left", 1)
    assert verdict.text.startswith("rank 1 exited with code 0, while others wait for it in collective 3, ")
    assert "rank 0 is in collective 3" in verdict.text
    assert "train.py:3" in verdict.text


def test_a_rank_that_leaves_after_its_last_collective_is_no_fault():
    judge = joined(2)
    judge.reported(0, state(PROGRAM, 6, inside_s=0.5), 1.0)  # it has yet to notice that the last one ended
    judge.reported(1, state(PROGRAM, 6), 1.0)
    judge.said_bye(1, 1.0)
    assert judge.judge(100.0) is None


def test_a_rank_that_leaves_while_another_waits_in_an_exchange():
    judge = joined(2)
    judge.asks(0, "torch/port", [1], 1.0)
    judge.said_bye(1, 1.1)
    assert judge.judge(1.2) is None
    verdict = judge.judge(1.1 + LEFT_S)
    assert (verdict.kind, verdict.rank) == ("left", 1)
    assert "torch/port" in verdict.text
    other = joined(2)
    other.asks(0, "torch/port", [1], 1.0)
    other.asks(0, "torch/port", [], 1.05)
    other.said_bye(1, 1.1)
    assert other.judge(100.0) is None


def test_different_calls():
    judge = joined(3)
    judge.reported(0, state([OPS[0], OPS[0]], 2, inside_s=0.1), 1.0)
    judge.reported(1, state([OPS[0], OPS[0]], 2, inside_s=0.1), 1.0)
    judge.reported(2, state([OPS[0], OPS[1]], 2, inside_s=0.1), 1.0)
    verdict = judge.judge(1.0)
    assert (verdict.kind, verdict.rank) == ("mismatch", 2)
    assert "\n  rank 0: collective 1, all_reduce(sum) float32 (4,) at train.py:1" in verdict.text
    assert "\n  rank 2: collective 1, all_reduce(sum) float32 (5,) at train.py:1" in verdict.text


def test_calls_of_different_worlds_are_not_compared():
    judge = joined(2)
    judge.reported(0, state([OPS[0]], 1, epoch=1), 1.0)
    judge.reported(1, state([OPS[1]], 1, epoch=2), 1.0)
    assert judge.judge(100.0) is None
    judge.reported(0, state([OPS[1]], 1, epoch=2), 1.0)
    assert judge.judge(100.0) is None


def test_a_rank_that_does_not_come_in_time():
    judge = joined(3)
    judge.reported(0, state(PROGRAM, 3, inside_s=TIMEOUT_S + 0.1), 4.0)
    judge.reported(1, state(PROGRAM, 3, inside_s=1.0), 4.0)
    judge.reported(2, state(PROGRAM, 2), 4.0)
    verdict = judge.judge(4.0)
    assert (verdict.kind, verdict.rank) == ("timeout", 2)
    assert verdict.text.startswith("rank 2 did not come within 3 s to collective 2, ")
    assert "where rank 0 waits:" in verdict.text
    assert "rank 2 is at train.py:99, after collective 1, " in verdict.text


@pytest.mark.parametrize("came", [True, False])
def test_a_stopped_rank(came):
    judge = joined(2)
    judge.reported(1, state(PROGRAM, 3 if came else 2, inside_s=0.1 if came else None), 1.0)
    judge.reported(0, state(PROGRAM, 3, inside_s=TIMEOUT_S + 0.1), 4.2)
    verdict = judge.judge(4.2)
    assert (verdict.kind, verdict.rank) == ("timeout", 1)
    assert "rank 1 has not been heard of for 3.2 s, as if stopped, last heard of " in verdict.text
    if came:
        assert verdict.text.startswith("rank 1 came to collective 2, ")


def test_silence_alone_is_no_fault():
    judge = joined(2)
    judge.reported(0, state(PROGRAM, 3, inside_s=1.0), 1.0)
    assert judge.judge(1000.0) is None


def test_steps_of_compiled_programs():
    judge = joined(2)
    step = (7, "step 7 of train_step, whose collectives are: all_reduce(mean) at train.py:5", TIMEOUT_S + 0.5)
    judge.reported(0, state(PROGRAM, 3, steps=8, programs=[(7, "train_step", step[1])], step=step), 5.0)
    judge.reported(1, state(PROGRAM, 3, steps=7, programs=[(6, "train_step", "")]), 5.0)
    verdict = judge.judge(5.0)
    assert (verdict.kind, verdict.rank) == ("timeout", 1)
    assert "all_reduce(mean) at train.py:5" in verdict.text
    judge = joined(2)
    judge.reported(0, state(PROGRAM, 3, steps=8, programs=[(7, "train_step", "step 7 of train_step")]), 5.0)
    judge.reported(1, state(PROGRAM, 3, steps=8, programs=[(7, "evaluate", "step 7 of evaluate")]), 5.0)
    assert judge.judge(5.0).kind == "mismatch"


# Whatever the timing

programs = st.lists(st.sampled_from(OPS), min_size=1, max_size=12)


class Simulation:
    """Ranks that run programs of collectives as real ones do: nobody passes one before all have come to it."""

    def __init__(self, programs, draw):
        self.programs, self.draw = programs, draw
        self.size = len(programs)
        self.count = [0] * self.size  # collectives begun
        self.since = [0.0] * self.size
        self.left = [False] * self.size
        self.stuck = [False] * self.size
        self.now = 0.0
        self.judge = joined(self.size)

    def waits(self, rank):
        n = self.count[rank]
        return n > 0 and not self.left[rank] and min(self.count) < n

    def report(self, rank):
        inside = self.now - self.since[rank] if self.waits(rank) else None
        self.judge.reported(rank, state(self.programs[rank], self.count[rank], inside), self.now)

    def advance(self, rank):
        if self.left[rank] or self.stuck[rank] or self.waits(rank):
            return
        if self.count[rank] == len(self.programs[rank]):
            self.report(rank)
            self.judge.said_bye(rank, self.now)
            self.left[rank] = True
            return
        self.count[rank] += 1
        self.since[rank] = self.now

    def run(self, steps):
        for _ in range(steps):
            self.now += self.draw(st.sampled_from((0.0, 0.01, 0.1)))
            rank = self.draw(st.integers(0, self.size - 1))
            getattr(self, self.draw(st.sampled_from(("advance", "report"))))(rank)
            if self.judge.judge(self.now) is not None:
                return self.judge.verdict
        return None

    def settle(self):
        """All go on as far as they can, and report for as long as it takes."""
        for _ in range(60):
            self.now += 0.4
            for rank in range(self.size):
                self.advance(rank)
                if not self.left[rank]:
                    self.report(rank)
            if self.judge.judge(self.now) is not None:
                break
        return self.judge.verdict


@settings(max_examples=60, deadline=None)
@given(st.data(), programs, st.integers(2, 4))
def test_a_right_program_gets_no_verdict(data, program, size):
    simulation = Simulation([program] * size, data.draw)
    assert simulation.run(40) is None
    assert simulation.settle() is None
    assert all(simulation.left)


@settings(max_examples=40, deadline=None)
@given(st.data(), programs, st.integers(2, 4))
def test_a_rank_with_fewer_collectives_is_found(data, program, size):
    culprit = data.draw(st.integers(0, size - 1))
    shorter = program[: data.draw(st.integers(0, len(program) - 1))]
    simulation = Simulation([shorter if r == culprit else program for r in range(size)], data.draw)
    verdict = simulation.run(30) or simulation.settle()
    assert (verdict.kind, verdict.rank) == ("left", culprit)


@settings(max_examples=40, deadline=None)
@given(st.data(), programs, st.integers(2, 4))
def test_a_rank_that_does_not_go_on_is_found(data, program, size):
    culprit = data.draw(st.integers(0, size - 1))
    simulation = Simulation([program] * size, data.draw)
    simulation.stuck[culprit] = True
    verdict = simulation.run(20) or simulation.settle()
    assert (verdict.kind, verdict.rank) == ("timeout", culprit)


@settings(max_examples=40, deadline=None)
@given(st.data(), programs, st.integers(2, 4))
def test_a_different_call_is_found(data, program, size):
    culprit = data.draw(st.integers(0, size - 1))
    place = data.draw(st.integers(0, len(program) - 1))
    other = [*program[:place], "all_gather float32 (2,)", *program[place + 1 :]]
    simulation = Simulation([other if r == culprit else program for r in range(size)], data.draw)
    verdict = simulation.run(20) or simulation.settle()
    assert verdict.kind == "mismatch"
    assert f"rank {culprit}: collective {place}, all_gather" in verdict.text


@settings(max_examples=40, deadline=None)
@given(st.data(), programs, st.integers(2, 4))
def test_a_killed_rank_is_found(data, program, size):
    culprit = data.draw(st.integers(0, size - 1))
    simulation = Simulation([program] * size, data.draw)
    assert simulation.run(10) is None
    if simulation.left[culprit]:
        return
    simulation.judge.lost(culprit, simulation.now)
    simulation.stuck[culprit] = simulation.left[culprit] = True
    verdict = simulation.settle()
    assert (verdict.kind, verdict.rank) == ("failed", culprit)
