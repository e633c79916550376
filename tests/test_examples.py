"""The examples, run on every backend for an epoch or two."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import unisync as us
from unisync.cli import app

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture(autouse=True)
def _restore_backend():
    before = us.current_backend()
    yield
    us.set_backend(before)


@pytest.mark.slow
def test_lenet(backend, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["lenet.py", "--backend", backend, "--epochs", "2"])
    runpy.run_path(str(EXAMPLES / "lenet.py"), run_name="__main__")
    last = capsys.readouterr().out.splitlines()[-1].split()
    assert last[:2] == ["epoch", "2/2"]
    assert float(last[last.index("test_accuracy") + 1]) > 0.6


def test_own_layer(backend):
    arguments = ["train", f"{EXAMPLES / 'own_layer.py'}:model", "--backend", backend, "--epochs", "2", "--lr", "0.01"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    last = result.stdout.splitlines()[-1].split()
    assert float(last[last.index("test_accuracy") + 1]) > 0.8


def test_all_examples_are_tested():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {"lenet.py", "own_layer.py"}
