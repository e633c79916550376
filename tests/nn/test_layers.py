"""The layer interface: initialisation, slices, state, layers of one's own, randomness, masked rows, and errors."""

from __future__ import annotations

import dataclasses
import re
import threading

import numpy as np
import pytest

import unisync as us
from unisync import _context, errors, nn

ALL = nn.Sequential(
    {
        "conv2": nn.Conv2d(3, 4, 3),
        "conv1": nn.Conv1d(3, 4, 3, bias=False),
        "linear": nn.Linear(7, 5),
        "embedding": nn.Embedding(5, 3),
        "position": nn.PositionalEmbedding(6, 3),
        "norm": nn.BatchNorm(4),
        "attention": nn.MultiHeadAttention(6, 2),
        "block": nn.TransformerBlock(6, 2, dropout=0.1),
        "lstm": nn.LSTM(3, 4, 2),
        "gru": nn.GRU(3, 4),
        "residual": nn.Residual([nn.LayerNorm(4), nn.Linear(4, 4)]),
        "nothing": nn.Dropout(0.5),
    }
)
"""One of each layer with parameters; not to be applied."""


def mlp():
    return nn.Sequential([nn.Linear(3, 4), nn.Tanh(), nn.BatchNorm(4), nn.Dropout(0.5), nn.Linear(4, 2)])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_initial_values_are_the_same_bits_on_every_backend(backend, dtype):
    params, state = ALL.init(us.random.Key(7), dtype)
    with us.backend("numpy"):
        reference = ALL.init(7, dtype)
    assert us.tree.paths((params, state)) == us.tree.paths(reference)
    for leaf, expected in zip(us.tree.leaves((params, state)), us.tree.leaves(reference), strict=True):
        assert backend == us.namespace(leaf).NAME
        assert us.dtype_of(leaf) == dtype
        assert us.to_numpy(leaf).tobytes() == expected.tobytes()


def test_float32_values_are_the_rounded_float64_ones():
    with us.backend("numpy"):
        single, double = nn.Linear(5, 4).init(3)[0], nn.Linear(5, 4).init(3, us.float64)[0]
    np.testing.assert_array_equal(single["weight"], double["weight"].astype(np.float32))


def test_layers_of_one_model_differ_and_seeds_matter():
    with us.backend("numpy"):
        params, _ = nn.Sequential([nn.Linear(4, 4), nn.Linear(4, 4)]).init(0)
        other, _ = nn.Sequential([nn.Linear(4, 4), nn.Linear(4, 4)]).init(1)
    assert not np.array_equal(params["0"]["weight"], params["1"]["weight"])
    assert not np.array_equal(params["0"]["weight"], other["0"]["weight"])


def test_slices_keep_keys_bits_and_results(backend, rng):
    model = nn.Sequential([nn.Linear(3, 4), nn.Tanh(), nn.BatchNorm(4), nn.Dropout(0.5), nn.Linear(4, 2)])
    params, state = model.init(0)
    assert sorted(params) == ["0", "2", "4"]
    assert sorted(state) == ["2"]
    front, back = model[:2], model[2:]
    assert len(front) == 2
    assert list(back) == [nn.BatchNorm(4), nn.Dropout(0.5), nn.Linear(4, 2)]
    assert model[-1] == model["4"] == nn.Linear(4, 2)
    assert repr(back) == "Sequential({'2': BatchNorm(4), '3': Dropout(0.5), '4': Linear(4, 2)})"
    own, _ = back.init(0)
    for a, b in zip(us.tree.leaves(own["4"]), us.tree.leaves(params["4"]), strict=True):
        assert us.to_numpy(a).tobytes() == us.to_numpy(b).tobytes()
    x, key = us.asarray(rng.standard_normal((6, 3)).astype("float32")), us.random.Key(1)
    whole, after = model.apply(params, state, x, train=True, key=key)
    middle, same = front.apply(params, state, x, train=True, key=key)
    assert same is state
    part, after_part = back.apply(params, state, middle, train=True, key=key)
    np.testing.assert_array_equal(us.to_numpy(part), us.to_numpy(whole))
    np.testing.assert_array_equal(us.to_numpy(after_part["2"]["running_mean"]), us.to_numpy(after["2"]["running_mean"]))
    assert model[1:][1:] == model[2:]
    assert model[::2].keys == ("0", "2", "4")


