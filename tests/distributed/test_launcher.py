"""`unisync run`: exit codes, output, logs, signals, several machines, and that nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from typer.testing import CliRunner

from unisync.cli import app

pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs POSIX processes")

RANK = "import os, sys, time, signal, subprocess\nrank = int(os.environ['UNISYNC_RANK'])\n"
ROOT = Path(__file__).parent.parent.parent
ENDS_S = 10  # within which a failure anywhere must have ended everything


@pytest.fixture
def script(tmp_path):
    """script(text) -> the path of a program in which `rank` is known."""

    def write(text: str) -> str:
        file = tmp_path / "program.py"
        file.write_text(RANK + text)
        return str(file)

    return write


@pytest.fixture
def mark(monkeypatch):
    """A word in the environment of all that the test starts, none of which may be left when it ends."""
    word = f"mark-{uuid.uuid4().hex}"
    monkeypatch.setenv("UNISYNC_TEST_MARK", word)
    yield word
    left = wait_until(lambda: not marked(word), ENDS_S)
    pids = marked(word)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert left, f"left behind: {pids}"


def marked(word: str) -> list[int]:
    """The processes with a word in their environment, but this one and its parents."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            if stat[0] != "Z" and word.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


def wait_until(condition, within_s: float) -> bool:
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return bool(condition())


def run_here(*arguments: str):
    """The command in this process. Plain programs need no framework, whatever the backend is."""
    return CliRunner().invoke(app, ["run", "--backend", "torch", *arguments])


