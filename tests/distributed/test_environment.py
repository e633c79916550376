"""Who started a process: read from the variables that launchers really set."""

from __future__ import annotations

import pytest

from unisync.distributed.environment import PORTS, Place, first_host, place, tasks_per_node
from unisync.errors import ArgumentError

UNISYNC = {
    "UNISYNC_RANK": "3", "UNISYNC_SIZE": "4", "UNISYNC_LOCAL_RANK": "1", "UNISYNC_LOCAL_SIZE": "2",
    "UNISYNC_COORDINATOR": "10.0.0.1:4711", "UNISYNC_JOB": "token", "UNISYNC_ADDRESS": "10.0.0.2",
    "UNISYNC_TIMEOUT": "2.5", "UNISYNC_BACKEND": "torch",
}  # fmt: skip
TORCHRUN = {  # torchrun 2.13, two agents
    "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1",
    "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": "0",
}  # fmt: skip
KUBERNETES = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}  # fmt: skip
MPICH = {"PMI_RANK": "3", "PMI_SIZE": "4", "PMI_FD": "7", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
SLURM = {
    "SLURM_JOB_ID": "1234", "SLURM_STEP_ID": "0", "SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1",
    "SLURM_STEP_NUM_TASKS": "4", "SLURM_NODEID": "1", "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_STEP_NODELIST": "node[07-08]", "SLURM_JOB_NODELIST": "node[01-08]",
}  # fmt: skip


def test_a_process_that_was_started_alone():
    assert place({}) is None
    assert place({"PATH": "/bin", "OMP_NUM_THREADS": "1"}) is None


def test_unisync_run():
    assert place(UNISYNC) == Place(
        "unisync run", 3, 4, 1, 2, "token", ("10.0.0.1", 4711), served=True, address="10.0.0.2", timeout_s=2.5
    )


def test_by_hand():
    found = place({"UNISYNC_RANK": "1", "UNISYNC_SIZE": "2", "UNISYNC_COORDINATOR": "127.0.0.1:4711"})
    assert found == Place(
        "whoever set UNISYNC_RANK", 1, 2, 1, 2, "", ("127.0.0.1", 4711), served=True, address="127.0.0.1"
    )


@pytest.mark.parametrize(
    ("variables", "launcher", "coordinator"),
    [
        (TORCHRUN, "torchrun", ("10.0.0.1", 29501)),
        (OPEN_MPI, "Open MPI", None),
        (MPICH, "mpiexec", None),
        (SLURM, "srun", "node07"),
    ],
    ids=["torchrun", "Open MPI", "MPICH", "SLURM"],
)
def test_other_launchers(variables, launcher, coordinator):
    found = place(variables)
    assert (found.launcher, found.rank, found.size, found.local_rank, found.local_size) == (launcher, 3, 4, 1, 2)
    assert not found.served
    assert found.address is None
    if isinstance(coordinator, str):
        assert found.coordinator[0] == coordinator
        assert 20000 <= found.coordinator[1] < 60000
    else:
        assert found.coordinator == coordinator
    assert found.ports == (PORTS if coordinator else 1)


def test_variables_of_torch_alone():
    found = place(KUBERNETES)
    assert (found.rank, found.size, found.local_rank, found.local_size) == (1, 2, 0, 1)
    assert found.coordinator == ("job-master-0", 23457)
    assert place(KUBERNETES | {"MASTER_PORT": "65530"}).coordinator == ("job-master-0", 65530 - PORTS)
    here = place(KUBERNETES | {"MASTER_ADDR": "127.0.0.1"})
    assert (here.local_rank, here.local_size) == (1, 2)


@pytest.mark.parametrize("variables", [TORCHRUN, OPEN_MPI, MPICH, SLURM])
def test_what_the_user_sets_under_any_launcher(variables):
    mine = {"UNISYNC_COORDINATOR": "10.0.0.9:5", "UNISYNC_ADDRESS": "10.0.0.3", "UNISYNC_TIMEOUT": "7"}
    found = place(variables | mine)
    assert (found.coordinator, found.ports, found.served) == (("10.0.0.9", 5), 1, False)
    assert (found.address, found.timeout_s) == ("10.0.0.3", 7.0)


def test_the_nearest_launcher_decides():
    assert place(SLURM | TORCHRUN).launcher == "torchrun"
    assert place(SLURM | MPICH).launcher == "mpiexec"
    assert place(SLURM | MPICH | UNISYNC).launcher == "unisync run"


def test_jobs_are_told_apart():
    jobs = [
        place(TORCHRUN).job,
        place(TORCHRUN | {"MASTER_PORT": "29600"}).job,
        place(TORCHRUN | {"TORCHELASTIC_RESTART_COUNT": "1"}).job,
        place(SLURM).job,
        place(SLURM | {"SLURM_JOB_ID": "1235"}).job,
        place(SLURM | {"SLURM_STEP_ID": "1"}).job,
    ]
    assert len(set(jobs)) == len(jobs)
    assert place(TORCHRUN | {"RANK": "0", "LOCAL_RANK": "0"}).job == jobs[0]
    assert place(SLURM | {"SLURM_PROCID": "0", "SLURM_NODEID": "0"}).coordinator == place(SLURM).coordinator


@pytest.mark.parametrize(
    "variables",
    [
        {k: v for k, v in SLURM.items() if k != "SLURM_STEP_ID"},  # salloc's shell
        SLURM | {"SLURM_STEP_ID": "4294967291"},  # the batch script itself
        {"WORLD_SIZE": "4"},
        {"PMI_RANK": "0"},
    ],
)
def test_what_is_no_rank(variables):
    assert place(variables) is None


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"UNISYNC_RANK": "0"}, "`UNISYNC_SIZE` must be a whole number"),
        ({"UNISYNC_RANK": "x", "UNISYNC_SIZE": "2"}, "`UNISYNC_RANK` must be a whole number"),
        ({"UNISYNC_RANK": "2", "UNISYNC_SIZE": "2"}, "less than the number of processes, got 2 of 2"),
        (UNISYNC | {"UNISYNC_COORDINATOR": "4711"}, "HOST:PORT"),
        (UNISYNC | {"UNISYNC_COORDINATOR": "a:99999"}, "HOST:PORT"),
        (UNISYNC | {"UNISYNC_TIMEOUT": "-1"}, "`UNISYNC_TIMEOUT` must be a positive number"),
        (UNISYNC | {"UNISYNC_TIMEOUT": "soon"}, "`UNISYNC_TIMEOUT` must be a positive number"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "`RANK` must be a whole number"),
        (TORCHRUN | {"MASTER_PORT": "x"}, "`MASTER_PORT` must be a whole number"),
    ],
)
def test_values_that_cannot_be(variables, text):
    with pytest.raises(ArgumentError, match=text):
        place(variables)


@pytest.mark.parametrize(
    ("nodes", "host"),
    [
        ("node07", "node07"), ("node07,node08", "node07"), ("node[07-08,12]", "node07"), ("n[3,5],m1", "n3"),
        ("a-b.c[1-2]-ib,x", "a-b.c1-ib"), ("", ""),
    ],
)  # fmt: skip
def test_first_host(nodes, host):
    assert first_host(nodes) == host


@pytest.mark.parametrize(("text", "counts"), [("4", [4]), ("4(x2),1", [4, 4, 1]), ("2,3(x1)", [2, 3]), ("", [])])
def test_tasks_per_node(text, counts):
    assert tasks_per_node(text) == counts