def test_models_are_values():
    assert mlp() == mlp()
    assert hash(mlp()) == hash(mlp())
    assert mlp()[1:] != mlp()
    assert nn.Sequential(nn.ReLU(), nn.Tanh()) == nn.Sequential([nn.ReLU(), nn.Tanh()])
    assert nn.Conv2d(1, 2, [3, 3]) == nn.Conv2d(1, 2, (3, 3))
    with pytest.raises(dataclasses.FrozenInstanceError):
        nn.Linear(2, 3).bias = False


@pytest.mark.parametrize(
    ("layer", "text"),
    [
        (nn.Linear(80, 10), "Linear(80, 10)"),
        (nn.Linear(80, 10, bias=False), "Linear(80, 10, bias=False)"),
        (nn.Conv2d(1, 20, 5, padding="same"), "Conv2d(1, 20, 5, padding='same')"),
        (nn.Residual([nn.Linear(2, 2), nn.ReLU()]), "Residual([Linear(2, 2), ReLU()])"),
        (nn.Function(us.square), "Function(square)"),
        (nn.Sequential({"a": nn.ReLU()}), "Sequential({'a': ReLU()})"),
        (nn.Sequential([nn.ReLU(), nn.Tanh()])[1:], "Sequential({'1': Tanh()})"),
        (nn.Sequential([]), "Sequential([])"),
    ],
)
def test_repr(layer, text):
    assert repr(layer) == text


@dataclasses.dataclass(frozen=True)
class Affine(nn.Layer):
    """A layer of one's own with parameters."""

    features: int

    def init_params(self, key):
        return {"scale": key.generator().normal(size=self.features), "shift": np.zeros(self.features)}

    def forward(self, params, x):
        return x * params["scale"] + params["shift"]


@dataclasses.dataclass(frozen=True)
class Largest(nn.Layer):
    """A layer of one's own with state."""

    def init_state(self):
        return {"largest": -np.inf}

    def apply(self, params, state, x, train=False, key=None):
        return x, {"largest": us.maximum(state["largest"], us.max(x))}


@dataclasses.dataclass(frozen=True)
class Gate(nn.Layer):
    """A layer of one's own made of layers."""

    dim: int

    def children(self):
        return {"value": nn.Linear(self.dim, self.dim), "gate": Affine(self.dim)}

    def forward(self, params, x):
        inner = self.children()
        return inner["value"](params["value"], x) * us.nn.sigmoid(inner["gate"](params["gate"], x))


def test_layers_of_ones_own(backend):
    model = nn.Sequential([Affine(3), Gate(3), Largest()])
    params, state = model.init(0)
    assert us.tree.paths(params) == [
        "0/scale",
        "0/shift",
        "1/gate/scale",
        "1/gate/shift",
        "1/value/bias",
        "1/value/weight",
    ]
    assert us.dtype_of(params["0"]["scale"]) == us.float32
    assert model.stateful
    assert not model[:2].stateful
    x = us.ones((2, 3))
    y, state = model.apply(params, state, x)
    assert float(state["2"]["largest"]) == float(us.max(y))
    gradients = us.grad(lambda p: us.sum(model[:2](p, x)))(params)
    assert us.tree.paths(gradients) == us.tree.paths(params)


def test_a_layer_without_forward_says_so():
    @dataclasses.dataclass(frozen=True)
    class Empty(nn.Layer):
        pass

    with pytest.raises(NotImplementedError, match=r"Empty must define forward\(self, params, x\)"):
        Empty()({}, us.ones(2))


def test_dropout(backend):
    model = nn.Sequential([nn.Dropout(0.25), nn.Dropout(0.25)])
    x = us.ones(4000)
    np.testing.assert_array_equal(us.to_numpy(model({}, x)), 1.0)
    key = us.random.Key(3)
    y = us.to_numpy(model.apply({}, {}, x, train=True, key=key)[0])
    np.testing.assert_allclose(y[y > 0], 1 / 0.75**2, rtol=1e-6)
    assert np.mean(y > 0) == pytest.approx(0.75**2, abs=0.05)  # two independent masks
    assert y.mean() == pytest.approx(1.0, abs=0.06)
    np.testing.assert_array_equal(y, us.to_numpy(model.apply({}, {}, x, train=True, key=key)[0]))
    assert not np.array_equal(y, us.to_numpy(model.apply({}, {}, x, train=True, key=us.random.Key(4))[0]))


def test_transformer_dropout_acts_in_training_only(backend):
    block = nn.TransformerBlock(8, 2, dropout=0.5)
    params, _ = block.init(0)
    x = us.ones((2, 3, 8))
    still = us.to_numpy(block(params, x))
    moved = us.to_numpy(block.apply(params, {}, x, train=True, key=us.random.Key(0))[0])
    assert not np.allclose(still, moved)
    with pytest.raises(errors.ArgumentError, match=r"TransformerBlock.*`key` must be given in training"):
        block.apply(params, {}, x, train=True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(3,), (4, 3), (4, 2, 3)])
