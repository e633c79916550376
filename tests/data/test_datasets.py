"""Data sets: what the loaders of digits, .npz, .csv and .txt return, and how they refuse what they cannot use."""

import sys

import numpy as np
import pytest

import unisync as us
from unisync.errors import ArgumentError, DataError, MissingDependencyError, UnknownNameError


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_digits():
    data = us.data.digits()
    assert data.kind == "image"
    assert data.input_shape == (8, 8, 1)
    assert data.outputs == 10
    assert (len(data.x_train), len(data.x_test)) == (1438, 359)
    assert data.x_train.dtype == np.float32
    assert data.y_train.dtype == np.int64
    assert (data.x_train.min(), data.x_train.max()) == (0.0, 1.0)
    for part in (data.y_train, data.y_test):
        share = np.bincount(part) / len(part)
        assert np.allclose(share, 0.1, atol=0.006)
    again, other = us.data.digits(), us.data.digits(seed=1)
    assert np.array_equal(again.x_train, data.x_train)
    assert not np.array_equal(other.x_train, data.x_train)


def test_digits_without_scikit_learn_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingDependencyError, match=r"\.\[examples\]"):
        us.data.digits()


@pytest.mark.parametrize("labels", [None, np.arange(103) % 7])
def test_split_holds_each_position_once(labels):
    train, test = us.data.split(103, 0.25, seed=3, labels=labels)
    assert sorted([*train, *test]) == list(range(103))
    assert len(test) == 26


def test_npz_of_x_and_y(tmp_path, rng):
    np.savez(tmp_path / "d.npz", x=rng.random((50, 4)), y=np.arange(50) % 3)
    data = us.data.load(tmp_path / "d.npz")
    assert (data.kind, data.input_shape, data.classes) == ("table", (4,), ("0", "1", "2"))
    assert data.x_train.dtype == np.float32
    assert (len(data.x_train), len(data.x_test)) == (40, 10)


def test_npz_of_images_in_bytes_and_given_split(tmp_path, rng):
    x = rng.integers(0, 256, (9, 6, 5), dtype=np.uint8)
    x[0, 0, 0] = 255
    y = np.arange(9, dtype=np.uint8)
    np.savez(tmp_path / "d.npz", x_train=x, y_train=y, x_test=x[:2], y_test=y[:2])
    data = us.data.npz(tmp_path / "d.npz")
    assert (data.kind, data.input_shape, data.outputs) == ("image", (6, 5, 1), 9)
    assert data.x_train.max() == 1.0
    assert np.array_equal(data.y_test, [0, 1])


@pytest.mark.parametrize(
    ("x", "y", "kind", "outputs"),
    [
        (np.zeros((8, 5, 3)), np.zeros(8, np.int64), "sequence", 1),
        (np.zeros((8, 5), np.int32), np.ones((8, 5), np.int32), "text", 2),
        (np.zeros((8, 5)), np.zeros(8), "table", 1),
        (np.zeros((8, 5)), np.zeros((8, 2)), "table", 2),
        (np.zeros((8, 5, 5, 2)), np.zeros(8, np.int64), "image", 1),
    ],
)
def test_npz_kinds(tmp_path, x, y, kind, outputs):
    np.savez(tmp_path / "d.npz", x=x, y=y)
    data = us.data.npz(tmp_path / "d.npz")
    assert (data.kind, data.outputs) == (kind, outputs)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": np.zeros(3)}, r"must hold `x` and `y`.*got \['a'\]"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(4)}, "got 3 and 4"),
        ({"x": np.zeros((0, 2)), "y": np.zeros(0)}, "no samples"),
        ({"x": np.array([["a"], ["b"]]), "y": np.zeros(2)}, "must be numbers"),
        ({"x": np.array([[0.0], [np.nan]]), "y": np.zeros(2)}, "row 1"),
        ({"x": np.zeros((3, 2)), "y": np.array([0, -1, 1])}, "at least 0, got -1"),
        ({"x": np.zeros((3, 2)), "y": np.eye(3)}, "one-hot rows of shape .*argmax"),
        ({"x": np.zeros((3, 2)), "y": np.eye(3, dtype=np.int64)}, "one-hot rows of shape .*argmax"),
        ({"x": np.array([{}, {}], dtype=object), "y": np.zeros(2)}, "cannot be read"),
    ],
)
def test_npz_refuses(tmp_path, arrays, message):
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(DataError, match=message):
        us.data.npz(tmp_path / "d.npz")


