"""`unisync doctor` and the help texts."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from unisync import _dispatch
from unisync.backends import installed
from unisync.cli import app, doctor as _doctor_command
from unisync.cli.doctor import BackendReport, Missing, _show

MACHINE = {
    "unisync": "0.1.0", "python": "3.13.11", "system": "Linux x86_64", "cores": 128, "memory_gb": 1024.0,
    "memory_available_gb": 1000.0,
}  # fmt: skip


def test_json_lists_machine_backends_and_what_is_missing():
    result = CliRunner().invoke(app, ["doctor", "--json"])
    assert result.exit_code == 0
    content = json.loads(result.stdout)
    assert list(content) == ["machine", "backends", "missing"]
    assert content["machine"]["cores"] >= 1
    assert [report["name"] for report in content["backends"]] == list(_dispatch.BACKENDS)
    for report in content["backends"]:
        if installed(report["name"]):
            assert report["error"] is None
            assert report["version"]
            assert report["devices"]
            assert report["copy_gb_per_s"] > 0
        else:
            assert "pip install" in report["error"]
    for missing in content["missing"]:
        assert missing["cure"].startswith("pip install '.[")


def test_tables():
    result = CliRunner().invoke(app, ["doctor"], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    for name in _dispatch.BACKENDS:
        assert name in result.stdout


@pytest.mark.parametrize(
    "reports",
    [
        [BackendReport(name, "2.99.99+cu130", ("cpu:0", "cuda:0"), 1234.5) for name in _dispatch.BACKENDS],
        [BackendReport(name, error="not there") for name in _dispatch.BACKENDS],
    ],
    ids=["all", "none"],
)
def test_tables_fit_into_80_columns(reports, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(_doctor_module(), "installed", lambda name: False)
    missing = [
        Missing(module, purpose, f"pip install '.[{extra}]'")
        for module, (purpose, extra) in _doctor_module()._OPTIONAL.items()
    ]
    _show(MACHINE, reports, missing)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for m in missing:
        assert any(m.module in line and m.purpose in line and m.cure in line for line in lines)  # not wrapped


def _doctor_module():
    import sys

    return sys.modules[_doctor_command.__module__]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--help", ["train", "doctor", "--version", "--debug", "what is missing."]),
        ("train --help", ["MODEL", "--data DATA", "--target COLUMN", "--json FILE", "[default: 32]"]),
        ("doctor --help", ["--json"]),
    ],
)
def test_help(arguments, expected):
    result = CliRunner().invoke(app, arguments.split(), env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"})
    assert result.exit_code == 0
    for part in expected:
        assert part in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