def start(*arguments: str, **options) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "unisync", "run", "--backend", "torch", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.Popen(command, env=environment, **pipes)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# Arguments


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--replicas", "0", "x.py"], ["--replicas", "at least 1", "got 0"]),
        (["--timeout", "0", "x.py"], ["--timeout", "positive"]),
        (["--nnodes", "0", "x.py"], ["--nnodes", "at least 1"]),
        (["--nnodes", "2", "--node-rank", "2", "--rendezvous", "a:1", "x.py"], ["--node-rank", "0 to 1", "got 2"]),
        (["--nnodes", "2", "x.py"], ["`--rendezvous` must be given", "HOST:"]),
        (["--nnodes", "2", "--rendezvous", "nowhere", "x.py"], ["--rendezvous", "HOST:PORT", "nowhere"]),
        (["--nnodes", "2", "--rendezvous", "0.0.0.0:29400", "x.py"], ["--rendezvous", "other machines reach"]),
        (["--nnodes", "2", "--rendezvous", "192.0.2.1:29400", "x.py"], ["--rendezvous", "address of this machine"]),
        (["--log-dir", "x.py/logs", "x.py"], ["`--log-dir` must be a folder that can be made", "x.py/logs"]),
        (["nowhere.py"], ["nowhere.py", "does not exist", "-m nowhere"]),
        ([], ["`script`", "got none"]),
        (["-"], ["`script`", "got none"]),
    ],
)
def test_bad_arguments_are_one_line(arguments, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").write_text("raise SystemExit('must not run')")
    result = run_here(*arguments)
    assert result.exit_code == 1
    line = result.stderr
    assert line.startswith("unisync: ")
    assert line.count("\n") == 1
    for part in says:
        assert part in line


def test_an_unknown_backend_is_named(script):
    result = CliRunner().invoke(app, ["run", "--backend", "pytorch", script("")])
    assert result.exit_code == 1
    assert "Try: 'torch'" in result.stderr


def test_what_follows_the_script_is_its_own(script, mark):
    result = run_here("--replicas", "1", script("print(sys.argv[1:])"), "--replicas", "7", "-m", "x", "--", "--help")
    assert result.stdout == "[0] ['--replicas', '7', '-m', 'x', '--', '--help']\n"


@pytest.mark.slow
def test_what_follows_the_module_is_its_own(tmp_path, monkeypatch, mark):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    (tmp_path / "mine.py").write_text("import sys; print(sys.argv[1:])")
    result = run_here("--replicas", "1", "-m", "mine", "--replicas", "7", "-k", "a")
    assert result.stdout == "[0] ['--replicas', '7', '-k', 'a']\n"


def test_the_environment_of_a_rank(script, mark, monkeypatch):
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    names = (
        "RANK SIZE LOCAL_RANK LOCAL_SIZE ADDRESS TIMEOUT BACKEND".replace(" ", " UNISYNC_").replace(
            "RANK", "UNISYNC_RANK", 1
        )
    ).split()
    names += ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"]
    text = (
        f"print(*(os.environ[n] for n in {names}), bool(os.environ['UNISYNC_JOB']), os.environ['UNISYNC_COORDINATOR'])"
    )
    result = run_here("--replicas", "2", "--timeout", "12.5", script(text))
    assert result.exit_code == 0, result.stderr
    share = str(max(1, len(os.sched_getaffinity(0)) // 2))
    for rank in ("0", "1"):
        assert re.search(
            rf"^\[{rank}\] {rank} 2 {rank} 2 127\.0\.0\.1 12\.5 torch {share} 3 {share} True 127\.0\.0\.1:\d+$",
            result.stdout,
            re.MULTILINE,
        )


# Exit codes


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("", 0, ""),
        ("sys.exit(3 * rank)", 3, "rank 1 exited with code 3"),
        ("if rank: os.kill(os.getpid(), 9)", 137, "rank 1 was killed by SIGKILL"),
        ("if rank: os.kill(os.getpid(), signal.SIGSEGV)", 139, "rank 1 was killed by SIGSEGV"),
        ("if rank: sys.exit('no such thing')", 1, "no such thing"),
    ],
)
def test_the_exit_code_is_the_failing_ranks(text, code, says, script, mark):
    result = run_here("--replicas", "2", script(text))
    assert result.exit_code == code
    assert says in result.stderr
    assert bool(result.stderr) == bool(says)


@pytest.mark.slow
def test_the_last_lines_are_the_first_failing_ranks_traceback(script, mark):
    text = """
def outer():
    try:
        {}["key"]
    except KeyError as error:
        raise ValueError("boom") from error
if rank == 1:
    outer()
time.sleep(60)
"""
    started = time.monotonic()
    result = run_here("--replicas", "3", script(text))
    assert time.monotonic() - started < ENDS_S
    assert result.exit_code == 1
    end = result.stderr[result.stderr.index("unisync: rank 1 ") :]
    assert "KeyError: 'key'" in end
    assert "line 8, in outer" in end.replace("line 9", "line 8")
    assert end.endswith("ValueError: boom\n")


@pytest.mark.slow
def test_of_two_failures_the_first_counts(script, mark):
    result = run_here("--replicas", "2", script("time.sleep(0.2 if rank == 1 else 30); sys.exit(10 + rank)"))
    assert result.exit_code == 11


@pytest.mark.slow
def test_a_rank_that_ignores_sigterm_is_killed(script, mark):
    text = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nif rank: time.sleep(0.5); sys.exit(4)\ntime.sleep(60)"
    started = time.monotonic()
    assert run_here("--replicas", "2", script(text)).exit_code == 4
    assert time.monotonic() - started < ENDS_S


@pytest.mark.slow
def test_a_grandchild_is_not_left_running(script, mark):
    # One in the rank's own group, one in a session of its own, one that has thrown its environment away.
    text = """
sleep = [sys.executable, "-S", "-c", "import time; time.sleep(100)"]
subprocess.Popen(sleep)
subprocess.Popen(sleep, start_new_session=True)
subprocess.Popen(sleep, env={"UNISYNC_TEST_MARK": os.environ["UNISYNC_TEST_MARK"]}, process_group=0)
"""
    started = time.monotonic()
    assert run_here("--replicas", "2", script(text)).exit_code == 0
    assert time.monotonic() - started < ENDS_S
    assert marked(mark) == []


# Output


def test_lines_have_their_rank(script, mark):
    text = "print('out', rank); print('err', rank, file=sys.stderr); print('two\\n\\nlines')"
    result = run_here("--replicas", "2", script(text))
    for rank in "01":
        own = [line for line in result.stdout.splitlines() if line.startswith(f"[{rank}] ")]
        assert own == [f"[{rank}] out {rank}", f"[{rank}] two", f"[{rank}] ", f"[{rank}] lines"]
        assert f"[{rank}] err {rank}\n" in result.stderr


OUTPUTS = {  # what a rank writes → what comes out
    "no end of line": ("b'half'", b"[0] half\n"),
    "not UTF-8": (r"b'\xff\xfe\x00 \xe9\n'", b"[0] \xff\xfe\x00 \xe9\n"),
    "carriage returns": (r"b'1%\r2%\r3%\n'", b"[0] 1%\r2%\r3%\n"),
    "nothing": ("b''", b""),
    "empty lines": (r"b'\n\n'", b"[0] \n[0] \n"),
    "a line longer than the buffer": ("b'x' * 100_000 + b'end'", None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OUTPUTS)
def test_bytes_come_out_as_they_went_in(name, script, mark, tmp_path):
    written, expected = OUTPUTS[name]
    result = run_here("--log-dir", str(tmp_path / "logs"), script(f"sys.stdout.buffer.write({written})"))
    assert result.exit_code == 0
    got = result.stdout_bytes
    if expected is None:
        assert got.replace(b"[0] ", b"").replace(b"\n", b"") == eval(written)
    else:
        assert got == expected
    assert (tmp_path / "logs" / "rank-0.log").read_bytes() == eval(written)


@pytest.mark.slow
def test_huge_output_is_whole(script, mark, tmp_path):
    text = "for i in range(200_000): sys.stdout.write(f'{rank} {i:06d} ' + 'x' * 80 + '\\n')"
    result = run_here("--replicas", "2", "--log-dir", str(tmp_path), script(text))
    lines = result.stdout.splitlines()
    for rank in (0, 1):
        own = [line for line in lines if line.startswith(f"[{rank}] ")]
        assert own == [f"[{rank}] {rank} {i:06d} " + "x" * 80 for i in range(200_000)]
        assert (tmp_path / f"rank-{rank}.log").read_text().count("\n") == 200_000


@pytest.mark.slow
def test_output_comes_while_the_program_runs(script, mark):
    with start("--replicas", "1", script("print('now'); time.sleep(60)")) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "[0] now\n"
        process.send_signal(signal.SIGTERM)


@pytest.mark.slow
def test_the_log_holds_both_streams(script, mark, tmp_path):
    logs = tmp_path / "a" / "b"
    text = "print('out', rank); sys.stdout.flush(); time.sleep(0.3); print('err', rank, file=sys.stderr)"
    run_here("--replicas", "2", "--log-dir", str(logs), script(text))
    assert sorted(p.name for p in logs.iterdir()) == ["rank-0.log", "rank-1.log"]
    assert (logs / "rank-1.log").read_text() == "out 1\nerr 1\n"


@pytest.mark.slow
def test_colour_only_on_a_terminal(script, mark):
    import pty

    ours, theirs = pty.openpty()
    with start("--replicas", "1", script("print('hello')"), stdout=theirs) as process:
        process.wait(30)
        os.close(theirs)
        assert os.read(ours, 1000) == b"\x1b[31m[0]\x1b[0m hello\r\n"
    os.close(ours)


@pytest.mark.slow
def test_a_reader_that_leaves_ends_the_job(script, mark):
    with start("--replicas", "2", script("while True: print('x' * 100); time.sleep(0.001)")) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(ENDS_S) == 128 + signal.SIGPIPE


# Signals


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_all(name, script, mark):
    number = getattr(signal, name)
    with start("--replicas", "2", script("print('up'); time.sleep(60)")) as process:
        assert process.stdout is not None
        process.stdout.readline(), process.stdout.readline()
        started = time.monotonic()
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
        assert time.monotonic() - started < 3
        assert process.returncode == 128 + number
        assert err == f"unisync: ended by {name}\n"
    assert marked(mark) == []


@pytest.mark.slow
def test_a_rank_may_clean_up_when_the_user_ends_the_job(script, mark, tmp_path):
    text = f"""
def clean(*_):
    time.sleep(1)
    open(os.path.join({str(tmp_path)!r}, f'saved-{{rank}}'), 'w').close()
    sys.exit(0)
signal.signal(signal.SIGTERM, clean)
print('up')
time.sleep(60)
"""
    with start("--replicas", "2", script(text)) as process:
        assert process.stdout is not None
        process.stdout.readline(), process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    assert (tmp_path / "saved-0").exists()
    assert (tmp_path / "saved-1").exists()


@pytest.mark.slow
def test_the_second_ctrl_c_does_not_wait(script, mark):
    text = "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); time.sleep(60)"
    with start("--replicas", "2", script(text)) as process:
        assert process.stdout is not None
        process.stdout.readline(), process.stdout.readline()
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert time.monotonic() - started < 3


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_reaches_the_launcher_alone(script, mark):
    # A terminal sends SIGINT to the launcher's whole process group; the ranks must hear of it from the launcher.
    text = "signal.signal(signal.SIGINT, lambda *_: print('interrupted'))\nprint('up')\ntime.sleep(60)"
    with start("--replicas", "2", script(text), start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline(), process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=30)
        assert "interrupted" not in out
        assert process.returncode == 130


@pytest.mark.slow
def test_a_rank_killed_from_outside(script, mark):
    with start("--replicas", "2", script("print(os.getpid()); time.sleep(60)")) as process:
        assert process.stdout is not None
        lines = process.stdout.readline(), process.stdout.readline()
        victim = next(int(line.split()[1]) for line in lines if line.startswith("[1]"))
        os.kill(victim, signal.SIGKILL)
        _, err = process.communicate(timeout=ENDS_S)
        assert process.returncode == 137
        assert err.splitlines()[-1] == "unisync: rank 1 was killed by SIGKILL"


@pytest.mark.slow
def test_a_launcher_killed_takes_its_ranks_with_it(script, mark):
    text = "subprocess.Popen(['sleep', '100'], start_new_session=True); print('up'); time.sleep(100)"
    with start("--replicas", "2", script(text)) as process:
        assert process.stdout is not None
        process.stdout.readline(), process.stdout.readline()
        process.kill()
        process.wait()
        assert wait_until(lambda: not marked(mark), ENDS_S)


# Several machines, here two launchers on this one


def pair(first: list[str], second: list[str], port: int, **options) -> list[subprocess.Popen[str]]:
    common = ["--nnodes", "2", "--rendezvous", f"127.0.0.1:{port}"]
    return [start(*common, "--node-rank", str(node), *own, **options) for node, own in enumerate((first, second))]


def ends(processes) -> list[tuple[int, str, str]]:
    found = []
    for process in processes:
        out, err = process.communicate(timeout=60)
        found.append((process.returncode, out, err))
    return found


@pytest.mark.slow
def test_two_machines(script, mark, tmp_path):
    names = ["UNISYNC_RANK", "UNISYNC_SIZE", "UNISYNC_LOCAL_RANK", "UNISYNC_LOCAL_SIZE"]
    program = script(f"print(*(os.environ[n] for n in {names}), os.environ['UNISYNC_JOB'])")
    first, second = ends(pair(["--replicas", "1", program], ["--replicas", "2", program], free_port()))
    assert (first[0], second[0]) == (0, 0), first[2] + second[2]
    jobs = {line.split()[-1] for line in (first[1] + second[1]).splitlines()}
    assert len(jobs) == 1
    rows = sorted(line.rpartition(" ")[0] for line in (first[1] + second[1]).splitlines())
    assert rows == ["[0] 0 3 0 1", "[1] 1 3 0 2", "[2] 2 3 1 2"]


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_failure_on_one_machine_ends_both(rank, script, mark):
    program = script(f"if rank == {rank}: raise ValueError('boom')\ntime.sleep(60)")
    started = time.monotonic()
    for code, _, err in ends(pair([program], [program], free_port())):
        assert code == 1
        assert f"unisync: rank {rank} exited with code 1" in err
        assert err.endswith("ValueError: boom\n")
    assert time.monotonic() - started < ENDS_S + 2


@pytest.mark.slow
@pytest.mark.parametrize("node", [0, 1])
def test_ctrl_c_on_one_machine_ends_both(node, script, mark):
    program = script("print('up'); time.sleep(60)")
    processes = pair([program], [program], free_port())
    for process in processes:
        process.stdout.readline()
    processes[node].send_signal(signal.SIGINT)
    for code, _, err in ends(processes):
        assert code == 130
        assert err == f"unisync: ended by SIGINT on node {node}\n"


@pytest.mark.slow
@pytest.mark.parametrize("node", [0, 1])
def test_a_launcher_killed_ends_the_other_machine_too(node, script, mark):
    program = script("print('up'); time.sleep(60)")
    processes = pair([program], [program], free_port())
    for process in processes:
        process.stdout.readline()
    processes[node].kill()
    code, _, err = ends(processes)[1 - node]
    assert code == 1
    assert f"node {node}'s launcher has ended without a word" in err


@pytest.mark.slow
def test_a_machine_that_vanishes_is_missed(script, mark):
    # A stopped launcher is as silent as a machine without power: its connections stay open.
    program = script("print('up'); time.sleep(60)")
    processes = pair([program], [program], free_port())
    for process in processes:
        process.stdout.readline()
    processes[1].send_signal(signal.SIGSTOP)
    started = time.monotonic()
    try:
        _, err = processes[0].communicate(timeout=30)
        assert time.monotonic() - started < 15
        assert processes[0].returncode == 1
        assert "unisync: node 1's launcher has not been heard of for 6 s" in err
    finally:
        processes[1].send_signal(signal.SIGCONT)
    assert ends(processes[1:])[0][0] == 1


@pytest.mark.slow
def test_a_machine_that_never_comes_is_named(script, mark):
    common = ["--nnodes", "3", "--timeout", "1", "--rendezvous", f"127.0.0.1:{free_port()}"]
    processes = [start(*common, "--node-rank", str(n), script("")) for n in (0, 1)]
    for code, _, err in ends(processes):
        assert code == 1
        assert "node 2 did not come" in err


@pytest.mark.slow
def test_node_0_that_never_comes(script, mark):
    port = free_port()
    result = run_here(
        "--nnodes", "2", "--node-rank", "1", "--timeout", "1", "--rendezvous", f"127.0.0.1:{port}", script("")
    )
    assert result.exit_code == 1
    assert f"node 0 must listen at 127.0.0.1:{port}" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--nnodes", "3", "--node-rank", "1"], "`--nnodes` must be the same"),
        (["--nnodes", "2", "--node-rank", "1", "--backend", "jax"], "`--backend` must be the same"),
    ],
)
def test_machines_that_disagree(options, says, script, mark):
    rendezvous = ["--rendezvous", f"127.0.0.1:{free_port()}"]
    with start("--nnodes", "2", "--timeout", "20", *rendezvous, script("")) as first:
        result = run_here(*rendezvous, "--timeout", "20", *options, script(""))
        assert result.exit_code == 1
        assert says in result.stderr
        first.send_signal(signal.SIGTERM)
        assert first.wait(30) == 143


