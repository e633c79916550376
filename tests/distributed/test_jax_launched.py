"""jax's engine of launched worlds beside what every engine must do: shards, compiled programs, devices, and its end."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from under_test import BACKENDS

if "jax" not in BACKENDS or os.environ.get("UNISYNC_RANK"):
    pytest.skip("jax is not under test, or a launcher has started this process", allow_module_level=True)

import jax
from jax.sharding import Mesh, NamedSharding

from unisync.backends import import_backend
from unisync.errors import StateError

import_backend("jax")
from unisync.backends.jax import _aborts, _cluster, _failures, _layout, _pace  # noqa: E402

ROOT = Path(__file__).parent.parent.parent
pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]


@pytest.fixture
def launch(tmp_path):
    """launch(code): a program run in two processes; what the launcher says."""

    def launch(code, *, timeout_s=60.0, **variables):
        script = tmp_path / "program.py"
        script.write_text(
            "import os, signal, sys, time\nimport numpy as np\nimport unisync as us\n" + textwrap.dedent(code)
        )
        command = [sys.executable, "-m", "unisync", "run", "--backend", "jax", "--replicas", "2"]
        env = {k: v for k, v in os.environ.items() if k not in ("UNISYNC_JAX_DEVICES", "XLA_FLAGS")}
        return subprocess.run(
            [*command, "--timeout", str(timeout_s), str(script)],
            env={**env, "PYTHONPATH": str(ROOT), **variables},
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )

    return launch


def check(run, says=2):
    assert run.returncode == 0, f"{run.stdout[-3000:]}\n{run.stderr[-3000:]}"
    assert run.stdout.count("fine") == says, run.stdout


# In worlds


def test_arrays_stay_shards(launch):
    check(
        launch("""
        import jax
        world = us.init_distributed()
        assert jax.local_device_count() == 1 and jax.device_count() == 2
        traces = []

        def step(x, s):
            traces.append(x.shape)
            return us.all_reduce(x * s, op="sum") + us.astype(us.replica_index(), us.float32)

        run, bare = us.spmd(step), us.ones(4)
        y = run(world.scatter(np.arange(4, dtype=np.float32)), np.float32(1.0))
        assert y.native.shape == (2, 2) and not y.native.is_fully_addressable
        np.testing.assert_array_equal(y[0], np.array([2.0, 4.0]) + world.process_index)
        scale = world.replicate(np.float32(1.0))
        run(y, scale), us.all_reduce(bare)
        traces.clear()
        engine = world._engine
        with jax.transfer_guard("disallow"):
            for _ in range(40):  # longer than the queue of steps
                y = run(y, scale)
                z = us.all_reduce(bare)
        assert not traces and len(engine._compiled) == 1
        compiled, *_ = next(iter(engine._compiled.values()))
        assert compiled._cache_size() == 1
        step = engine.spmd(lambda x: x + 1.0, donate_argnums=(0,))
        later = step(y)
        assert y.native.is_deleted() and np.isfinite(later[0]).all()
        assert z.devices() == {world.device}
        print("fine")
    """)
    )


def test_what_cannot_be_compiled_outside_spmd_says_so(launch):
    check(
        launch("""
        from unisync.errors import StateError, TraceError
        world = us.init_distributed()
        x = us.ones(3)
        for traced in (us.jit(us.all_reduce), us.grad(lambda x: us.sum(us.all_reduce(x)))):
            try:
                traced(x)
            except TraceError as error:
                assert "us.spmd" in str(error)
            else:
                raise AssertionError
        try:
            us.spmd(lambda x: us.all_gather_object(1))(x)
        except StateError as error:
            assert "share" in str(error)
        else:
            raise AssertionError
        assert us.all_gather_object(world.process_index) == [0, 1]
        grads = us.spmd(us.grad(lambda x: us.sum(us.all_reduce(x, op="sum") ** 2)))(x)
        np.testing.assert_array_equal(grads[0], np.full(3, 8.0))
        handle = us.all_reduce(x, op="sum", async_op=True)
        np.testing.assert_array_equal(handle.wait(), np.full(3, 2.0))
        print("fine")
    """)
    )


def test_programs_without_collectives_may_run_on_one_process(launch):
    check(
        launch("""
        world = us.init_distributed(timeout_s=20)
        x = world.scatter(np.arange(2.0))
        alone = us.spmd(lambda x: x * 2)
        if world.process_index == 1:
            for _ in range(20):
                y = alone(x)
            assert float(y[0][0]) == 2.0
        us.barrier()
        assert float(us.spmd(us.all_reduce)(x)[0][0]) == 0.5
        print("fine")
    """)
    )


@pytest.mark.parametrize("small", [True, False], ids=["small results", "large results"])
def test_a_queue_that_takes_longer_than_the_timeout_goes_on(launch, small):
    check(
        launch(f"""
        import jax
        world = us.init_distributed(timeout_s=2)

        def slow(x):
            time.sleep(0.3)
            return x

        def fn(x):
            y = us.all_reduce(jax.pure_callback(slow, jax.ShapeDtypeStruct(x.shape, x.dtype), x))
            return y[:1] if {small} else y

        step, x = us.spmd(fn), world.replicate(np.ones(40000, np.float32))
        for i in range(20):
            y = step(x)
        assert float(us.to_numpy(y[0])[0]) == 1.0
        time.sleep(3)
        assert float(us.to_numpy(step(x)[0])[0]) == 1.0
        print("fine")
    """)
    )


class Mark:
    """An array that is there when the test says so."""

    ready = False

    def is_ready(self):
        return self.ready

    def is_deleted(self):
        return False


class Watchful(_pace.Alarm):
    period_s = 60.0

    def __init__(self):
        self.tokens = []

    def check(self, waited_s):
        raise AssertionError

    def look(self, pace):
        raise AssertionError

    def token(self, mark):
        self.tokens.append(Mark())
        return self.tokens[-1]


def test_the_oldest_of_large_steps_is_known_though_their_results_are_dropped():
    alarm = Watchful()
    pace = _pace.Pace(True, alarm)
    for _ in range(5):
        pace.stepped(Mark(), small=False)
    assert not pace.unfinished()  # nothing is left of the last one's results
    first = pace.oldest()
    assert first() is alarm.tokens[0]
    assert pace.oldest() is first
    alarm.tokens[0].ready = alarm.tokens[1].ready = True
    assert pace.oldest()() is alarm.tokens[2]
    for token in alarm.tokens:
        token.ready = True
    assert pace.oldest() is None
    pace.end()


def test_a_world_made_again(launch):
    check(
        launch("""
        for i in range(3):
            with us.init_distributed(timeout_s=20) as world:
                run = us.spmd(lambda x: us.all_reduce(x, op="sum"))
                assert float(run(us.asarray(i + 1.0))[0]) == 2 * (i + 1)
                assert float(us.all_reduce(us.asarray(3.0))) == 3.0
        print("fine")
    """)
    )


def test_arrays_of_one_device_are_taken_as_shared_arguments(launch):
    check(
        launch("""
        import jax
        world = us.init_distributed()
        x, s = world.scatter(np.ones(2, np.float32)), us.asarray(2.0)
        committed = jax.device_put(s, world.device)
        run = us.spmd(lambda x, t: x * t["s"])
        for shared in (s, committed, np.float32(2.0), 2.0, us.all_reduce(s)):
            assert float(run(x, {"s": shared})[0][0]) == 2.0
        print("fine")
    """)
    )


# Devices and joining


@pytest.mark.parametrize(
    "variables", [{"UNISYNC_JAX_DEVICES": "4"}, {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}]
)
def test_a_process_has_one_device_whatever_the_environment_asks_for(launch, variables):
    check(launch("""
        import jax
        us.ones  # loads the backend with the first array, not before
        world = us.init_distributed()
        assert jax.local_device_count() == 1, jax.local_devices()
        assert float(us.all_reduce(us.asarray(world.process_index + 0.0))) == 0.5
        print("fine")
    """, **variables))  # fmt: skip


def test_the_first_array_comes_after_the_world(launch):
    run = launch("x = us.ones(3)\nus.init_distributed()")
    assert run.returncode != 0
    assert "before jax makes its first array" in run.stderr
    assert "Try: us.init_distributed() at the top" in run.stderr


def test_a_program_that_has_called_jax_distributed_itself(launch):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    check(
        launch(f"""
        import jax
        rank = int(os.environ["UNISYNC_RANK"])
        jax.distributed.initialize("127.0.0.1:{port}", 2, rank, initialization_timeout=60)
        world = us.init_distributed()
        assert world.process_index == rank == jax.process_index()
        assert float(us.all_reduce(us.asarray(rank + 0.0))) == 0.5
        print("fine")
    """)
    )


def test_the_port_of_jaxs_service_stays_reserved():
    address = _cluster._reserved_address("127.0.0.1")
    host, port = address.split(":")
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((host, int(port)))
    with socket.socket() as beside:
        beside.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        beside.bind((host, int(port)))
        beside.listen()
    _cluster._port.pop().close()


def test_gloo_listens_at_the_interface(monkeypatch):
    calls = []

    def make(distributed_client, hostname=None, interface=None):
        calls.append(interface)

    monkeypatch.setattr(_cluster._jax, "make_gloo_tcp_collectives", make)
    with _cluster._gloo_at("eth7"):
        _cluster._jax.make_gloo_tcp_collectives(distributed_client=None)
    assert _cluster._jax.make_gloo_tcp_collectives is make
    assert calls == ["eth7"]


def test_gloo_of_a_jaxlib_without_interfaces_is_left_as_it_is(monkeypatch):
    def make(distributed_client):
        return distributed_client

    monkeypatch.setattr(_cluster._jax, "make_gloo_tcp_collectives", make)
    with _cluster._gloo_at("eth7"):
        assert _cluster._jax.make_gloo_tcp_collectives is make


def test_this_jaxlib_has_interfaces():
    assert "interface" in _cluster._parameters(_cluster._jax.make_gloo_tcp_collectives)


@pytest.mark.parametrize("changed", [False, True], ids=["as now", "changed"])
def test_arrays_over_all_devices_without_jaxs_checks(changed, monkeypatch):
    if changed:
        monkeypatch.setattr(_layout, "jax_array", object())
    x = jax.device_put(np.arange(3.0), jax.local_devices()[0])
    sharding = NamedSharding(Mesh(np.array(jax.local_devices()[:1]), ("replica",)), _layout.SHARED)
    whole = _layout.assembled(x, sharding, jax.typeof(x))
    assert (whole.sharding, whole.shape) == (sharding, (3,))
    np.testing.assert_array_equal(jax.jit(lambda x: x + 1)(whole), [1.0, 2.0, 3.0])


# Errors and the end


class Told:
    """A channel that knows."""

    def __init__(self):
        self.told = []

    def waiting(self, text):
        self.told.append("waiting")

    def explain(self, error, label):
        return StateError("rank 1 did it")


def test_errors_of_collectives_are_explained_where_arrays_are_read(monkeypatch):
    monkeypatch.setattr(_failures, "_channel", Told())
    of_gloo = ValueError("UNKNOWN: Gloo all-reduce failed: Connection closed by peer")
    with pytest.raises(StateError, match="rank 1 did it"):
        _failures.raise_explained(of_gloo)
    mine = ValueError("mine")
    assert _failures.explained(mine) is mine
    monkeypatch.setattr(_failures, "_channel", None)
    assert _failures.explained(of_gloo) is of_gloo


@pytest.mark.parametrize("last", [0, 1])
def test_a_rank_may_end_long_before_the_other(launch, last):
    check(
        launch(f"""
        world = us.init_distributed()
        us.barrier()
        if world.process_index == {last}:
            time.sleep(3)
            us.to_numpy(us.ones(3))
        print("fine")
    """)
    )


def test_sigterm_ends_a_process(launch):
    run = launch("""
        world = us.init_distributed()
        us.barrier()
        if world.process_index == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30)
    """)
    assert run.returncode == 128 + signal.SIGTERM
    assert "rank 1 was killed by SIGTERM" in run.stderr


def test_shapes_that_differ_between_programs_compiled_before(launch):
    # gloo ends the process when the sizes differ.
    run = launch("""
        world = us.init_distributed()
        first, second = world.scatter(np.ones((2, 4))), world.scatter(np.ones((2, 400)))
        run = us.spmd(lambda x: us.all_reduce(x))
        for x in (first, second, first):
            us.to_numpy(run(x)[0])
        us.to_numpy(run(second if world.process_index else first)[0])  # here
        us.barrier()
    """, timeout_s=3.0)  # fmt: skip
    assert run.returncode != 0
    told = run.stderr[run.stderr.rindex("\nunisync: ") :]
    for rank, (program, shape) in enumerate([(1, 4), (2, 400)]):
        call = rf"all_reduce\(mean\) of float64\[1, {shape}\] at \S*program\.py:7"
        assert re.search(rf"rank {rank}: step 3 of <lambda> \(program {program}\), .*{call}", told), told


def test_an_abort_without_a_reason_goes_on():
    code = """
        import os, signal, sys, time
        import unisync as us
        from unisync.backends.jax import _aborts

        class Channel:
            verdict = None
            def hurry(self): print("hurry", flush=True)
            def failed(self, text): print("failed", flush=True)

        _aborts.GRACE_S = 0.1
        _aborts.hold(Channel())
        os.abort()
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True,
        text=True, timeout=60,
    )  # fmt: skip
    assert run.returncode == -signal.SIGABRT
    assert run.stdout.split() == ["hurry", "failed"]
    assert _aborts._kept == []
