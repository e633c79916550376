"""The jax backend where jax.numpy alone would answer otherwise: default dtypes, promotion, conversion, devices."""

import os
import subprocess
import sys

import numpy as np
import pytest

import unisync as us
from unisync.errors import ArgumentError, ArgumentTypeError, MixedBackendsError, TraceError

jax = pytest.importorskip("jax")
jnp = jax.numpy


@pytest.fixture(autouse=True)
def on_jax():
    with us.backend("jax"):
        yield


CREATED = {
    "arange of ints": (lambda: us.arange(3), "int64"),
    "arange of floats": (lambda: us.arange(0.0, 1.0, 0.5), "float32"),
    "asarray of a float": (lambda: us.asarray(2.0), "float32"),
    "asarray of floats": (lambda: us.asarray([[1.0], [2.0]]), "float32"),
    "asarray of ints": (lambda: us.asarray([1, 2]), "int64"),
    "asarray of bools": (lambda: us.asarray([True]), "bool"),
    "asarray of complex": (lambda: us.asarray([1j]), "complex64"),
    "asarray of NumPy": (lambda: us.asarray(np.ones(2)), "float64"),
    "asarray of a NumPy number": (lambda: us.asarray([np.float64(1)]), "float64"),
    "asarray of jax arrays": (lambda: us.asarray([us.ones(()), 2.0]), "float32"),
    "asarray of nothing": (lambda: us.asarray([]), "float32"),
    "asarray as bfloat16": (lambda: us.asarray([1.0], dtype=us.bfloat16), "bfloat16"),
    "empty": (lambda: us.empty(2), "float32"),
    "eye": (lambda: us.eye(2), "float32"),
    "full of an int": (lambda: us.full(2, 7), "int64"),
    "full of a float": (lambda: us.full(2, 0.5), "float32"),
    "linspace": (lambda: us.linspace(0, 1, 3), "float32"),
    "ones_like": (lambda: us.ones_like(us.zeros(2, dtype="float16")), "float16"),
    "zeros": (lambda: us.zeros(2), "float32"),
}


@pytest.mark.parametrize("case", CREATED)
def test_created_dtype_is_the_default_and_strong(case):
    make, dtype = CREATED[case]
    x = make()
    assert us.dtype_of(x) == dtype
    assert not x.weak_type


ONES = {d: (lambda d=d: us.ones(2, dtype=d)) for d in us._types.DTYPES}

RESULTS = {
    "add float32, int64": (lambda: us.add(ONES["float32"](), ONES["int64"]()), "float32"),
    "add bfloat16, float16": (lambda: us.add(ONES["bfloat16"](), ONES["float16"]()), "float32"),
    "add uint64, int64": (lambda: us.add(ONES["uint64"](), ONES["int64"]()), "float32"),
    "add int8, uint8": (lambda: us.add(ONES["int8"](), ONES["uint8"]()), "int16"),
    "add int64, 2.0": (lambda: us.add(ONES["int64"](), 2.0), "float32"),
    "add int8, 2": (lambda: us.add(ONES["int8"](), 2), "int8"),
    "add 2.0, int8": (lambda: us.add(2.0, ONES["int8"]()), "float32"),
    "add bool, 2": (lambda: us.add(ONES["bool"](), 2), "int64"),
    "add float64, 1j": (lambda: us.add(ONES["float64"](), 1j), "complex128"),
    "maximum bfloat16, 2.0": (lambda: us.maximum(ONES["bfloat16"](), 2.0), "bfloat16"),
    "divide int64, int64": (lambda: us.divide(ONES["int64"](), ONES["int64"]()), "float32"),
    "divide int64, 2": (lambda: us.divide(ONES["int64"](), 2), "float32"),
    "divide float64, int64": (lambda: us.divide(ONES["float64"](), ONES["int64"]()), "float64"),
    "pow int64, 0.5": (lambda: us.pow(ONES["int64"](), 0.5), "float32"),
    "exp int64": (lambda: us.exp(ONES["int64"]()), "float32"),
    "sqrt bool": (lambda: us.sqrt(ONES["bool"]()), "float32"),
    "sum int8": (lambda: us.sum(ONES["int8"]()), "int64"),
    "sum bool": (lambda: us.sum(ONES["bool"]()), "int64"),
    "sum uint8": (lambda: us.sum(ONES["uint8"]()), "uint64"),
    "sum int8 as int8": (lambda: us.sum(ONES["int8"](), dtype="int8"), "int8"),
    "cumulative_sum uint8": (lambda: us.cumulative_sum(ONES["uint8"]()), "uint64"),
    "mean int64": (lambda: us.mean(ONES["int64"]()), "float32"),
    "mean float32": (lambda: us.mean(ONES["float32"]()), "float32"),
    "std int64": (lambda: us.std(ONES["int64"]()), "float32"),
    "argmax": (lambda: us.argmax(ONES["float32"]()), "int64"),
    "searchsorted": (lambda: us.searchsorted(ONES["float32"](), ONES["float32"]()), "int64"),
    "where 1.0, 0.0": (lambda: us.where(ONES["bool"](), 1.0, 0.0), "float32"),
    "where int32, 0.5": (lambda: us.where(ONES["bool"](), ONES["int32"](), 0.5), "float32"),
    "clip int64 by 0.5": (lambda: us.clip(ONES["int64"](), 0.5, None), "int64"),
    "concat int64, float32": (lambda: us.concat([ONES["int64"](), ONES["float32"]()]), "float32"),
    "matmul int64, float32": (lambda: us.matmul(ONES["int64"](), ONES["float32"]()), "float32"),
    "one_hot": (lambda: us.nn.one_hot(us.asarray([0]), 2), "float32"),
    "multi_scale bfloat16": (lambda: us.multi_scale([ONES["bfloat16"]()], us.asarray(2.0))[0], "bfloat16"),
}


