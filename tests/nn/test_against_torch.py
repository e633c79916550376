"""Every layer against torch.nn with the same weights: outputs, gradients and running statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import unisync as us
from unisync import nn

torch = pytest.importorskip("torch")
tnn = torch.nn

# torch says that it copies; the reference module of "conv1d same" has an even window.
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths:UserWarning")

DTYPES = {"float32": (torch.float32, 1e-5), "float64": (torch.float64, 1e-9)}


def same(x):
    """x, where both have one layout."""
    return x


def channels_second(x):
    """NHWC → NCHW, NLC → NCL, for torch."""
    return x.movedim(-1, 1)


def channels_last(x):
    """The inverse of channels_second."""
    return x.movedim(1, -1)


class Last(tnn.Module):
    """A torch recurrent module that gives the last output, or all."""

    def __init__(self, inner, last):
        super().__init__()
        self.inner, self.last = inner, last

    def forward(self, x):
        y = self.inner(x)[0]
        return y[:, -1] if self.last else y


class SelfAttention(tnn.Module):
    """torch's attention as self-attention."""

    def __init__(self, causal, bias=True):
        super().__init__()
        self.inner, self.causal = tnn.MultiheadAttention(8, 2, bias=bias, batch_first=True), causal

    def forward(self, x):
        mask = tnn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype) if self.causal else None
        return self.inner(x, x, x, attn_mask=mask, need_weights=False)[0]


class Causal(tnn.Module):
    """torch's encoder layer with a causal mask."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        mask = tnn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype)
        return self.inner(x, src_mask=mask, is_causal=True)


class Skip(tnn.Module):
    """A residual connection in torch."""

    def __init__(self, *layers):
        super().__init__()
        self.inner = tnn.Sequential(*layers)

    def forward(self, x):
        return x + self.inner(x)


@dataclass
class Case:
    """A layer of ours, the torch module, and our input's shape (or the input)."""

    ours: nn.Layer
    theirs: Any
    shape: Any
    into: Any = same
    back: Any = same
    prefix: str = ""
    train: bool = False


def image(ours, theirs, shape=(2, 7, 6, 4), **kw):
    return Case(ours, theirs, shape, channels_second, channels_last, **kw)