CSV = "size,colour,weight,kind\n" + "".join(f"{i},{i % 5},{i * 0.5},{'cat' if i % 3 else 'dog'}\n" for i in range(30))


def test_csv_with_text_classes(tmp_path):
    data = us.data.load(write(tmp_path / "d.csv", CSV), target="kind", ignore=["colour"])
    assert (data.kind, data.classes, data.features) == ("table", ("cat", "dog"), ("size", "weight"))
    assert np.allclose(data.x_train.mean(axis=0), 0, atol=1e-6)
    assert np.allclose(data.x_train.std(axis=0), 1, atol=1e-6)
    assert (len(data.x_train), len(data.x_test)) == (24, 6)
    assert data.y_train.dtype == np.int64


def test_csv_regression_and_constant_column(tmp_path):
    rows = "".join(f"{i},1,{i * 0.25}\n" for i in range(10))
    data = us.data.csv(write(tmp_path / "d.csv", "\ufeffa,b,c\n" + rows), "c")
    assert data.classes is None
    assert data.y_train.shape == (8, 1)
    assert np.isfinite(data.x_train).all()
    plain = us.data.csv(tmp_path / "d.csv", "c", standardise=False)
    assert set(plain.x_train[:, 0]) <= set(range(10))


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv_delimiters_are_detected(tmp_path, delimiter):
    content = '"a, in m",b,y\n' + "".join(f"{i},{i % 2 == 0},{'no' if i % 3 else 'yes'}\n" for i in range(12))
    header, _, rows = content.partition("\n")
    header = header.replace(",b,", f"{delimiter}b{delimiter}")
    file = write(tmp_path / "d.csv", header + "\n" + rows.replace(",", delimiter))
    data = us.data.csv(file, "y", standardise=False)
    assert (data.features, data.classes) == (("a, in m", "b"), ("no", "yes"))
    assert np.array_equal(data.x_train[:, 1], data.x_train[:, 0] % 2 == 0)


def test_standardised_targets(tmp_path):
    y = np.stack([1e5 + 1e3 * np.arange(20), np.full(20, 7.0)], axis=1)
    np.savez(tmp_path / "d.npz", x=np.zeros((20, 3)), y=y)
    plain = us.data.npz(tmp_path / "d.npz")
    assert (plain.target_mean, plain.target_scale) == (None, None)
    data = plain.standardise_targets()
    assert np.allclose(data.y_train.mean(axis=0), 0, atol=1e-6)
    assert np.allclose(data.y_train.std(axis=0), [1, 0], atol=1e-6)
    assert np.allclose(data.y_test * data.target_scale + data.target_mean, plain.y_test)
    assert data.standardise_targets() is data
    labelled = us.data.csv(write(tmp_path / "d.csv", CSV), "kind")
    assert labelled.standardise_targets() is labelled