def test_padded_rows_do_not_count_in_batch_norm(backend, rng, shape, dtype):
    """Outputs, gradients and running statistics equal those of the batch without the padding."""
    layer = nn.BatchNorm(3)
    params, state = layer.init(0, dtype)
    real = rng.standard_normal((5, *shape)).astype(dtype)
    padded = np.concatenate([real, 100 + rng.standard_normal((3, *shape)).astype(dtype)])
    weights = np.array([1, 1, 1, 2, 0.5, 0, 0, 0], dtype)  # other weights are the loss's business
    cotangent = rng.standard_normal(real.shape).astype(dtype)

    def loss(params, x):
        y, new = layer.apply(params, state, x, train=True)
        return us.sum(y[:5] * us.asarray(cotangent)), (y, new)

    @us.jit
    def run(params, x, weights):
        with _context.weighing(weights):
            return us.value_and_grad(loss, (0, 1), has_aux=True)(params, x)

    (_, (y, new)), (by_params, by_x) = run(params, us.asarray(real), None)
    (_, (y2, new2)), (by_params2, by_x2) = run(params, us.asarray(padded), us.asarray(weights))
    tolerance = 1e-4 if dtype == "float32" else 1e-10
    for a, b in [(y, y2[:5]), (by_x, by_x2[:5]), (0 * by_x[:3], by_x2[5:])]:
        np.testing.assert_allclose(us.to_numpy(b), us.to_numpy(a), atol=tolerance)
    for tree, other in [(new, new2), (by_params, by_params2)]:
        for a, b in zip(us.tree.leaves(tree), us.tree.leaves(other), strict=True):
            np.testing.assert_allclose(us.to_numpy(b), us.to_numpy(a), atol=tolerance)


def test_batch_norm_without_a_real_row_moves_nothing(backend):
    layer = nn.BatchNorm(3)
    params, state = layer.init(0)
    with _context.weighing(us.zeros(4)):
        y, new = layer.apply(params, state, us.ones((4, 3)), train=True)
    assert np.isfinite(us.to_numpy(y)).all()
    for name in state:
        np.testing.assert_array_equal(us.to_numpy(new[name]), us.to_numpy(state[name]))


def test_batch_norm_of_one_element_stays_finite(backend):
    layer = nn.BatchNorm(3)
    params, state = layer.init(0)
    y, new = layer.apply(params, state, us.ones((1, 3)), train=True)
    np.testing.assert_array_equal(us.to_numpy(y), 0.0)
    np.testing.assert_allclose(us.to_numpy(new["running_var"]), 0.9, rtol=1e-6)


def test_weights_of_another_batch_are_an_error(backend):
    layer = nn.BatchNorm(3)
    params, state = layer.init(0)
    with (
        _context.weighing(us.ones(4)),
        pytest.raises(errors.ShapeError, match=r"4.*sample weights, got shape \(8, 3\)"),
    ):
        layer.apply(params, state, us.ones((8, 3)), train=True)


def test_weighing_nests_and_is_of_one_thread():
    seen = []
    with _context.weighing(1):
        with _context.weighing(None):
            assert _context.sample_weights() is None
        assert _context.sample_weights() == 1
        thread = threading.Thread(target=lambda: seen.append(_context.sample_weights()))
        thread.start()
        thread.join()
    assert seen == [None]
    assert _context.sample_weights() is None


def test_a_model_in_a_compiled_function(backend, rng):
    """Static shapes and weights work while tracing; a step of jit gives the numbers of an eager one."""
    model = mlp()[:3]
    params, state = model.init(0)
    x, weights = us.asarray(rng.standard_normal((6, 3)).astype("float32")), us.asarray([1.0, 1, 1, 1, 0, 0])

    def step(params, state, x, weights):
        with _context.weighing(weights):
            return model.apply(params, state, x, train=True)

    eager, compiled = step(params, state, x, weights), us.jit(step)(params, state, x, weights)
    for a, b in zip(us.tree.leaves(eager), us.tree.leaves(compiled), strict=True):
        np.testing.assert_allclose(us.to_numpy(b), us.to_numpy(a), atol=1e-6)
    with pytest.raises(errors.ShapeError, match=r"Sequential/0 Linear\(3, 4\): .*\(\.\.\., 3\), got \(6, 5\)"):
        us.jit(step)(params, state, us.ones((6, 5)), weights)