CASES = {
    "linear": lambda: Case(nn.Linear(5, 3), tnn.Linear(5, 3), (4, 5)),
    "linear 3-d": lambda: Case(nn.Linear(5, 3), tnn.Linear(5, 3), (4, 2, 5)),
    "linear no bias": lambda: Case(nn.Linear(5, 3, bias=False), tnn.Linear(5, 3, bias=False), (4, 5)),
    "conv1d": lambda: image(
        nn.Conv1d(4, 6, 3, 2, 1, 2, 2), tnn.Conv1d(4, 6, 3, 2, 1, 2, 2), (2, 11, 4)
    ),
    "conv1d same": lambda: image(nn.Conv1d(4, 6, 4, padding="same"), tnn.Conv1d(4, 6, 4, padding="same"), (2, 9, 4)),
    "conv2d": lambda: image(nn.Conv2d(4, 6, 3), tnn.Conv2d(4, 6, 3)),
    "conv2d all": lambda: image(
        nn.Conv2d(4, 6, (3, 2), (2, 1), (1, 0), (1, 2), 2, bias=False),
        tnn.Conv2d(4, 6, (3, 2), (2, 1), (1, 0), (1, 2), 2, bias=False),
    ),
    "conv2d valid": lambda: image(nn.Conv2d(4, 6, 3, padding="valid"), tnn.Conv2d(4, 6, 3, padding="valid")),
    "conv2d same": lambda: image(nn.Conv2d(4, 6, (3, 2), padding="same"), tnn.Conv2d(4, 6, (3, 2), padding="same")),
    "conv2d NCHW": lambda: Case(nn.Conv2d(4, 6, 3, data_format="NCHW"), tnn.Conv2d(4, 6, 3), (2, 4, 6, 5)),
    "depthwise": lambda: image(nn.Conv2d(4, 8, 3, groups=4), tnn.Conv2d(4, 8, 3, groups=4)),
    "max pool": lambda: image(nn.MaxPool2d(2), tnn.MaxPool2d(2)),
    "max pool all": lambda: image(nn.MaxPool2d((3, 2), (2, 1), (1, 0)), tnn.MaxPool2d((3, 2), (2, 1), (1, 0))),
    "avg pool": lambda: image(nn.AvgPool2d(2), tnn.AvgPool2d(2)),
    "avg pool all": lambda: image(nn.AvgPool2d((3, 2), (2, 1), (1, 0)), tnn.AvgPool2d((3, 2), (2, 1), (1, 0))),
    "flatten": lambda: Case(nn.Flatten(2), tnn.Flatten(2), (2, 3, 4, 5)),
    "embedding": lambda: Case(nn.Embedding(10, 4), tnn.Embedding(10, 4), np.array([[1, 9, 1], [0, 3, 3]])),
    "layer norm": lambda: Case(nn.LayerNorm(5), tnn.LayerNorm(5), (4, 3, 5)),
    "layer norm 2 axes": lambda: Case(nn.LayerNorm((3, 5), eps=1e-3), tnn.LayerNorm((3, 5), eps=1e-3), (4, 3, 5)),
    "layer norm plain": lambda: Case(
        nn.LayerNorm(5, affine=False), tnn.LayerNorm(5, elementwise_affine=False), (4, 5)
    ),
    "rms norm": lambda: Case(nn.RMSNorm(5), tnn.RMSNorm(5), (4, 3, 5)),
    "rms norm plain": lambda: Case(
        nn.RMSNorm(5, eps=1e-3, affine=False), tnn.RMSNorm(5, eps=1e-3, elementwise_affine=False), (4, 5)
    ),
    "group norm": lambda: image(nn.GroupNorm(2, 4), tnn.GroupNorm(2, 4)),
    "group norm 1-d": lambda: image(nn.GroupNorm(2, 4, data_format="NLC"), tnn.GroupNorm(2, 4), (2, 5, 4)),
    "group norm NCHW": lambda: Case(
        nn.GroupNorm(2, 4, eps=1e-3, affine=False, data_format="NCHW"),
        tnn.GroupNorm(2, 4, eps=1e-3, affine=False),
        (2, 4, 6, 5),
    ),
    "batch norm (N, C)": lambda: Case(nn.BatchNorm(4), tnn.BatchNorm1d(4), (6, 4), train=True),
    "batch norm (N, L, C)": lambda: image(nn.BatchNorm(4), tnn.BatchNorm1d(4), (3, 5, 4), train=True),
    "batch norm (N, H, W, C)": lambda: image(nn.BatchNorm(4, 1e-3, 0.3), tnn.BatchNorm2d(4, 1e-3, 0.3), train=True),
    "batch norm NCHW": lambda: Case(
        nn.BatchNorm(4, data_format="NCHW"), tnn.BatchNorm2d(4), (2, 4, 6, 5), train=True
    ),
    "batch norm plain": lambda: image(nn.BatchNorm(4, affine=False), tnn.BatchNorm2d(4, affine=False), train=True),
    "batch norm untracked": lambda: image(
        nn.BatchNorm(4, track=False), tnn.BatchNorm2d(4, track_running_stats=False)
    ),
    "batch norm eval": lambda: image(nn.BatchNorm(4), tnn.BatchNorm2d(4)),
    "attention": lambda: Case(nn.MultiHeadAttention(8, 2), SelfAttention(False), (3, 5, 8), prefix="inner."),
    "attention causal": lambda: Case(
        nn.MultiHeadAttention(8, 2, causal=True), SelfAttention(True), (3, 5, 8), prefix="inner."
    ),
    "attention no bias": lambda: Case(
        nn.MultiHeadAttention(8, 2, bias=False), SelfAttention(False, bias=False), (3, 5, 8), prefix="inner."
    ),
    "transformer": lambda: Case(
        nn.TransformerBlock(8, 2, 16, activation="relu", norm_first=False),
        tnn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        (3, 5, 8),
        train=True,
    ),
    "transformer norm first, causal": lambda: Case(
        nn.TransformerBlock(8, 2, causal=True),
        Causal(
            tnn.TransformerEncoderLayer(8, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True)
        ),
        (3, 5, 8),
        prefix="inner.",
        train=True,
    ),
    "lstm": lambda: Case(nn.LSTM(3, 4), Last(tnn.LSTM(3, 4, batch_first=True), False), (2, 6, 3), prefix="inner."),
    "lstm deep, last": lambda: Case(
        nn.LSTM(3, 4, 2, "last"), Last(tnn.LSTM(3, 4, 2, batch_first=True), True), (2, 6, 3), prefix="inner."
    ),
    "lstm no bias": lambda: Case(
        nn.LSTM(3, 4, bias=False), Last(tnn.LSTM(3, 4, bias=False, batch_first=True), False), (2, 6, 3), prefix="inner."
    ),
    "gru": lambda: Case(nn.GRU(3, 4), Last(tnn.GRU(3, 4, batch_first=True), False), (2, 6, 3), prefix="inner."),
    "gru deep, last": lambda: Case(
        nn.GRU(3, 4, 2, "last"), Last(tnn.GRU(3, 4, 2, batch_first=True), True), (2, 6, 3), prefix="inner."
    ),
    "gru no bias": lambda: Case(
        nn.GRU(3, 4, bias=False), Last(tnn.GRU(3, 4, bias=False, batch_first=True), False), (2, 6, 3), prefix="inner."
    ),
    "relu": lambda: Case(nn.ReLU(), tnn.ReLU(), (4, 5)),
    "leaky relu": lambda: Case(nn.LeakyReLU(0.2), tnn.LeakyReLU(0.2), (4, 5)),
    "elu": lambda: Case(nn.ELU(0.7), tnn.ELU(0.7), (4, 5)),
    "gelu": lambda: Case(nn.GELU(), tnn.GELU(), (4, 5)),
    "gelu tanh": lambda: Case(nn.GELU(approximate=True), tnn.GELU("tanh"), (4, 5)),
    "silu": lambda: Case(nn.SiLU(), tnn.SiLU(), (4, 5)),
    "sigmoid": lambda: Case(nn.Sigmoid(), tnn.Sigmoid(), (4, 5)),
    "tanh": lambda: Case(nn.Tanh(), tnn.Tanh(), (4, 5)),
    "softplus": lambda: Case(nn.Softplus(), tnn.Softplus(), (4, 5)),
    "softmax": lambda: Case(nn.Softmax(1), tnn.Softmax(1), (4, 5)),
    "residual": lambda: Case(
        nn.Residual([nn.LayerNorm(5), nn.Linear(5, 5)]),
        Skip(tnn.LayerNorm(5), tnn.Linear(5, 5)),
        (4, 5),
        prefix="inner.",
    ),
    "cnn": lambda: Case(
        nn.Sequential(
            [
                nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                nn.BatchNorm(48), nn.Dropout(0.0), nn.Linear(48, 5), nn.Tanh(), nn.Linear(5, 2),
            ]
        ),
        tnn.Sequential(
            tnn.Conv2d(3, 4, 3, padding=1), tnn.BatchNorm2d(4), tnn.ReLU(), tnn.MaxPool2d(2), tnn.Flatten(),
            tnn.BatchNorm1d(48), tnn.Dropout(0.0), tnn.Linear(48, 5), tnn.Tanh(), tnn.Linear(5, 2),
        ),
        (5, 8, 6, 3),
        channels_second,
        train=True,
    ),
    "cnn 1-d, nested": lambda: Case(
        nn.Sequential(
            {"features": nn.Sequential([nn.Conv1d(3, 4, 3), nn.ReLU()]), "flat": nn.Flatten(), "head": nn.Linear(24, 2)}
        ),
        tnn.Sequential(),
        (5, 8, 3),
        channels_second,
    ),
}  # fmt: skip