def test_csv_whole_numbers_are_classes_when_few(tmp_path):
    few = us.data.csv(write(tmp_path / "d.csv", "a,y\n" + "".join(f"{i},{i % 11}\n" for i in range(44))), "y")
    assert few.classes == tuple(map(str, range(11)))
    many = us.data.csv(write(tmp_path / "e.csv", "a,y\n" + "".join(f"{i},{i}\n" for i in range(44))), "y")
    assert many.classes is None
    forced = us.data.csv(tmp_path / "d.csv", "y", task="regression")
    assert forced.classes is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b,y\n1,2,0\n3,red,1\n", r"row 3, column 'b' .*must be a number, got 'red'"),
        ("a,b,y\n1,2,0\n,4,1\n", r"row 3, column 'a' .*has no value"),
        ("a,b,y\n1,2,0\n1,NA,1\n", r"row 3, column 'b' .*has no value"),
        ("a,b,y\n1,2,0\n1,inf,1\n", r"row 3, column 'b' .*must be finite"),
        ("a,b,y\n1,2,0\n1,2\n", "row 3 .*has 2 values, the header 3"),
        ("a,b,y\n1,2,\n1,2,1\n", r"row 2, column 'y' .*has no value"),
        ("a,b,y\n1,2,x\n1,2,x\n", "at least 2 classes"),
        ("1,2,3\n4,5,6\n7,8,9\n", "no header"),
        ("a,a,y\n1,2,0\n1,2,1\n", r"\['a'\] more than once"),
        ("a,b,y\n", "at least 2 rows"),
        ("y\n1\n2\n", "a column besides"),
        (b"a,b,y\n\xff\xfe,1,0\n2,3,1\n", "cannot be read as .csv"),
        (b"", "is empty"),
    ],
)
def test_csv_refuses(tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        us.data.csv(write(tmp_path / "d.csv", content), "y")


def test_csv_names_the_nearest_column(tmp_path):
    write(tmp_path / "d.csv", CSV)
    with pytest.raises(UnknownNameError, match="Try: 'kind'"):
        us.data.csv(tmp_path / "d.csv", "kinds")
    with pytest.raises(ArgumentError, match="target="):
        us.data.load(tmp_path / "d.csv")


def test_text_windows(tmp_path):
    words = "abcdefghij" * 20
    data = us.data.load(write(tmp_path / "d.txt", words), length=8)
    assert (data.kind, data.vocabulary, data.outputs) == ("text", tuple("abcdefghij"), 10)
    assert data.x_train.shape == data.y_train.shape == (22, 8)
    assert np.array_equal(data.x_train[:, 1:], data.y_train[:, :-1])
    assert np.array_equal((data.x_test + 1) % 10, data.y_test)
    assert np.array_equal(data.x_train.ravel(), np.arange(22 * 8) % 10)


def test_text_beyond_ascii_and_line_ends(tmp_path):
    data = us.data.text(write(tmp_path / "d.txt", "né\r\n😀" * 30), length=4)
    assert data.vocabulary == ("\n", "n", "é", "😀")


@pytest.mark.parametrize(
    ("content", "options", "error", "message"),
    [
        ("abc", {}, DataError, "at least 130 characters, got 3"),
        (b"\xff\xff\xff", {}, DataError, "cannot be read as text"),
        ("abc" * 100, {"length": 0}, ArgumentError, "`length` must be at least 1"),
        ("abc" * 100, {"stride": -1}, ArgumentError, "`stride` must be at least 1"),
        ("abc" * 100, {"test_fraction": 1.5}, ArgumentError, "test_fraction"),
    ],
)
def test_text_refuses(tmp_path, content, options, error, message):
    with pytest.raises(error, match=message):
        us.data.text(write(tmp_path / "d.txt", content), **options)


@pytest.mark.parametrize(
    ("spec", "options", "error", "message"),
    [
        ("digit", {}, UnknownNameError, "Try: 'digits'"),
        ("missing.npz", {}, DataError, "does not exist"),
        ("data.parquet", {}, DataError, "must end in .npz, .csv, .txt"),
        ("digits", {"sed": 1}, UnknownNameError, "Try: 'seed'"),
    ],
)
def test_load_refuses(tmp_path, monkeypatch, spec, options, error, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        us.data.load(spec, **options)
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(DataError, match="is a directory"):
        us.data.csv("d.csv", "y")
    with pytest.raises(DataError, match=r"cannot be read as \.npz"):
        us.data.npz(write(tmp_path / "broken.npz", b"PK\x03\x04 not an archive"))
