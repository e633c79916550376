"""What happens to launched worlds when a rank dies, stops, leaves, skips, differs or raises: over the channel alone.

Each engine has tests of its own faults; here is what they share.
"""

from __future__ import annotations

import os
import signal
import socket
import time

import pytest
from processes import Ranks

pytestmark = pytest.mark.slow

TIMEOUT_S = 2.0

FAULT = """
for i in range(3):
    us.all_reduce(np.ones(4), "sum")
if rank == 1:
    {fault}  # fault
us.all_reduce(np.ones(4), "sum")  # wait
us.barrier()
"""


def fails(fault, within_s=TIMEOUT_S + 5, **how):
    """Both ranks' ends and the verdict of a world in which rank 1 does something wrong after three collectives."""
    with Ranks(FAULT.format(fault=fault), timeout_s=TIMEOUT_S, **how) as ranks:
        until_joined(ranks)
        start = time.monotonic()
        first = ranks.wait(30.0, [0])[0]
        took_s = time.monotonic() - start
        verdict = ranks.verdict()
        if "SIGSTOP" in fault:
            ranks.processes[1].kill()
        second = ranks.wait(30.0, [1])[0]
        assert took_s < within_s
        assert first.code != 0
        assert verdict.text.splitlines()[0] in first.err
        return ranks, first, second, verdict


def until_joined(ranks):
    end = time.monotonic() + 30
    while not ranks.coordinator.joined:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_killed():
    ranks, first, second, verdict = fails("time.sleep(0.8); os.kill(os.getpid(), signal.SIGKILL)")
    assert second.code == -signal.SIGKILL
    assert (verdict.kind, verdict.rank) == ("failed", 1)
    assert verdict.text.startswith("rank 1 was killed by SIGKILL, last heard of at ")
    assert ranks.line("fault") in verdict.text
    assert f"rank 0 is in collective 3, all_reduce(sum) of float64[4] at {ranks.path}" in verdict.text
    assert ranks.line("wait") in verdict.text
    assert "ReplicaFailedError" in first.err


def test_raised():
    ranks, first, second, verdict = fails("raise ValueError('boom')")
    assert second.code == 1
    assert second.err.count("ValueError: boom") == 1
    assert (verdict.kind, verdict.rank) == ("failed", 1)
    assert verdict.text.startswith("rank 1 failed: ValueError: boom\n  rank 0 ")
    line = ranks.line("fault").split(":")[1]
    assert f'script.py", line {line}, in <module>' in verdict.text
    assert "ReplicaFailedError" in first.err


def test_left():
    ranks, first, second, verdict = fails("sys.exit(0)")
    assert second.code == 0
    assert (verdict.kind, verdict.rank) == ("left", 1)
    assert "while others wait for it in collective 3, all_reduce(sum) of float64[4]" in verdict.text
    assert ranks.line("wait") in verdict.text
    assert "CollectiveMismatchError" in first.err


def test_different_shapes():
    ranks, first, second, verdict = fails("us.all_reduce(np.ones(5), 'sum')")
    assert second.code != 0
    assert verdict.kind == "mismatch"
    for text in (
        "rank 0: collective 3, all_reduce(sum) of float64[4]",
        "rank 1: collective 3, all_reduce(sum) of float64[5]",
    ):
        assert text in first.err
        assert text in second.err
    assert ranks.line("wait") in verdict.text
    assert ranks.line("fault") in verdict.text


@pytest.mark.parametrize(
    ("fault", "code", "kind", "text"),
    [
        ("sys.exit(3)", 3, "failed", "rank 1 exited with code 3"),
        ("os._exit(0)", 0, "left", "rank 1 exited with code 0, while others wait"),
        ("os.kill(os.getpid(), signal.SIGSTOP)", -9, "timeout", "rank 1 did not come within 2 s to collective 3"),
        ("us.all_gather(np.ones(2)), us.all_reduce(np.ones(4))", None, "mismatch", "rank 1: collective 3, all_gather"),
        ("time.sleep(60)", 70, "timeout", "rank 1 did not come within 2 s to collective 3"),
        # A C function that lets nobody else run, as long as it takes: the reports stop, which is no fault by itself.
        ("sum(range(10**8)), time.sleep(60)", 70, "timeout", "rank 1 did not come within 2 s to collective 3"),
    ],
    ids=["code 3", "os._exit", "stopped", "other call", "asleep", "busy"],
)
def test_other_faults(fault, code, kind, text):
    _, _, second, verdict = fails(fault)
    assert verdict.kind == kind
    assert text in verdict.text
    if code is not None:
        assert second.code == code
    if kind == "timeout" and code == 70:
        assert "Its main thread was at:" in second.err
        assert "# fault" not in second.err.splitlines()[0]


def test_silence_is_no_fault():
    script = """
    for i in range(3):
        us.barrier()
        if rank == 1:
            sum(range(10**8))
    world.end()
    """
    with Ranks(script, timeout_s=30.0) as ranks:
        assert [r.code for r in ranks.wait(60.0)] == [0, 0]
        assert ranks.coordinator.verdict is None


def test_the_launchers_death_ends_the_ranks():
    with Ranks("print('ready', flush=True); time.sleep(60)") as ranks:
        for rank in range(2):
            ranks.said(rank, "ready")
        for peer in list(ranks.coordinator._peers.values()):
            peer.socket.shutdown(socket.SHUT_RDWR)
        ended = ranks.wait(10.0)
    assert [r.code for r in ended] == [70, 70]
    assert all("the launcher has gone" in r.err for r in ended)


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no SIGUSR1 here")
def test_a_report_while_the_main_thread_is_stuck():
    script = """
    us.all_reduce(np.ones(3))
    print("ready", flush=True)
    import ctypes
    ctypes.PyDLL(None).usleep(1) if rank == 0 else None
    ctypes.CDLL(None).sleep(3)  # C code, during which no handler of Python's runs
    us.barrier()
    """
    with Ranks(script) as ranks:
        for rank in range(2):
            ranks.said(rank, "ready")
        time.sleep(0.2)
        os.kill(ranks.processes[0].pid, signal.SIGUSR1)
        ranks.said(0, "rank 1 is at", within_s=2.0)
        assert ranks.processes[0].poll() is None
        report = ranks.output(0)[1]
        assert "rank 0 is at" in report
        assert "collective 0, all_reduce(mean) of float64[3]" in report
        ended = ranks.wait()
    assert [r.code for r in ended] == [0, 0]
    assert ended[0].err.count("its newest collectives") == 1


def test_a_forked_child_does_not_keep_the_connection():
    fault = "os.fork() or (time.sleep(5), os._exit(0)); time.sleep(0.3); os.kill(os.getpid(), signal.SIGKILL)"
    _, _, _, verdict = fails(fault)
    assert (verdict.kind, verdict.rank) == ("failed", 1)