def make(name):
    torch.manual_seed(0)
    case = CASES[name]()
    if name == "cnn 1-d, nested":
        for key, module in {
            "features": tnn.Sequential(tnn.Conv1d(3, 4, 3), tnn.ReLU()),
            "flat": tnn.Flatten(),
            "head": tnn.Linear(24, 2),
        }.items():
            case.theirs.add_module(key, module)
    for parameter in case.theirs.parameters():  # norms start with ones and zeros, which would hide errors
        parameter.data.add_(0.1 * torch.randn(parameter.shape))
    case.theirs.train(case.train)
    return case


def numpy_dict(case):
    return {k.removeprefix(case.prefix): v.numpy().copy() for k, v in case.theirs.state_dict().items()}


def agree(ours, theirs, tolerance, what):
    ours, theirs = us.to_numpy(ours), theirs.detach().numpy()
    scale = max(1.0, float(np.abs(theirs).max(initial=0.0)))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * scale, err_msg=what)


IN_FLOAT32 = (
    "linear", "conv1d", "conv2d", "max pool", "embedding", "layer norm", "rms norm", "group norm", "batch norm (N, C)",
    "attention causal", "transformer", "lstm", "gru", "gelu", "cnn",
)  # fmt: skip
"""float64 tells formulas apart better; these are looked at in float32 too."""


