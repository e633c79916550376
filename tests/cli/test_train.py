"""`unisync train`, as a user types it: what it prints and writes, on every backend."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import unisync as us
from unisync.cli import app

TEXT = "the quick brown fox jumps over the lazy dog. " * 12


@pytest.fixture(autouse=True)
def _restore_backend():
    before = us.current_backend()
    yield
    us.set_backend(before)


@pytest.fixture
def files(tmp_path, monkeypatch, rng):
    """One small file of each kind, in the current folder."""
    monkeypatch.chdir(tmp_path)
    image, sequence = rng.random((40, 6, 6, 1), np.float32), rng.random((40, 5, 3), np.float32)
    labels = np.arange(40) % 4
    np.savez("image.npz", x=image, y=labels)
    np.savez("sequence.npz", x=sequence, y=labels)
    np.savez("numbers.npz", x=image[:, :, 0, 0], y=image.sum(axis=(1, 2, 3)))
    rows = [f"{a},{b},{'yes' if a > b else 'no'}" for a, b in rng.random((40, 2)).round(3)]
    (tmp_path / "table.csv").write_text("\n".join(["a,b,c", *rows]))
    (tmp_path / "words.txt").write_text(TEXT)
    return tmp_path


def run(*arguments):
    """The result of a command that must succeed."""
    result = CliRunner().invoke(app, ["train", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result


def test_json_holds_the_documented_fields(tmp_path, backend):
    file = tmp_path / "losses.json"
    result = run("mlp", "--backend", backend, "--epochs", 1, "--seed", 3, "--json", file)
    assert f"backend {backend}, sgd at 0.05 (cosine), batches of 32, seed 3" in result.stdout
    content = json.loads(file.read_text())
    assert list(content) == ["schema", "backend", "model", "data", "seed", "step_losses", "history"]
    assert {key: content[key] for key in ("schema", "backend", "model", "data", "seed")} == {
        "schema": "unisync.train/1", "backend": backend, "model": "mlp", "data": "digits", "seed": 3,
    }  # fmt: skip
    assert len(content["step_losses"]) == 45
    (epoch,) = content["history"]
    assert list(epoch) == ["epoch", "loss", "accuracy", "test_loss", "test_accuracy", "seconds"]
    assert epoch["epoch"] == 1
    assert epoch["test_accuracy"] > 0.5
    assert epoch["loss"] == pytest.approx(np.mean(content["step_losses"]), rel=0.02)  # but for the short last batch
    assert sorted(p.name for p in tmp_path.iterdir()) == ["losses.json"]


BUILDS = {
    "mlp": {"image.npz", "sequence.npz", "numbers.npz", "table.csv", "words.txt"},
    "cnn": {"image.npz"},
    "lstm": {"image.npz", "sequence.npz", "words.txt"},
    "transformer": {"image.npz", "sequence.npz", "words.txt"},
}


@pytest.mark.parametrize("model", BUILDS)
@pytest.mark.parametrize("data", sorted(BUILDS["mlp"]))
def test_every_model_takes_the_data_or_says_why_not(files, model, data):
    target = ["--target", "c"] if data == "table.csv" else []
    arguments = [model, "--data", data, *target, "--epochs", "1", "--batch-size", "4", "--json", "out.json"]
    if data in BUILDS[model]:
        run(*arguments)
        assert np.isfinite(json.loads((files / "out.json").read_text())["step_losses"]).all()
        return
    result = CliRunner().invoke(app, ["train", *arguments])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"unisync: `model` {model!r} needs images")
    assert result.stderr.count("\n") == 1


def test_numbers_have_an_absolute_error_and_no_accuracy(files):
    run("mlp", "--data", "numbers.npz", "--epochs", 1, "--batch-size", 8, "--json", "out.json")
    content = json.loads((files / "out.json").read_text())
    fields = ["epoch", "loss", "absolute_error", "test_loss", "test_absolute_error", "seconds"]
    assert list(content["history"][0]) == fields


@pytest.mark.parametrize("format", ["csv", "npz"])
def test_targets_of_any_size_are_learned(files, rng, format, backend):
    x = rng.random((120, 2))
    prices = 100_000 + 200_000 * x[:, 0] + 50_000 * x[:, 1]
    np.savez("prices.npz", x=x, y=prices)
    rows = [f"{a};{b};{price};here" for (a, b), price in zip(x, prices, strict=True)]
    (files / "prices.csv").write_text("\n".join(["size;age;price;place", *rows]))
    options = ["--target", "price", "--ignore", "place"] if format == "csv" else []
    result = run(
        "mlp", "--data", f"prices.{format}", *options, "--backend", backend, "--epochs", 10, "--json", "o.json"
    )
    assert "losses are of the standardised target, (y - 2" in result.stdout
    last = json.loads((files / "o.json").read_text())["history"][-1]
    assert last["test_loss"] < 0.05
    assert last["test_absolute_error"] < 12_000  # of a standard deviation of about 60 000


def test_the_length_of_windows(files):
    windows = len(us.data.load("words.txt", length=8).x_train)
    result = run("mlp", "--data", "words.txt", "--length", 8, "--batch-size", 4, "--epochs", 1)
    assert f"{windows} samples to train on" in result.stdout


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "sgd at 0.05 (cosine)"),
        (["--lr", "0.2"], "sgd at 0.2 (cosine)"),
        (["--optimizer", "sgd"], "sgd at 0.05 (cosine)"),
        (["--optimizer", "adam"], "adam at 0.001 (cosine)"),
        (["--optimizer", "lion", "--schedule", "constant"], "lion at 0.0001 (constant)"),
    ],
)
def test_optimizer_options(files, options, expected):
    result = run("mlp", "--data", "image.npz", "--epochs", 1, "--batch-size", 8, *options)
    assert f"{expected}, batches of 8" in result.stdout


def test_the_seed_settles_the_run(files):
    def losses(seed):
        run("mlp", "--data", "image.npz", "--epochs", 2, "--batch-size", 8, "--seed", seed, "--json", "out.json")
        return json.loads((files / "out.json").read_text())["step_losses"]

    first = losses(0)
    assert losses(0) == first
    assert losses(1) != first


def test_saved_models_load(files, backend):
    result = run("mlp", "--data", "image.npz", "--backend", backend, "--epochs", 1, "--batch-size", 8, "--save", "run")
    assert result.stdout.endswith("saved to run\n")
    trainer = us.load("run")
    assert (trainer.backend, trainer.epochs, trainer.steps) == (backend, 1, 4)
    data = us.data.load("image.npz")
    assert trainer.evaluate(data)["loss"] == pytest.approx(trainer.history[-1]["test_loss"], rel=1e-5)


MODEL_FILE = """
from dataclasses import dataclass