@pytest.mark.slow
def test_strangers_at_the_rendezvous_do_no_harm(script, mark):
    port = free_port()
    program = script("")
    with start("--nnodes", "2", "--rendezvous", f"127.0.0.1:{port}", program) as first:
        for word in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 10_000, b'{"t": "join"}\n'):
            assert wait_until(lambda: _says(port, word), 20)  # noqa: B023 - called at once
        second = start("--nnodes", "2", "--node-rank", "1", "--rendezvous", f"127.0.0.1:{port}", program)
        assert [code for code, _, _ in ends([first, second])] == [0, 0]


def _says(port: int, word: bytes) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as stranger:
        stranger.sendall(word)
        return True
    return False


@pytest.mark.slow
def test_a_job_with_a_secret(script, mark, monkeypatch):
    port = free_port()
    common = ["--nnodes", "2", "--timeout", "30", "--rendezvous", f"127.0.0.1:{port}"]
    monkeypatch.setenv("UNISYNC_JOB", "right")
    with start(*common, script("")) as first:
        monkeypatch.setenv("UNISYNC_JOB", "wrong")
        assert "UNISYNC_JOB must be the same" in run_here(*common, "--node-rank", "1", script("")).stderr
        monkeypatch.setenv("UNISYNC_JOB", "right")
        assert run_here(*common, "--node-rank", "1", script("")).exit_code == 0
        assert first.wait(30) == 0


# Many at a time, and one after the other


@pytest.mark.slow
def test_launches_at_the_same_time_do_not_clash(script, mark):
    program = script("print(os.environ['UNISYNC_COORDINATOR'])")
    found = ends([start("--replicas", "2", program) for _ in range(4)])
    assert [code for code, _, _ in found] == [0] * 4
    ports = [{line.split(":")[-1] for line in out.splitlines()} for _, out, _ in found]
    assert all(len(p) == 1 for p in ports)
    assert len(set.union(*ports)) == 4


@pytest.mark.slow
def test_nothing_is_left_in_this_process(script, mark):
    import threading

    run_here(script(""))
    before = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        assert run_here("--replicas", "2", script("sys.exit(rank)")).exit_code == 1
    assert wait_until(lambda: (threading.active_count(), len(os.listdir("/proc/self/fd"))) <= before, 5)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_launches_in_a_row(backend):
    """`python -m benchmarks.launching --in-a-row 100` is the long form."""
    command = [sys.executable, "-m", "benchmarks.launching", "--in-a-row", "10", backend]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "UNISYNC_JAX_DEVICES": "", "UNISYNC_TF_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 problems" in done.stdout