SHAPES = {
    "linear": (nn.Linear(80, 10), (64, 320), "(..., 80)", "Linear(320, 10)"),
    "conv rank": (nn.Conv2d(1, 20, 5), (8, 28, 28), "(N, H, W, 1)", "x[..., None]"),
    "conv channels": (nn.Conv2d(3, 20, 5), (8, 3, 28, 28), "(N, H, W, 3)", 'data_format="NCHW"'),
    "conv small": (nn.Conv2d(3, 20, 5), (8, 28, 4, 3), "(N, H, W, 3) with H ≥ 5 and W ≥ 5", "padding"),
    "conv1d": (nn.Conv1d(3, 20, 5), (8, 28, 4), "(N, L, 3)", ""),
    "pool": (nn.MaxPool2d(4), (8, 2, 8, 3), "(N, H, W, C) with H ≥ 4 and W ≥ 4", ""),
    "layer norm": (nn.LayerNorm((2, 3)), (8, 4, 3), "(..., 2, 3)", ""),
    "rms norm": (nn.RMSNorm(4), (8, 3), "(..., 4)", "RMSNorm(3)"),
    "group norm": (nn.GroupNorm(2, 4), (8, 2, 6), "(N, ..., 4)", ""),
    "position": (nn.PositionalEmbedding(4, 3), (8, 5, 3), "(N, L, 3) with L ≤ 4", "PositionalEmbedding(5, 3)"),
    "attention": (nn.MultiHeadAttention(4, 2), (8, 4), "(N, L, 4)", ""),
    "block": (nn.TransformerBlock(4, 2), (8, 3, 5), "(N, L, 4)", ""),
    "lstm": (nn.LSTM(3, 4), (8, 3), "(N, L, 3)", "x[..., None]"),
    "gru": (nn.GRU(3, 4), (8, 5, 4), "(N, L, 3)", ""),
    "flatten": (nn.Flatten(), (8,), "(_, _, ...)", ""),
    "scalar": (nn.Linear(3, 2), (), "(..., 3)", ""),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_wrong_shape_names_the_layer_and_both_shapes(name, backend):
    layer, shape, expected, cure = SHAPES[name]
    model = nn.Sequential([nn.Function(us.abs), nn.Sequential({"inner": layer})])
    params, state = model.init(0)
    with pytest.raises(errors.ShapeError) as caught:
        model.apply(params, state, us.zeros(shape))
    text = str(caught.value)
    assert text.startswith(f"Sequential/1/inner {layer!r}: `x` must have shape {expected}, got {shape}."), text
    assert cure in text


def test_residual_of_another_shape():
    model = nn.Residual([nn.Linear(3, 4)])
    params, _ = model.init(0)
    with pytest.raises(errors.ShapeError, match=r"must keep the shape, got \(2, 3\) in and \(2, 4\) out"):
        model(params, us.ones((2, 3)))


def test_other_errors_get_a_note_with_the_place(backend):
    def broken(x):
        raise RuntimeError("broken")

    model = nn.Sequential([nn.ReLU(), nn.Residual(nn.Function(broken))])
    with pytest.raises(RuntimeError, match="broken") as caught:
        model({}, us.ones(2))
    assert caught.value.__notes__ == ["The error fell in the layer Sequential/1/0 Function(broken)."]


CALLS = {
    "stateful": (lambda m, p, s, x: m(p, x), errors.StateError, r"Try: y, state = model\.apply\(params, state, x\)"),
    "no key": (
        lambda m, p, s, x: m.apply(p, s, x, train=True),
        errors.ArgumentError,
        r"Sequential/3 Dropout\(0\.5\): `key` must be given in training, got None",
    ),
    "no params": (
        lambda m, p, s, x: m.apply({}, s, x),
        errors.ArgumentError,
        r"Sequential/0 Linear\(3, 4\): `params` must hold 'weight', got only \[\]",
    ),
    "half the params": (
        lambda m, p, s, x: m.apply({**p, "0": {"weight": p["0"]["weight"]}}, s, x),
        errors.ArgumentError,
        r"Sequential/0 Linear\(3, 4\): `params` must hold 'bias', got only \['weight'\]",
    ),
    "exchanged": (
        lambda m, p, s, x: m[:2](x, p),
        errors.ArgumentTypeError,
        r"`params` of Sequential must be the dict that model\.init returned, got ",
    ),
    "exchanged in one layer": (
        lambda m, p, s, x: nn.Linear(3, 4)(us.ones((2, 3)), us.ones((2, 3))),
        errors.ArgumentTypeError,
        r"Linear\(3, 4\): `params` must be the dict",
    ),
    "no state": (
        lambda m, p, s, x: m.apply(p, {}, x),
        errors.ArgumentError,
        r"Sequential/2 BatchNorm\(4\): `state` must hold 'running_mean'",
    ),
    "not an array": (lambda m, p, s, x: m.apply(p, s, [1.0]), errors.NotAnArrayError, r"Linear\(3, 4\).*got list"),
    "seed": (
        lambda m, p, s, x: m.init("zero"),
        errors.ArgumentTypeError,
        "`key` must be a us.random.Key or an integer",
    ),
    "float indices": (
        lambda m, p, s, x: nn.Embedding(3, 2)({"weight": us.ones((3, 2))}, us.ones(2)),
        errors.ArgumentTypeError,
        r"Embedding\(3, 2\): `x` must be of an integer dtype, got float32",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_bad_calls(name, backend):
    call, kind, text = CALLS[name]
    model = mlp()
    params, state = model.init(0)
    with pytest.raises(kind, match=text):
        call(model, params, state, us.ones((2, 3)))


CONSTRUCTIONS = {
    "zero": (
        lambda: nn.Linear(0, 3),
        errors.ArgumentError,
        "`in_features` of Linear must be a positive integer, got 0",
    ),
    "negative": (lambda: nn.Conv2d(1, -2, 3), errors.ArgumentError, "`out_channels` of Conv2d"),
    "float": (lambda: nn.Linear(2.0, 3), errors.ArgumentTypeError, r"`in_features` of Linear.*got 2\.0"),
    "kernel": (lambda: nn.Conv2d(1, 2, (3, 0)), errors.ArgumentError, r"`kernel_size` of Conv2d.*\(3, 0\)"),
    "kernel length": (lambda: nn.Conv2d(1, 2, (3, 3, 3)), errors.ArgumentError, "one number or 2"),
    "padding": (lambda: nn.Conv2d(1, 2, 3, padding="full"), errors.UnknownNameError, "'same'"),
    "negative padding": (lambda: nn.Conv2d(1, 2, 3, padding=-1), errors.ArgumentError, "`padding` of Conv2d"),
    "large padding": (lambda: nn.MaxPool2d(2, padding=2), errors.ArgumentError, "at most half the window"),
    "groups": (
        lambda: nn.Conv2d(4, 6, 3, groups=3),
        errors.ArgumentError,
        "`groups` of Conv2d must divide `in_channels`",
    ),
    "format": (lambda: nn.Conv2d(4, 6, 3, data_format="NWHC"), errors.UnknownNameError, "Try: 'NHWC'"),
    "heads": (lambda: nn.MultiHeadAttention(10, 4), errors.ArgumentError, "`heads`.*must divide `dim`.*Try: heads=2"),
    "rate": (lambda: nn.Dropout(1.5), errors.ArgumentError, r"`rate` of Dropout must lie in \[0, 1\]"),
    "output": (lambda: nn.LSTM(3, 4, output="final"), errors.UnknownNameError, "'last'"),
    "activation": (lambda: nn.TransformerBlock(4, 2, activation="rulu"), errors.UnknownNameError, "Try: 'relu'"),
    "norm": (lambda: nn.LayerNorm((3, 0)), errors.ArgumentError, "`shape` of LayerNorm"),
    "a class": (lambda: nn.Sequential([nn.ReLU]), errors.ArgumentTypeError, "a class: call it"),
    "a function": (lambda: nn.Sequential([us.exp]), errors.ArgumentTypeError, r"Function\(fn\) makes it one"),
    "a number": (lambda: nn.Sequential(3), errors.ArgumentTypeError, "`layers` must be layers, got 3"),
    "no function": (lambda: nn.Function(3), errors.ArgumentTypeError, "`fn` must be a function"),
    "no such key": (lambda: mlp()["7"], errors.ArgumentError, "one of the keys"),
}


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_bad_constructions(name):
    make, kind, text = CONSTRUCTIONS[name]
    with pytest.raises(kind, match=text) as caught:
        make()
    assert "Try:" in str(caught.value) or re.search(text, str(caught.value))


def test_a_users_layer_that_is_no_dataclass_shows_its_own_error():
    class Broken(us.nn.Layer):
        def forward(self, params, x):
            raise ValueError("its own")

    assert repr(Broken()) == "Broken()"
    model = us.nn.Sequential([Broken()])
    params, _ = model.init(0)
    with pytest.raises(ValueError, match="its own"):
        model(params, us.ones(2))