@pytest.mark.parametrize(
    ("name", "dtype"), [(name, "float64") for name in CASES] + [(name, "float32") for name in IN_FLOAT32]
)
def test_layer(name, dtype, backend, rng):
    case, (torch_dtype, tolerance) = make(name), DTYPES[dtype]
    module = case.theirs.to(torch_dtype)
    params, state = nn.from_torch_state_dict(case.ours, numpy_dict(case))
    real = isinstance(case.shape, tuple)
    host = rng.standard_normal(case.shape).astype(dtype) if real else case.shape

    x = torch.tensor(host, requires_grad=real)
    y = case.back(module(case.into(x)))
    cotangent = rng.standard_normal(y.shape).astype(dtype)
    (y * torch.tensor(cotangent)).sum().backward()

    def value(params, inputs):
        given = inputs if real else native
        out, new = case.ours.apply(params, state, given, train=case.train)
        return us.sum(out * us.asarray(cotangent)), (out, new)

    native = us.asarray(host)
    (_, (out, new)), (by_params, by_x) = us.jit(us.value_and_grad(value, (0, 1), has_aux=True))(
        params, native if real else us.zeros(1)
    )
    assert us.dtype_of(out) == dtype
    agree(out, y, tolerance, "output")
    if real:
        agree(by_x, x.grad, tolerance, "gradient of x")
    gradients = nn.to_torch_state_dict(case.ours, by_params, new)
    for key, parameter in module.named_parameters():
        agree(gradients[key.removeprefix(case.prefix)], parameter.grad, tolerance, f"gradient of {key}")
    after = {k.removeprefix(case.prefix): v for k, v in module.named_buffers() if "num_batches" not in k}
    for key, buffer in after.items():
        agree(gradients[key], buffer, tolerance, key)


@pytest.mark.parametrize("train", [True, False])
def test_batch_norm_over_steps(train, backend, rng):
    """The running statistics follow torch's over several steps, and evaluation uses them."""
    module, layer = tnn.BatchNorm1d(3).train(train), nn.BatchNorm(3)
    params, state = layer.init(0)
    for step in range(4):
        host = rng.normal(step, 2.0, (5, 3)).astype("float32")
        y, state = layer.apply(params, state, us.asarray(host), train=train)
        agree(y, module(torch.tensor(host)), 1e-5, f"step {step}")
    agree(state["running_mean"], module.running_mean, 1e-5, "running_mean")
    agree(state["running_var"], module.running_var, 1e-5, "running_var")
    host = rng.standard_normal((2, 3)).astype("float32")
    agree(layer.apply(params, state, us.asarray(host))[0], module.eval()(torch.tensor(host)), 1e-5, "evaluation")


def test_initialisation_is_distributed_as_in_torch():
    """Bounds and standard deviations of the first values are torch's."""
    pairs = [
        (nn.Linear(300, 200), tnn.Linear(300, 200), ""),
        (nn.Conv2d(20, 30, 5, groups=2), tnn.Conv2d(20, 30, 5, groups=2), ""),
        (nn.Conv1d(20, 100, 5), tnn.Conv1d(20, 100, 5), ""),
        (nn.Embedding(200, 100), tnn.Embedding(200, 100), ""),
        (nn.MultiHeadAttention(96, 4), tnn.MultiheadAttention(96, 4), ""),
        (nn.LSTM(40, 50, 2), tnn.LSTM(40, 50, 2), ""),
        (nn.GRU(40, 50), tnn.GRU(40, 50), ""),
        (nn.BatchNorm(10), tnn.BatchNorm2d(10), ""),
        (nn.LayerNorm(10), tnn.LayerNorm(10), ""),
        (nn.GroupNorm(2, 10), tnn.GroupNorm(2, 10), ""),
        (nn.RMSNorm(10), tnn.RMSNorm(10), ""),
    ]
    torch.manual_seed(0)
    with us.backend("numpy"):
        for layer, module, _ in pairs:
            params, state = layer.init(0)
            ours = nn.to_torch_state_dict(layer, params, state)
            theirs = {k: v.numpy() for k, v in module.state_dict().items() if "num_batches" not in k}
            assert {k: v.shape for k, v in ours.items()} == {k: v.shape for k, v in theirs.items()}, layer
            for key, value in theirs.items():
                bound = np.abs(value).max()
                few = 4 / np.sqrt(value.size)  # of 1000 draws the estimates are within some per cent
                assert np.abs(ours[key]).max() == pytest.approx(bound, rel=0.3 if "Embedding" in repr(layer) else few)
                assert ours[key].std() == pytest.approx(value.std(), rel=few, abs=1e-7), (layer, key)
                assert ours[key].mean() == pytest.approx(value.mean(), abs=few * max(bound, 1e-7) + 1e-7), (layer, key)
