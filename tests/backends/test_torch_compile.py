"""torch.compile traces our functions as one graph, dispatch included."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import unisync as us  # noqa: E402


@pytest.fixture(autouse=True)
def on_torch(monkeypatch):
    """torch made the current backend as a user makes it: torch.compile cannot trace `with us.backend`."""
    from unisync import _dispatch

    monkeypatch.setattr(_dispatch, "_chosen", _dispatch.load("torch"))
    monkeypatch.setattr(_dispatch, "_overrides_used", False)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


X = torch.linspace(-1.0, 2.0, 20).reshape(5, 4)

ROWS = {
    "unary": lambda x: us.exp(us.abs(x)),
    "binary": lambda x: us.add(us.multiply(x, x), 2.0),
    "number on the left": lambda x: us.subtract(1.0, x),
    "number for arrays only": lambda x: us.maximum(x, 0.0),
    "mixed dtypes": lambda x: us.add(x, us.ones((), dtype="float64")),
    "zeros": lambda x: x + us.zeros((5, 4)),
    "dtypes": lambda x: us.astype(x + us.ones(4, dtype=us.float32), us.float64),
    "dtype_of": lambda x: x if us.dtype_of(x) == us.float32 else x + 1,
    "arange and like": lambda x: x + us.arange(4, like=x),
    "asarray": lambda x: x + us.asarray([1.0, 2.0, 3.0, 4.0]) + us.asarray(1.0),
    "where": lambda x: us.where(us.greater(x, 0.0), x, 0.0),
    "reductions": lambda x: us.sum(x, axis=1) + us.mean(x) + us.std(x) + us.max(x, axis=1),
    "argmax of bool": lambda x: us.argmax(us.greater(x, 0.0), axis=1),
    "shapes": lambda x: us.concat([us.reshape(x, (4, 5)), us.permute_dims(x, (1, 0))]),
    "take": lambda x: us.take(x, us.asarray([-1, 0]), axis=1),
    "clip": lambda x: us.clip(x, 0.0, 1.0),
    "convolution": lambda x: us.nn.conv2d(us.reshape(x, (5, 2, 2, 1)), us.ones((3, 1, 2, 2)), padding="same"),
    "attention": lambda x: us.nn.scaled_dot_product_attention(x[None], x[None], x[None], causal=True),
    "loss": lambda x: us.nn.softmax_cross_entropy_with_integer_labels(x, us.zeros(5, dtype="int64")),
    "one_hot": lambda x: us.nn.one_hot(us.argmax(x, axis=1), 4),
    "scan": lambda x: us.scan(lambda c, r: (c + r, c * 2), us.zeros(4), x)[1],
    "multi": lambda x: us.multi_add([x, x], [x, x], alpha=0.5)[1],
    "recompute": lambda x: us.recompute(us.exp)(x),
}


@pytest.mark.parametrize("name", ROWS)
def test_full_graph(name):
    compiled = torch.compile(ROWS[name], fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(X), ROWS[name](X), rtol=0, atol=0)


def mlp(params, x):
    h = us.nn.layer_norm(us.nn.relu(us.nn.linear(x, params["0"]["weight"], params["0"]["bias"])))
    return us.nn.linear(h, params["1"]["weight"])


def loss(params, x):
    return us.mean(us.square(mlp(params, x)))


def params():
    torch.manual_seed(0)
    return {"0": {"weight": torch.randn(8, 4), "bias": torch.randn(8)}, "1": {"weight": torch.randn(3, 8)}}


def assert_equal_trees(got, wanted):
    us.tree.map(lambda a, b: torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6), got, wanted)


def test_gradient_of_a_compiled_model():
    compiled = torch.compile(mlp, fullgraph=True, backend="aot_eager")
    got = us.value_and_grad(lambda p, x: us.mean(us.square(compiled(p, x))))(params(), X)
    assert_equal_trees(got, us.value_and_grad(loss)(params(), X))


def step(params, x):
    value, gradients = us.value_and_grad(loss)(us.tree.map(lambda p: p * 1.0, params), x)
    return value, us.tree.map(lambda p, g: p - 0.1 * g, params, gradients)


def test_a_users_torch_compile_of_a_step():
    assert_equal_trees(torch.compile(step, backend="aot_eager")(params(), X), step(params(), X))


def test_jit_compiles_the_gradient_too(monkeypatch):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    compile_native = torch.compile
    monkeypatch.setattr(torch, "compile", lambda fn: compile_native(fn, backend=backend, fullgraph=True))
    compiled = us.jit(step, torch_compile=True)
    assert_equal_trees(compiled(params(), X), step(params(), X))
    assert len(graphs) == 1


def test_random_numbers_in_compiled_code():
    compiled = torch.compile(lambda key, x: us.nn.dropout(x, 0.25, key), fullgraph=True, backend="eager")
    x = torch.ones(10_000)
    a, b = compiled(us.random.Key(0), x), compiled(us.random.Key(1), x)
    assert torch.equal(a, compiled(us.random.Key(0), x))
    assert abs((a > 0).float().mean().item() - 0.75) < 0.02
    assert abs((a == b).float().mean().item() - (0.75**2 + 0.25**2)) < 0.02
    draw = torch.compile(lambda key: us.random.normal(key, (20_000,)), fullgraph=True, backend="eager")
    z = us.to_numpy(draw(us.random.Key(3)))
    assert z.dtype == np.float32
    assert abs(z.mean()) < 0.03
    assert abs(z.std() - 1) < 0.03
    assert abs((np.abs(z) < 1).mean() - 0.6827) < 0.02
    assert abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < 0.03