@pytest.mark.parametrize("case", RESULTS)
def test_result_dtype(case):
    make, dtype = RESULTS[case]
    assert us.dtype_of(make()) == dtype
    assert us.dtype_of(us.jit(make)()) == dtype


def test_a_number_that_jit_traces_yields_like_a_number():
    scaled = us.jit(lambda x, rate: us.multiply(x, rate))
    assert us.dtype_of(scaled(us.ones(2), 0.5)) == "float32"
    assert us.dtype_of(scaled(us.ones(2, dtype="bfloat16"), 2)) == "bfloat16"
    assert us.dtype_of(scaled(us.ones(2, dtype="int64"), 0.5)) == "float32"


def test_an_array_of_numpy_beside_one_of_jax_is_an_error():
    with pytest.raises(MixedBackendsError, match="jax and numpy"):
        us.add(us.ones(2), np.ones(2))


def test_clip_passes_gradients_at_its_bounds():
    x = us.asarray([-1.0, 0.0, 0.5, 1.0, 2.0])
    gradient = us.grad(lambda x: us.sum(us.clip(x, 0.0, 1.0)))(x)
    np.testing.assert_array_equal(us.to_numpy(gradient), [0, 1, 1, 1, 0])


def test_take_counts_negative_positions_from_the_end():
    x = us.reshape(us.arange(6), (2, 3))
    np.testing.assert_array_equal(us.to_numpy(us.take(x, us.asarray([-1, 0]), axis=1)), [[2, 0], [5, 3]])
    picked = us.take_along_axis(x, us.asarray([[-1], [-3]]), axis=1)
    np.testing.assert_array_equal(us.to_numpy(picked), [[2], [3]])
    with pytest.raises(ArgumentError, match="axis"):
        us.take(x, us.asarray([0]))


def test_to_numpy_shares_memory_and_widens_bfloat16():
    x = us.ones(4)
    assert us.to_numpy(x).ctypes.data == x.unsafe_buffer_pointer()
    assert us.to_numpy(us.asarray([1.5], dtype="bfloat16")).dtype == np.float32


@pytest.mark.parametrize("transform", [us.jit, us.grad, jax.vmap], ids=["jit", "grad", "vmap"])
def test_to_numpy_of_a_traced_array_is_an_error(transform):
    def f(x):
        us.to_numpy(x)
        return us.sum(x)

    with pytest.raises(TraceError, match="being traced"):
        transform(f)(us.ones((2,)))


def test_nonzero_of_a_traced_array_is_an_error():
    with pytest.raises(TraceError, match="shape"):
        us.jit(us.nonzero)(us.ones(2))


