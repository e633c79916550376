"""TensorFlow's nn operations: convolutions whose kernels lack gradients, ties, and batches of unknown size."""

from __future__ import annotations

import numpy as np
import pytest

import unisync as us

tf = pytest.importorskip("tensorflow")


@pytest.fixture(autouse=True)
def _backend():
    with us.backend("tensorflow"):
        yield


# Convolution: float64 is composed of what has gradients, float32 uses oneDNN's kernels where there are some.

CONVOLUTIONS = [
    {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    for stride in (1, 2, (2, 1))
    for padding in (0, (1, 2), "same")
    for dilation in (1, 2, (1, 2))
    for groups in (1, 2, 4)
]


def reference(x, w, stride, padding, dilation, groups):
    """The convolution as a sum over the window's places, differentiable by nothing but plain ops."""
    (sh, sw), (dh, dw) = ((n, n) if isinstance(n, int) else n for n in (stride, dilation))
    kh, kw = w.shape[2:]
    pads = []
    for length, s, k, d, axis in ((x.shape[1], sh, kh, dh, 0), (x.shape[2], sw, kw, dw, 1)):
        if padding == "same":
            total = max((-(-length // s) - 1) * s + (k - 1) * d + 1 - length, 0)
            pads.append((total // 2, total - total // 2))
        else:
            p = padding if isinstance(padding, int) else padding[axis]
            pads.append((p, p))
    x = tf.pad(x, [(0, 0), *pads, (0, 0)])
    rows = (x.shape[1] - (kh - 1) * dh - 1) // sh + 1
    columns = (x.shape[2] - (kw - 1) * dw - 1) // sw + 1
    parts = []
    for xs, ws in zip(tf.split(x, groups, -1), tf.split(w, groups, 0), strict=True):
        total = 0.0
        for i in range(kh):
            for j in range(kw):
                a = xs[:, i * dh : i * dh + (rows - 1) * sh + 1 : sh, j * dw : j * dw + (columns - 1) * sw + 1 : sw]
                total += tf.einsum("nhwc,oc->nhwo", a, ws[:, :, i, j])
        parts.append(total)
    return tf.concat(parts, -1)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("how", CONVOLUTIONS, ids=lambda how: "-".join(map(str, how.values())))
def test_convolution_and_its_gradients(how, dtype, rng):
    x = us.asarray(rng.normal(size=(2, 7, 8, 4)), dtype=dtype)
    w = us.asarray(rng.normal(size=(8, 4 // how["groups"], 3, 2)), dtype=dtype)
    wanted = us.value_and_grad(lambda x, w: us.sum(us.sin(reference(x, w, **how))), (0, 1))(x, w)
    got = us.value_and_grad(lambda x, w: us.sum(us.sin(us.nn.conv2d(x, w, **how))), (0, 1))(x, w)
    for one, other in zip(us.tree.leaves(got), us.tree.leaves(wanted), strict=True):
        tolerance = 1e-9 if dtype == "float64" else 2e-3
        np.testing.assert_allclose(us.to_numpy(one), us.to_numpy(other), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("how", [{}, {"dilation": 2}, {"groups": 2}, {"groups": 4, "padding": 1}])
def test_convolution_of_small_floats(how, dtype, rng):
    x = us.asarray(rng.normal(size=(2, 6, 6, 4)), dtype=dtype)
    w = us.asarray(rng.normal(size=(4, 4 // how.get("groups", 1), 2, 2)), dtype=dtype)
    gradients = us.grad(lambda x, w: us.sum(us.nn.conv2d(x, w, **how)), (0, 1))(x, w)
    assert [us.dtype_of(g) for g in gradients] == [dtype, dtype]
    y = us.nn.conv2d(us.astype(x, "float32"), us.astype(w, "float32"), **how)
    np.testing.assert_allclose(us.to_numpy(us.nn.conv2d(x, w, **how)), us.to_numpy(y), rtol=0.05, atol=0.1)


# Pooling


@pytest.mark.parametrize("padding", [0, 1])
def test_max_pool_gradient_goes_to_the_first_of_equals(padding):
    g = us.grad(lambda x: us.sum(us.nn.max_pool2d(x, 2, padding=padding)))(us.ones((1, 4, 4, 1)))
    wanted = np.zeros((4, 4))
    places = range(0, 4, 2) if padding == 0 else (0, 1, 3)
    wanted[np.ix_(places, places)] = 1
    np.testing.assert_array_equal(us.to_numpy(g)[0, :, :, 0], wanted)


# Float64 is not rounded to float32 on the way


@pytest.mark.parametrize(
    ("op", "oracle"),
    [
        (us.nn.leaky_relu, lambda x: np.where(x > 0, x, 0.01 * x)),
        (lambda x: us.nn.elu(x, alpha=0.3), lambda x: np.where(x > 0, x, 0.3 * np.expm1(x))),
        (
            lambda x: us.nn.gelu(x, approximate=True),
            lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
        ),
        (lambda x: us.nn.layer_norm(x, eps=0.1), lambda x: (x - x.mean()) / np.sqrt(x.var() + 0.1)),
    ],
)
def test_float64_is_exact(op, oracle):
    x = np.linspace(-3, 3, 11)
    np.testing.assert_allclose(us.to_numpy(op(us.asarray(x))), oracle(x), rtol=1e-13)


# A batch whose size is unknown while tracing


OPERATIONS = {
    "linear": ((None, 5, 4), lambda x: us.nn.linear(x, us.ones((3, 4)), us.ones(3))),
    "conv1d": ((None, 5, 4), lambda x: us.nn.conv1d(x, us.ones((6, 2, 2)), groups=2, padding="same", dilation=2)),
    "conv2d": ((None, 5, 6, 4), lambda x: us.nn.conv2d(x, us.ones((3, 4, 2, 2)), us.ones(3), padding=1)),
    "conv2d of unknown size": (
        (None, None, None, 4),
        lambda x: us.nn.conv2d(x, us.ones((4, 2, 2, 2)), groups=2, padding="same", dilation=2),
    ),
    "max_pool2d": ((None, 4, 5, 6), lambda x: us.nn.max_pool2d(x, 2, data_format="NCHW")),
    "avg_pool2d": ((None, 4, 5, 6), lambda x: us.nn.avg_pool2d(x, 2, padding=1)),
    "layer_norm": ((None, 4, 5), lambda x: us.nn.layer_norm(x, us.ones((4, 5)), us.ones((4, 5)), ndim=2)),
    "group_norm": ((None, 3, 5, 4), lambda x: us.nn.group_norm(x, 2, us.ones(4), us.ones(4))),
    "group_norm NCHW": ((None, 4, 3, 5), lambda x: us.nn.group_norm(x, 2, us.ones(4), data_format="NCHW")),
    "attention": ((None, 2, 3, 4), lambda x: us.nn.scaled_dot_product_attention(x, x, x, causal=True)),
    "attention of unknown length": (
        (None, None, 4),
        lambda x: us.nn.scaled_dot_product_attention(x, x, x, causal=True),
    ),
    "cross entropy": (
        (None, 4),
        lambda x: us.nn.softmax_cross_entropy_with_integer_labels(x, us.argmax(x, axis=-1)),
    ),
    "dropout": ((None, 50), lambda x: us.nn.dropout(x, 0.5, us.random.Key(0))),
    "embedding": ((None, 3), lambda x: us.nn.embedding(us.eye(3), us.argmax(x, axis=-1))),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_unknown_batch(name, rng):
    shape, op = OPERATIONS[name]
    x = us.asarray(rng.normal(size=[n or 3 for n in shape]).astype("float32"))
    traced = tf.function(op, input_signature=[tf.TensorSpec(shape)], autograph=False)
    np.testing.assert_allclose(us.to_numpy(traced(x)), us.to_numpy(op(x)), rtol=1e-5, atol=1e-6)


# Randomness


def test_draws_are_those_of_philox_in_eager_and_compiled_code():
    key = us.random.Key(7)
    seed = tf.bitcast(tf.constant(key.words()), tf.int32)
    wanted = tf.random.stateless_uniform((5,), seed, alg="philox").numpy()
    np.testing.assert_array_equal(us.to_numpy(us.random.uniform(key, (5,))), wanted)
    np.testing.assert_array_equal(us.to_numpy(us.jit(lambda k: us.random.uniform(k, (5,)))(key)), wanted)
    drawn = us.to_numpy(us.random.normal(key, (20000,), mean=2.0, std=3.0, dtype="float64"))
    assert drawn.dtype == np.float64
    assert abs(drawn.mean() - 2) < 0.1
    assert abs(drawn.std() - 3) < 0.1
    assert abs(us.to_numpy(us.random.bernoulli(key, 0.3, (20000,))).mean() - 0.3) < 0.02


# Lists


def test_lists_take_scalars_of_any_dtype():
    xs = [us.ones(2, dtype="float16"), us.ones(3, dtype="float64")]
    for scalar in (2, 2.0, us.asarray(2.0), us.asarray(2)):
        for ys in (us.multi_scale(xs, scalar), us.multi_add(xs, xs, alpha=scalar), us.multi_shift(xs, scalar)):
            assert [us.dtype_of(y) for y in ys] == ["float16", "float64"]
    kept = us.multi_where(us.asarray(False), xs, us.multi_scale(xs, 0.0))
    assert [float(us.sum(y)) for y in kept] == [0, 0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_all_finite(bad, dtype):
    x = np.ones(1000)
    assert bool(us.multi_all_finite([us.asarray(x, dtype=dtype), us.ones(())]))
    x[777] = bad
    assert not bool(us.multi_all_finite([us.ones(3), us.asarray(x, dtype=dtype)]))


def test_describe():
    described = us.namespace().describe()
    assert described["framework"] == "tensorflow"
    assert described["version"] == tf.__version__
    assert any(device.startswith("cpu") for device in described["devices"])
