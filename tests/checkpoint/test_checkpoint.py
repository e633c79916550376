"""Checkpoints: every dtype, number and structure comes back bit for bit, on another backend too; damage is reported."""

import json

import numpy as np
import pytest

import unisync as us
from unisync import checkpoint
from unisync.errors import CheckpointError

DTYPES = ["bool", "int8", "int64", "uint8", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]


def test_arrays_of_every_dtype(backend, tmp_path, rng):
    values = rng.normal(size=(3, 2)) * 3
    saved = {name: us.asarray(values, dtype=name) for name in DTYPES}
    saved["scalar"] = us.asarray(7, dtype="int64")
    saved["empty"] = us.zeros((0, 4))
    checkpoint.write(tmp_path / "c", {"t": saved}, {})
    back = checkpoint.fit(checkpoint.read(tmp_path / "c").trees["t"], saved, "t")
    for name, array in saved.items():
        assert us.dtype_of(back[name]) == us.dtype_of(array), name
        assert back[name].shape == array.shape
        assert np.array_equal(us.to_numpy(back[name]), us.to_numpy(array)), name
        assert us.namespace(back[name]).NAME == backend  # noqa: SIM300


def test_transposed_arrays_are_saved_in_their_own_order(tmp_path):
    x = np.arange(6.0).reshape(2, 3).T
    checkpoint.write(tmp_path / "c", {"t": x}, {})
    assert np.array_equal(checkpoint.read(tmp_path / "c").trees["t"], x)


def test_structures_and_numbers(tmp_path):
    key = us.random.Key(3).fold_in(4)
    saved = {
        "dict": {"a": 1, "b": [2.5, None, "word", True]},
        "tuple": (1, (0.1 + 0.2, float("nan"), -float("inf"))),
        "nothing": {},
        "key": key,
    }
    checkpoint.write(tmp_path / "c", saved, {"epoch": 3, "history": [{"loss": 0.1}]})
    back = checkpoint.read(tmp_path / "c")
    assert back.info == {"epoch": 3, "history": [{"loss": 0.1}]}
    assert back.trees["dict"] == saved["dict"]
    assert repr(back.trees["tuple"]) == repr(saved["tuple"])
    assert back.trees["nothing"] == {}
    assert back.trees["key"].generator().random() == key.commit().generator().random()


def test_a_later_checkpoint_replaces_the_earlier(tmp_path):
    for step in range(3):
        checkpoint.write(tmp_path / "c", {"t": {"x": np.full(3, step)}}, {"step": step})
    back = checkpoint.read(tmp_path / "c")
    assert back.info == {"step": 2}
    assert back.trees["t"]["x"].tolist() == [2, 2, 2]
    assert len(list((tmp_path / "c").iterdir())) == 2


def test_a_failed_write_leaves_the_earlier_checkpoint(tmp_path, monkeypatch):
    checkpoint.write(tmp_path / "c", {"t": np.ones(3)}, {"step": 1})

    def full_disk(*_args, **_kwargs):
        raise OSError("no space left")

    monkeypatch.setattr(json, "dumps", full_disk)
    with pytest.raises(CheckpointError, match="no space"):
        checkpoint.write(tmp_path / "c", {"t": np.zeros(3)}, {"step": 2})
    monkeypatch.undo()
    assert checkpoint.read(tmp_path / "c").info == {"step": 1}
    checkpoint.write(tmp_path / "c", {"t": np.zeros(3)}, {"step": 3})
    assert len(list((tmp_path / "c").iterdir())) == 2


def test_no_pickles(tmp_path):
    with pytest.raises(CheckpointError, match="'t/f' cannot be saved: it is a function"):
        checkpoint.write(tmp_path / "c", {"t": {"f": lambda: 0}}, {})
    assert not (tmp_path / "c").exists()


def test_what_is_no_checkpoint(tmp_path):
    with pytest.raises(CheckpointError, match="is no checkpoint"):
        checkpoint.read(tmp_path / "missing")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(CheckpointError, match=r"notes\.txt"):
        checkpoint.write(tmp_path / "other", {}, {})
    with pytest.raises(CheckpointError, match="got the file"):
        checkpoint.write(tmp_path / "other" / "notes.txt", {}, {})


@pytest.mark.parametrize("damage", ["truncate", "remove", "not json", "newer"])
def test_damage_is_reported(tmp_path, damage):
    folder = tmp_path / "c"
    checkpoint.write(folder, {"t": np.ones(300)}, {})
    [arrays], index = folder.glob("arrays-*"), folder / "checkpoint.json"
    if damage == "truncate":
        arrays.write_bytes(arrays.read_bytes()[:-100])
    elif damage == "remove":
        arrays.unlink()
    elif damage == "not json":
        index.write_text("{")
    else:
        index.write_text(json.dumps(json.loads(index.read_text()) | {"format": 99}))
    with pytest.raises(CheckpointError, match="newer" if damage == "newer" else "is damaged"):
        checkpoint.read(folder)


@pytest.mark.parametrize(
    ("saved", "expected", "message"),
    [
        ({"a": np.ones(2)}, {"a": np.ones(2), "b": np.ones(1)}, "got no b"),
        ({"a": np.ones(2), "c": np.ones(1)}, {"a": np.ones(2)}, "got also c"),
        ({"a": np.ones(2)}, {"a": np.ones(3)}, r"params/a must have shape \(3,\), got \(2,\)"),
    ],
)
def test_fit_refuses_another_models_params(saved, expected, message):
    with pytest.raises(CheckpointError, match=message):
        checkpoint.fit(saved, expected, "params")


def test_a_place_that_cannot_be_written_to(tmp_path):
    with pytest.raises(us.errors.CheckpointError, match=r"cannot be written to.*Try: a folder"):
        checkpoint.write("/proc/unisync/run", {"params": {"w": us.ones(2)}}, {})
    (tmp_path / "file").write_text("")
    with pytest.raises(us.errors.CheckpointError, match="cannot be written to"):
        checkpoint.write(tmp_path / "file" / "run", {"params": {"w": us.ones(2)}}, {})