FOREIGN = {
    "float64": lambda: np.arange(3.0),
    "bool": lambda: np.asarray([True, False]),
    "complex64": lambda: np.ones(2, dtype="complex64"),
    "empty": lambda: np.ones((0, 3)),
    "0-d": lambda: np.asarray(2),
    "strided": lambda: np.arange(12.0).reshape(3, 4)[:, 1:3],
    "transposed": lambda: np.arange(12.0).reshape(3, 4).T,
    "unaligned": lambda: np.zeros(33, dtype="uint8")[1:].view("float32"),
    "number": lambda: np.float32(3),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_convert_from_numpy(case):
    x = FOREIGN[case]()
    if isinstance(x, np.ndarray):
        x.setflags(write=False)
    got = us.convert(x, "jax")
    assert isinstance(got, jax.Array)
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(np.asarray(got), x)


def test_from_dlpack_shares_aligned_memory():
    raw = np.zeros(64 + 16, dtype="float32")
    start = (-raw.ctypes.data % 64) // 4
    x = raw[start : start + 64]
    assert us.from_dlpack(x).unsafe_buffer_pointer() == x.ctypes.data


TENSORS = {
    "bfloat16": lambda torch: torch.ones(3, dtype=torch.bfloat16),
    "bool": lambda torch: torch.tensor([True, False]),
    "strided": lambda torch: torch.ones(3, 4)[:, 1:3],
    "transposed": lambda torch: torch.arange(12.0).reshape(3, 4).t(),
    "offset": lambda torch: torch.arange(5.0)[1:],
    "requires a gradient": lambda torch: torch.ones(3, requires_grad=True),
    "conjugate": lambda torch: torch.tensor([1 + 2j]).conj(),
}


@pytest.mark.parametrize("case", TENSORS)
def test_convert_from_torch(case):
    torch = pytest.importorskip("torch")
    x = TENSORS[case](torch)
    got = us.convert(x, "jax")
    assert us.dtype_of(got) == us.dtype_of(x)
    np.testing.assert_array_equal(us.to_numpy(got), us.to_numpy(x))


def test_copy_false_is_kept():
    x = us.ones(4)
    assert us.asarray(x, copy=False) is x
    for obj, dtype in ((x, "float64"), ([1.0], None), (FOREIGN["unaligned"](), None)):
        with pytest.raises(ArgumentError, match="copy"):
            us.asarray(obj, dtype=dtype, copy=False)


def test_asarray_of_words_is_an_error():
    with pytest.raises(ArgumentTypeError, match="numbers"):
        us.asarray(["one"])


def test_devices_by_name():
    x = us.ones(2)
    assert us.device(x) == jax.local_devices()[0]
    assert us.to_device(x, "cpu:0") is x
    assert not us.ones(2, device="cpu").committed  # a committed array would make jit compile anew
    with pytest.raises(ArgumentError, match="'cpu:7'"):
        us.ones(2, device="cpu:7")
    with pytest.raises(ArgumentError, match="'abacus'"):
        us.to_device(x, "abacus")


def test_a_traced_array_can_be_like():
    made = us.jit(lambda x: (us.zeros(2, like=x), us.ones_like(x), us.add(1.0, x)))(us.ones(2))
    assert [us.dtype_of(m) for m in made] == ["float32"] * 3


def test_without_x64():
    code = (
        "import unisync as us\n"
        "from unisync.errors import ArgumentTypeError\n"
        "us.set_backend('jax')\n"
        "assert us.dtype_of(us.arange(3)) == 'int32' and us.dtype_of(us.argmax(us.ones(2))) == 'int32'\n"
        "try:\n    us.ones(2, dtype='float64')\n"
        "except ArgumentTypeError as error:\n    assert 'UNISYNC_JAX_X64' in str(error)\n"
        "else:\n    raise SystemExit('float64 was made')\n"
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=os.environ | {"UNISYNC_JAX_X64": "0"}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr


def test_loading_makes_no_device_client():
    code = (
        "import unisync as us\n"
        "us.set_backend('jax')\n"
        "import jax\n"
        "jax.config.update('jax_num_cpu_devices', 3)\n"  # refused once the client is there
        "assert len(jax.devices('cpu')) == 3\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "UNISYNC_JAX_DEVICES"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment)
    assert run.returncode == 0, run.stderr


def test_describe_names_versions_and_devices():
    about = us.namespace(us.ones(1)).describe()
    assert about["version"] == jax.__version__
    assert about["x64"]
    assert len(about["devices"]) == jax.local_device_count()
