"""Two machines for real: two network namespaces with a cable between them, a launcher in each."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import final

import numpy as np
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).parent.parent.parent
ADDRESSES = ("10.91.0.1", "10.91.0.2")
TRAIN = ["-m", "unisync", "train", "mlp", "--data", "digits", "--epochs", "2"]
LOST_S = 15  # within which a machine is missed that has vanished, and all has ended


@final
class Hosts:
    """The two namespaces."""

    def __init__(self) -> None:
        self.names = [f"us{os.getpid()}{letter}" for letter in "ab"]

    def make(self) -> None:
        for name in self.names:
            _ip("netns", "add", name)
        first, second = self.names
        _ip("link", "add", "cable", "netns", first, "type", "veth", "peer", "name", "cable", "netns", second)
        for name, address in zip(self.names, ADDRESSES, strict=True):
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", "cable")
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "link", "set", "cable", "up")

    def remove(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def cut(self) -> None:
        """Pull the cable: no connection is closed, nothing arrives any more."""
        _ip("-n", self.names[1], "link", "set", "cable", "down")

    def shape(self, rate: str) -> None:
        """Slow the cable down, in both directions."""
        for name in self.names:
            options = ["tbf", "rate", rate, "burst", "128kb", "latency", "100ms"]
            _call("tc", "-n", name, "qdisc", "add", "dev", "cable", "root", *options)

    def start(self, backend: str, replicas: int, *program: str, timeout_s: float = 120) -> list[subprocess.Popen[str]]:
        """`unisync run` on each."""
        tool = [sys.executable, "-m", "unisync", "run", "--backend", backend, "--replicas", str(replicas)]
        tool += ["--nnodes", "2", "--rendezvous", f"{ADDRESSES[0]}:29400", "--timeout", str(timeout_s)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "UNISYNC_JAX_DEVICES": "", "UNISYNC_TF_DEVICES": ""}
        return [
            subprocess.Popen(
                ["ip", "netns", "exec", name, *tool, "--node-rank", str(node), *program],
                env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for node, name in enumerate(self.names)
        ]  # fmt: skip


def _call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


def _ip(*arguments: str) -> None:
    _call("ip", *arguments)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    """The two machines; a skip where they cannot be had."""
    if shutil.which("ip") is None or not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("network namespaces need root and the ip command")
    made = Hosts()
    try:
        made.make()
    except OSError as error:
        made.remove()
        pytest.skip(f"no network namespaces here: {error}")
    yield made
    made.remove()


def ends(processes: list[subprocess.Popen[str]], timeout_s: float = 300) -> list[tuple[int, str, str]]:
    found = []
    try:
        for process in processes:
            out, err = process.communicate(timeout=timeout_s)
            found.append((process.returncode, out, err))
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
    return found


def losses(file: Path) -> list[float]:
    return json.loads(file.read_text())["step_losses"]


def alone(backend: str, file: Path) -> list[float]:
    """The losses of one process on this machine."""
    command = [sys.executable, *TRAIN, "--backend", backend, "--json", str(file)]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    return losses(file)


def test_training_has_the_losses_of_one_process(hosts, backend, tmp_path):
    found = ends(hosts.start(backend, 2, *TRAIN, "--json", str(tmp_path / "two.json")))
    assert [code for code, _, _ in found] == [0, 0], found[0][2] + found[1][2]
    np.testing.assert_allclose(losses(tmp_path / "two.json"), alone(backend, tmp_path / "one.json"), rtol=2e-5)


def test_training_over_a_slow_link(hosts, tmp_path):
    try:
        hosts.shape("100mbit")
    except OSError as error:
        pytest.skip(f"the link cannot be shaped here: {error}")
    found = ends(hosts.start("torch", 1, *TRAIN, "--json", str(tmp_path / "two.json")))
    assert [code for code, _, _ in found] == [0, 0], found[0][2] + found[1][2]
    np.testing.assert_allclose(losses(tmp_path / "two.json"), alone("torch", tmp_path / "one.json"), rtol=2e-5)


ENDLESS = """
import unisync as us
world = us.init_distributed()
for step in range(100_000):
    us.block_until_ready(us.all_reduce(us.asarray(1.0)))
    if step == 20:
        print("under way", flush=True)
"""


def test_a_rank_killed_on_the_other_machine_is_named_on_both(hosts, backend, tmp_path):
    file = tmp_path / "program.py"
    kill = "import os, signal\n" + ENDLESS.replace("step == 20", "step == 20 and world.process_index == 1")
    file.write_text(kill.replace('print("under way", flush=True)', "os.kill(os.getpid(), signal.SIGKILL)"))
    for code, _, err in ends(hosts.start(backend, 1, str(file))):
        assert code == 137
        last = err[err.rindex("unisync: ") :]
        assert last.startswith("unisync: rank 1 was killed by SIGKILL")
        assert re.search(r"all_reduce.* at \S*program\.py:6", last), last


@pytest.mark.parametrize("at", ["a world", "a plain program"])
def test_a_machine_that_vanishes(hosts, at, tmp_path):
    file = tmp_path / "program.py"
    file.write_text(ENDLESS if at == "a world" else "print('under way', flush=True)\nimport time\ntime.sleep(300)")
    processes = hosts.start("torch", 1, str(file))
    for process in processes:
        assert process.stdout is not None
        assert "under way" in process.stdout.readline()
    hosts.cut()
    started = time.monotonic()
    for node, (code, _, err) in enumerate(ends(processes)):
        assert code == 1
        assert f"node {1 - node}'s launcher has not been heard of for 6 s" in err
    assert time.monotonic() - started < LOST_S
