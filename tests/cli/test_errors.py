"""Bad input on the command line: one clear line on stderr, exit code 1, no traceback."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import unisync as us
from unisync.cli import app
from unisync.errors import UnknownNameError


@pytest.fixture(autouse=True)
def _restore_backend():
    before = us.current_backend()
    yield
    us.set_backend(before)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Data and model files that something is wrong with."""
    monkeypatch.chdir(tmp_path)
    x, y = np.zeros((20, 4, 4, 1), np.float32), np.arange(20) % 3
    np.savez("good.npz", x=x, y=y)
    np.savez("negative.npz", x=x, y=y - 1)
    np.savez("none.npz", x=x[:0], y=y[:0])
    np.savez("nan.npz", x=np.full_like(x, np.nan), y=y)
    np.savez("flat.npz", x=x[..., 0], y=y)
    np.savez("onehot.npz", x=x, y=np.eye(3)[y])
    np.savez("loud.npz", x=np.full((20, 4), 1e30, np.float32), y=np.full(20, 1e30, np.float32))
    (tmp_path / "text.csv").write_text("height,weight,kind\n1,2,a\n3,heavy,b\n4,5,a\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "broken.npz").write_bytes(b"PK not a zip")
    (tmp_path / "data.parquet").write_bytes(b"PAR1")
    (tmp_path / "mine.py").write_text(
        "import unisync as us\n"
        "def model(outputs): return us.nn.Sequential([us.nn.Flatten(), us.nn.Linear(15, outputs)])\n"
        "def none(): return None\n"
        "def zero(): return us.nn.Linear(0, 3)\n"
        "def wide(outputs, width): return us.nn.Linear(width, outputs)\n"
    )
    return tmp_path


CASES = {  # arguments → what the line says
    "unknown backend": ("mlp --backend pytorch", ["`backend` must be one of", "'torch'"]),
    "unknown model": ("mpl", ["`model` must be one of", "got 'mpl'", "'mlp'"]),
    "unknown data": ("mlp --data digit", ["`data` must be one of", "'digits'"]),
    "unknown optimizer": ("mlp --optimizer adm", ["`optimizer` must be one of", "'adam'"]),
    "unknown schedule": ("mlp --schedule cosin", ["`schedule` must be one of", "'cosine'"]),
    "negative rate": ("mlp --lr -1", ["`lr` must be", "got -1.0"]),
    "wrong shape into a layer": ("mine.py:model --data good.npz --batch-size 4", ["Linear(15, 3)", "16"]),
    "labels out of range": ("mlp --data negative.npz", ["negative.npz", "-1"]),
    "empty arrays": ("mlp --data none.npz", ["no samples", "none.npz"]),
    "empty file": ("mlp --data empty.csv --target a", ["empty.csv", "is empty"]),
    "NaN in the data": ("mlp --data nan.npz", ["must be finite", "row 0"]),
    "loss not finite": ("mlp --data loud.npz --batch-size 4", ["the loss became inf", "step 1 (epoch 1)", "Try:"]),
    "text in a number column": ("mlp --data text.csv --target kind", ["row 3, column 'weight'", "--ignore weight"]),
    "one-hot targets": ("cnn --data onehot.npz", ["one-hot rows of shape", "np.argmax(y, axis=1)"]),
    "images without channels": ("cnn --data flat.npz", ["needs images", "x[..., None]"]),
    "an argument nobody gives": ("mine.py:wide --data good.npz", ["'wide'", "got 'width'", "width=..."]),
    "length without text": ("mlp --length 8", ["`--length` goes with a .txt file"]),
    "ignore without csv": ("mlp --ignore a", ["`--ignore` goes with a .csv file"]),
    "long delimiter": ("mlp --data text.csv --target kind --delimiter ;;", ["`--delimiter` must be one character"]),
    "unknown column": ("mlp --data text.csv --target kinds", ["`target` must be one of", "'kind'"]),
    "no column": ("mlp --data text.csv", ["`--target` must name the column", "--target COLUMN"]),
    "column without csv": ("mlp --target kind", ["`--target` goes with a .csv file"]),
    "unreadable file": ("mlp --data broken.npz", ["broken.npz", "cannot be read"]),
    "no such file": ("mlp --data gone.npz", ["gone.npz", "does not exist"]),
    "unknown suffix": ("mlp --data data.parquet", ["data.parquet", ".npz"]),
    "batch larger than the data": ("mlp --data good.npz --batch-size 17", ["`batch_size`", "16", "got 17"]),
    "no batch": ("mlp --batch-size 0", ["`batch_size` must be at least 1, got 0"]),
    "negative epochs": ("mlp --epochs -1", ["`epochs` must be at least 1, got -1"]),
    "file without a function": (
        "mine.py --data good.npz",
        ["`model` must be path/to/file.py:function", "mine.py:model"],
    ),
    "no such function": ("mine.py:modle --data good.npz", ["'modle' is not in mine.py", "mine.py:model"]),
    "no such model file": ("gone.py:model --data good.npz", ["gone.py", "does not exist"]),
    "function without a model": ("mine.py:none --data good.npz", ["must return a model", "NoneType"]),
    "zero size in a layer": ("mine.py:zero --data good.npz", ["Linear", "0"]),
    "json in no folder": ("mlp --json gone/out.json", ["`--json` must be", "gone/out.json"]),
    "save into a file": ("mlp --save good.npz", ["good.npz", "folder"]),
    "save where one may not": ("mlp --save /proc/unisync/run", ["cannot be written to", "Try:"]),
    "save among others": ("mlp --save .", ["with a checkpoint", "Try:"]),
}


@pytest.mark.filterwarnings(
    "ignore:overflow encountered:RuntimeWarning"
)  # NumPy's own word on the loss that is not finite
@pytest.mark.parametrize("case", CASES)
def test_one_line_and_exit_code_1(files, case):
    arguments, expected = CASES[case]
    result = CliRunner().invoke(app, ["train", *arguments.split()])
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("unisync: ")
    assert result.stderr.count("\n") == 1
    for part in expected:
        assert part in result.stderr


def test_a_missing_framework_names_the_extra(files, monkeypatch):
    from unisync import _dispatch

    monkeypatch.setitem(sys.modules, "torch", None)  # what `import torch` finds where it is not installed
    monkeypatch.delitem(_dispatch._loaded, "torch", raising=False)
    result = CliRunner().invoke(app, ["train", "mlp", "--backend", "torch"])
    assert result.exit_code == 1
    assert "pip install '.[torch]'" in result.stderr
    assert result.stderr.count("\n") == 1


def test_debug_shows_where_it_came_from(files):
    result = CliRunner().invoke(app, ["--debug", "train", "mpl"])
    assert isinstance(result.exception, UnknownNameError)


@pytest.mark.parametrize("arguments", ["mlp --epochs ten", "mlp --epoch 10", "", "mlp cnn"])
def test_usage_errors_are_exit_code_2(arguments):
    result = CliRunner().invoke(app, ["train", *arguments.split()])
    assert result.exit_code == 2
    assert "Usage: " in result.stderr


def test_a_process_of_its_own(files):
    def run(*arguments):
        command = [sys.executable, "-m", "unisync", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    bad = run("train", "mlp", "--data", "gone.npz")
    assert (bad.returncode, bad.stdout, bad.stderr.count("\n")) == (1, "", 1)
    assert run("--version").stdout == f"unisync {us.__version__}\n"
    (files / "mine.py").write_text("def model():\n    raise RuntimeError('of my own making')\n")
    own = run("train", "mine.py:model", "--data", "good.npz")
    assert own.returncode == 1
    assert own.stderr.startswith("Traceback")
    assert own.stderr.endswith("RuntimeError: of my own making\n")