import unisync as us
from beside import WIDTH


@dataclass(frozen=True)
class Twice(us.nn.Layer):
    def forward(self, params, x):
        return 2 * x


def narrow(input_shape, outputs):
    return us.nn.Sequential([us.nn.Flatten(), Twice(), us.nn.Linear(36, WIDTH), us.nn.Linear(WIDTH, outputs)])


def whole(data):
    return us.nn.Sequential([us.nn.Flatten(), us.nn.Linear(36, data.outputs)])


def nothing():
    pass


def broken():
    raise RuntimeError("of my own making")


def misused():
    return us.nn.Linear(0, 3)
"""


@pytest.fixture
def model_file(files):
    (files / "beside.py").write_text("WIDTH = 3\n")
    (files / "mine.py").write_text(MODEL_FILE)
    return files / "mine.py"


@pytest.mark.parametrize("function", ["narrow", "whole"])
def test_a_model_of_a_file(model_file, function, backend):
    result = run(f"mine.py:{function}", "--data", "image.npz", "--backend", backend, "--epochs", 1, "--batch-size", 8)
    assert "adam at 0.001" in result.stdout


def test_what_a_users_code_raises_is_not_hidden(model_file):
    result = CliRunner().invoke(app, ["train", "mine.py:broken", "--data", "image.npz"])
    assert isinstance(result.exception, RuntimeError)
    assert result.exit_code == 1


@pytest.mark.slow
def test_the_cnn_learns_the_digits_and_the_backends_agree(tmp_path):
    from unisync import _dispatch
    from unisync.backends import installed

    losses = {}
    for name in filter(installed, _dispatch.BACKENDS):
        run("cnn", "--data", "digits", "--backend", name, "--json", tmp_path / f"{name}.json")
        content = json.loads((tmp_path / f"{name}.json").read_text())
        assert content["history"][-1]["test_accuracy"] >= 0.97, name
        losses[name] = np.array(content["step_losses"])
    for name, own in losses.items():
        # Measured on two cores: 3.2e-7 relative over the first 50 steps. Over all 450, 3.5e-6 with one math thread;
        # with two, NumPy's sums differ and its trace parts by 6e-3.
        np.testing.assert_allclose(own[:50], losses["numpy"][:50], rtol=1e-5, err_msg=name)
        np.testing.assert_allclose(own, losses["numpy"], rtol=0, atol=0.05, err_msg=name)
