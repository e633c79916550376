"""`unisync bench collectives`."""

from __future__ import annotations

import json
import sys

import pytest
from typer.testing import CliRunner

import unisync as us
from unisync.backends._by_hand import OPS
from unisync.cli import app

BUS_FACTORS = {"all_reduce": 1.0, "all_gather": 0.5, "reduce_scatter": 0.5, "all_to_all": 0.5}  # of 2 replicas
FIELDS = {
    "bytes": int, "count": int, "dtype": str, "op": str, "time_us": float, "algbw_gb_per_s": float,
    "busbw_gb_per_s": float, "errors": int, "by_hand_us": float, "ratio": float,
}  # fmt: skip


def bench(*arguments):
    return CliRunner().invoke(app, ["bench", "collectives", *arguments])


def figures(backend, op, *arguments):
    result = bench("--backend", backend, "--op", op, "--iterations", "3", "--device", "cpu", "--json", *arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


@pytest.mark.parametrize("op", OPS)
def test_figures(backend, op):
    content = figures(backend, op, "--min-bytes", "64", "--max-bytes", "1K")
    engines = {"jax": "shard_map", "tensorflow": "mirrored"}
    assert {key: value for key, value in content.items() if key != "rows"} == {
        "schema": "unisync.bench.collectives/1",
        "backend": backend,
        "engine": engines.get(backend, "threads"),
        "replicas": 2,
        "iterations": 3,
    }
    assert [row["bytes"] for row in content["rows"]] == [64, 256, 1024]
    for row in content["rows"]:
        assert {key: type(value) for key, value in row.items()} == FIELDS
        assert row["op"] == op
        assert row["errors"] == 0
        assert row["count"] * 4 == (row["bytes"] // 2 if op == "all_gather" else row["bytes"])
        algbw = row["bytes"] / row["time_us"] / 1e3
        assert row["algbw_gb_per_s"] == pytest.approx(algbw, abs=1e-3)
        assert row["busbw_gb_per_s"] == pytest.approx(algbw * BUS_FACTORS.get(op, 1.0), abs=1e-3)


@pytest.mark.parametrize("replicas", [1, 3])
def test_sizes_are_cut_to_what_the_replicas_divide(replicas):
    [row] = figures("numpy", "reduce_scatter", "--replicas", str(replicas), "--min-bytes", "64", "--max-bytes", "64")[
        "rows"
    ]
    assert row["bytes"] == {1: 64, 3: 60}[replicas]
    assert row["errors"] == 0


def test_the_table_fits_into_80_columns():
    result = bench("--backend", "numpy", "--op", "reduce_scatter", "--min-bytes", "16M", "--iterations", "1")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "numpy, engine threads, 2 replicas, median of 1 calls"
    assert " ".join(lines[2].split()) == "bytes count dtype op time algbw busbw errors by hand ratio"
    assert lines[3].split()[:4] == ["16777216", "4194304", "float32", "reduce_scatter"]
    assert max(map(len, lines)) <= 80


def test_a_wrong_result_is_counted_and_told_by_the_exit_code(monkeypatch):
    def wrong(op, p):
        return lambda x: us.all_reduce(x, "sum") + (us.arange(x.shape[0]) < 3)

    monkeypatch.setattr(sys.modules["unisync.cli.bench"], "_function", wrong)
    result = bench("--backend", "numpy", "--min-bytes", "64", "--max-bytes", "64", "--iterations", "1", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["rows"][0]["errors"] == 6


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--op", "allreduce"], "Try: 'all_reduce'."),
        (["--op", "broadcats"], "Try: 'broadcast'."),
        (["--backend", "jaks"], "Try: 'jax'."),
        (["--min-bytes", "4X"], "got '4X'"),
        (["--min-bytes", "0"], "`--min-bytes` must be"),
        (["--min-bytes", "1M", "--max-bytes", "1K"], "at most `--max-bytes`"),
        (["--iterations", "0"], "`--iterations` must be at least 1"),
        (["--replicas", "0"], "`replicas` must be at least 1"),
    ],
)
def test_bad_options(arguments, says):
    result = bench(*arguments)
    assert result.exit_code == 1
    assert says in f"{result.exception}{result.stderr}"  # the error itself, or the line that the command makes of it
