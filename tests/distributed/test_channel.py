"""The channel and its coordinator: rendezvous, exchanges, strangers, ends of connections, in one process."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from unisync._events import Ring
from unisync.backends import _channel
from unisync.backends._channel import Channel
from unisync.backends._wire import GREETING_BYTES, Lines, encoded
from unisync.distributed.coordinator import Coordinator
from unisync.errors import CollectiveMismatchError, CollectiveTimeoutError, ReplicaFailedError, StateError

SOON_S = 5.0


@pytest.fixture
def ended(monkeypatch):
    """The ranks whose processes the watchdog would have ended."""
    found: list[int] = []
    monkeypatch.setattr(_channel, "GRACE_S", 0.2)
    monkeypatch.setattr(Channel, "end_process", lambda self: found.append(self.rank))
    yield found
    for thread in threading.enumerate():
        if thread.name == "unisync-channel-watchdog":
            thread.join(SOON_S)


@pytest.fixture
def coordinator():
    made = Coordinator(2, "token")
    made.start()
    yield made
    made.close()


@pytest.fixture
def pair(coordinator, ended):
    """The channels of two ranks."""
    channels = [Channel([coordinator.address], "token", rank, 2) for rank in range(2)]
    yield channels
    for channel in channels:
        channel.close()


def both(*calls):
    """Each call in a thread of its own; their results, or the first error."""
    results = [None] * len(calls)

    def run(i, call):
        try:
            results[i] = call()
        except BaseException as error:
            results[i] = error

    threads = [threading.Thread(target=run, args=(i, call), daemon=True) for i, call in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def until(condition):
    end = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


# Rendezvous


def test_what_is_put_can_be_got(pair):
    pair[0].put("port", {"host": "127.0.0.1", "port": 4711})
    assert pair[1].get("port", SOON_S) == {"host": "127.0.0.1", "port": 4711}
    pair[0].put("nothing", None)
    assert pair[1].get("nothing", SOON_S) is None


def test_get_waits_until_it_is_put(pair):
    def put():
        time.sleep(0.1)
        pair[0].put("late", 1)

    assert both(put, lambda: pair[1].get("late", SOON_S))[1] == 1


def test_get_gives_up(pair):
    with pytest.raises(CollectiveTimeoutError, match=r"nobody put 'never' within 0\.1 s, for which rank 1 waits"):
        pair[1].get("never", 0.1)


def test_exchange_gives_all_to_all_in_order(pair):
    values = [{"rank": 0, "x": (1, 2)}, {"rank": 1, "error": ValueError("any object")}]
    for _ in range(3):  # a name may be used again
        got = both(*[lambda r=r: pair[r].exchange("it", values[r], (0, 1), SOON_S) for r in range(2)])
        assert [[v["rank"] for v in found] for found in got] == [[0, 1], [0, 1]]
        assert str(got[0][1]["error"]) == "any object"
    assert pair[0].exchange("alone", "mine", (0,), SOON_S) == ["mine"]
    got = both(lambda: pair[0].exchange("it", 0, (1, 0), SOON_S), lambda: pair[1].exchange("it", 1, (1, 0), SOON_S))
    assert got == [[1, 0], [1, 0]]


def test_large_values(pair):
    big = bytes(range(256)) * (4 * 2**20 // 256)
    got = both(*[lambda r=r: pair[r].exchange("big", (r, big), (0, 1), SOON_S) for r in range(2)])
    assert got[0] == got[1] == [(0, big), (1, big)]


def test_barrier(pair):
    passed = []

    def late():
        time.sleep(0.2)
        passed.append("late")
        pair[1].barrier("b", SOON_S)

    both(lambda: (pair[0].barrier("b", SOON_S), passed.append("first")), late)
    assert passed == ["late", "first"]


def test_who_does_not_come_is_named(pair):
    with pytest.raises(
        CollectiveTimeoutError, match=r"rank 1 did not come within 0\.2 s to b, where rank 0 waits"
    ) as e:
        pair[0].barrier("b", 0.2)
    assert "\n  rank 1 is at " in str(e.value)


def test_a_new_world_finds_nothing_of_the_last(pair):
    pair[0].put("port", 1)
    pair[0].put("/for all", 2)
    assert pair[1].get("port", SOON_S) == 1
    for channel in pair:
        channel.begin()
    with pytest.raises(CollectiveTimeoutError):
        pair[1].get("port", 0.1)
    assert pair[1].get("/for all", SOON_S) == 2


# Who may join


@pytest.mark.parametrize(
    ("rank", "size", "text"), [(0, 2, "a rank 0 already"), (1, 3, "does not belong to this world of 2")]
)
def test_a_wrong_rank_is_refused(pair, coordinator, rank, size, text):
    with pytest.raises(StateError, match=text):
        Channel([coordinator.address], "token", rank, size)


def test_another_jobs_coordinator_is_passed_over(coordinator, ended):
    other = Coordinator(2, "another job")
    other.start()
    try:
        channel = Channel([other.address, coordinator.address], "token", 0, 2)
        assert (coordinator.joined, other.joined) == (True, False)
        channel.close()
        with pytest.raises(CollectiveTimeoutError, match="another job's coordinator"):
            Channel([other.address], "token", 0, 2, connect_s=0.2)
    finally:
        other.close()


def test_nobody_listens(ended):
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    with pytest.raises(CollectiveTimeoutError, match=r"rank 1 must reach .* refused"):
        Channel([address], "token", 1, 2, connect_s=0.2)


def test_a_rank_that_grew_tired_of_waiting_for_its_welcome_comes_again(coordinator, ended):
    hello = encoded({"t": "hello", "job": "token", "rank": 0, "size": 2})
    with socket.create_connection(coordinator.address) as early, socket.create_connection(coordinator.address) as wrong:
        early.sendall(hello)
        wrong.sendall(hello + encoded({"t": "put", "key": "x", "value": 1}))
    time.sleep(0.2)
    channel = Channel([coordinator.address], "token", 0, 2)
    channel.put("x", 2)
    assert channel.get("x", SOON_S) == 2
    time.sleep(0.5)
    assert coordinator.verdict is None
    channel.close()


def test_what_follows_the_greeting_at_once_may_be_long(coordinator, ended):
    for _ in range(3):
        made = Coordinator(1, "token")
        made.start()
        channel = Channel([made.address], "token", 0, 1)
        assert channel.exchange("long", "x" * 100_000, (0,), SOON_S) == ["x" * 100_000]
        channel.close()
        made.close()


def test_strangers_do_no_harm(coordinator, ended):
    strangers = [socket.create_connection(coordinator.address) for _ in range(100)]
    words = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\xff\n" * 9,
        b"[]\n",
        b'{"t":"put"}\n',
        b"x" * (GREETING_BYTES + 2),
        b"{}\n",
    ]
    words += [encoded({"t": "hello", "job": "guess", "rank": 0, "size": 2}), encoded({"t": "hello", "job": "token"})]
    for stranger, word in zip(strangers, words, strict=False):
        stranger.sendall(word)
    strangers[-1].sendall(b'{"t":"hel')  # a line that never ends
    channels = [Channel([coordinator.address], "token", rank, 2) for rank in range(2)]
    got = both(*[lambda r=r: channels[r].exchange("it", r, (0, 1), SOON_S) for r in range(2)])
    assert got == [[0, 1], [0, 1]]
    assert coordinator.verdict is None
    for stranger in strangers[: len(words)]:
        stranger.settimeout(SOON_S)
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
    for connection in (*strangers, *channels):
        connection.close()


def test_a_slow_reader_does_not_hold_up_the_others(coordinator, ended):
    slow = socket.create_connection(coordinator.address)
    for byte in encoded({"t": "hello", "job": "token", "rank": 1, "size": 2}) + encoded({"t": "here"}):
        slow.sendall(bytes([byte]))
    channel = Channel([coordinator.address], "token", 0, 2)
    channel.put("big", "x" * (8 * 2**20))
    for number in range(8):  # 64 MiB that it never reads
        slow.sendall(encoded({"t": "get", "key": "0/big", "id": number}))
    time.sleep(0.3)
    start = time.monotonic()
    assert channel.exchange("alone", 1, (0,), SOON_S) == [1]
    assert time.monotonic() - start < 2.0
    channel.close()
    slow.close()


# What ranks report


def test_the_report_tells_of_all(pair):
    rings = [Ring(), Ring()]
    for rank, channel in enumerate(pair):
        channel.begin()
        channel.watch(rings[rank], 30.0)
        event = rings[rank].begin(rank, "all_reduce(sum)", f"train.py:{rank}", (4,), "float32", 16)
        rings[rank].end(event, None, None)
    text = pair[0].report()
    assert text.startswith("rank 0 is at ")
    assert "collective 0, all_reduce(sum) of float32[4] at train.py:0: took" in text
    assert "rank 1 is at" in text
    assert "after collective 0, all_reduce(sum) of float32[4] at train.py:1" in text


def test_different_calls_are_found(pair, ended):
    for rank, channel in enumerate(pair):
        ring = Ring()
        ring.begin(rank, "all_reduce(sum)", f"train.py:{rank}", (4 + rank,), "float32", 16)
        channel.begin()
        channel.watch(ring, 30.0)
    until(lambda: all(channel.verdict is not None for channel in pair))
    error = pair[0].explain(RuntimeError("gloo says little"), "all_reduce")
    assert isinstance(error, CollectiveMismatchError)
    assert "rank 0: collective 0, all_reduce(sum) of float32[4] at train.py:0" in str(error)
    assert "rank 1: collective 0, all_reduce(sum) of float32[5] at train.py:1" in str(error)
    with pytest.raises(CollectiveMismatchError):
        pair[0].barrier("b", SOON_S)


@pytest.mark.parametrize("uneven", [True, False])
def test_gathered_lengths_may_differ_where_the_engine_can(pair, ended, uneven):
    for rank, channel in enumerate(pair):
        ring = Ring()
        ring.begin(rank, "all_gather", "train.py:1", (4 + rank, 2), "float32", 16)
        channel.begin()
        channel.watch(ring, 30.0, uneven)
    if uneven:
        assert "rank 1" in pair[0].report()
        assert pair[0].verdict is None
    else:
        until(lambda: pair[0].verdict is not None)


def test_send_and_recv_are_not_compared(pair, ended):
    for rank, channel in enumerate(pair):
        ring = Ring()
        ring.begin(rank, ("send(to=1)", "recv(source=0)")[rank], "train.py:1", (4,), "float32", 16, counted=False)
        ring.begin(rank, "barrier", "train.py:2", (), "", 0)
        channel.begin()
        channel.watch(ring, 30.0)
    assert "rank 1" in pair[0].report()
    assert pair[0].verdict is None


def test_without_a_verdict_the_engines_own_error_is_told(pair, ended):
    ring = Ring()
    ring.begin(0, "all_reduce(sum)", "train.py:7", (4,), "float32", 16)
    pair[0].watch(ring, 30.0)
    error = pair[0].explain(RuntimeError("bad dtype"), "all_reduce")
    assert str(error) == (
        "rank 0 failed in collective 0, all_reduce(sum) of float32[4] at train.py:7: RuntimeError: bad dtype"
    )
    assert not ended


# The end


def test_an_end_without_a_bye_fails_the_others(pair, ended):
    threading.Timer(0.1, pair[1]._socket.shutdown, (socket.SHUT_RDWR,)).start()
    with pytest.raises(ReplicaFailedError, match="rank 1 ended without a word"):
        pair[0].get("never", SOON_S)
    assert pair[0].verdict.kind == "failed"
    assert 0 not in ended


def test_a_main_thread_that_does_not_notice_is_ended(pair, ended):
    pair[1]._socket.shutdown(socket.SHUT_RDWR)
    until(lambda: 0 in ended)
    assert pair[0].verdict.rank == 1


def test_leaving_while_another_waits(pair, ended):
    threading.Timer(0.1, pair[1].close).start()
    with pytest.raises(CollectiveMismatchError, match=r"rank 1 ended, while others wait for it in 0/b"):
        pair[0].barrier("b", SOON_S)


def test_an_orderly_end_is_no_fault(pair, coordinator, ended):
    pair[1].close()
    coordinator.close()
    until(lambda: pair[0]._orderly)
    time.sleep(0.5)
    assert pair[0].verdict is None
    assert not ended


def test_the_end_of_the_launcher_ends_the_ranks(pair, coordinator, ended):
    for peer in list(coordinator._peers.values()):  # as when its process is killed
        peer.socket.shutdown(socket.SHUT_RDWR)
    until(lambda: set(ended) == {0, 1})
    assert pair[0].verdict.rank == -1
    assert "the launcher has gone" in pair[0].verdict.text


def test_a_failure_is_told_to_all(pair, ended):
    told = []
    pair[0].on_verdict(told.append)
    pair[1].failed("Traceback (most recent call last):\nValueError: boom\n")
    until(lambda: told)
    assert told[0].text.startswith("rank 1 failed: ValueError: boom")
    assert pair[0].verdict is told[0]


def test_closing_twice(pair, ended):
    pair[0].close()
    pair[0].close()
    with pytest.raises(StateError, match="after its end"):
        pair[0].get("x", 1.0)


# Lines


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.dictionaries(st.text(), st.integers() | st.text() | st.none()), max_size=6),
    st.lists(st.integers(1, 40), min_size=1),
)
def test_messages_come_out_as_they_went_in_however_they_are_cut(messages, cuts):
    stream = b"".join(map(encoded, messages))
    lines, found, place, turn = Lines(), [], 0, 0
    while place < len(stream):
        found += lines.feed(stream[place : place + cuts[turn % len(cuts)]])
        place += cuts[turn % len(cuts)]
        turn += 1
    assert found == messages


@pytest.mark.parametrize("data", [b"x" * 11, b"{}\n" + b"x" * 11, b'{"a":"long one"}\n', b"[1]\n", b"\xff\n", b"\n"])
def test_what_is_no_message_is_refused(data):
    with pytest.raises(ValueError):
        Lines(10).feed(data)
