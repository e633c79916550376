"""The multi-tensor functions against a loop, with dtypes mixed and scalars as arrays."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import unisync as us  # noqa: E402

SHAPES = ((3, 4), (5,), (), (0,))


def arrays(seed: int, dtypes: tuple[str, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.rand(shape, generator=generator) + 0.5).to(getattr(torch, dtypes[i % len(dtypes)]))
        for i, shape in enumerate(SHAPES)
    ]


DTYPES = {
    "one": (("float32",), ("float32",)),
    "float64": (("float64",), ("float64",)),
    "low and full": (("bfloat16",), ("float32",)),
    "full and low": (("float32",), ("bfloat16",)),
    "mixed places": (("float32", "bfloat16"), ("float32", "float32")),
}
SCALARS = {"number": 0.25, "array": torch.tensor(0.25)}

ROWS = {
    "multi_add": (lambda x, y, z, s: us.multi_add(x, y, alpha=s), lambda x, y, z, s: x + s * y),
    "multi_addcdiv": (lambda x, y, z, s: us.multi_addcdiv(x, y, z, value=s), lambda x, y, z, s: x + s * y / z),
    "multi_addcmul": (lambda x, y, z, s: us.multi_addcmul(x, y, z, value=s), lambda x, y, z, s: x + s * y * z),
    "multi_divide": (lambda x, y, z, s: us.multi_divide(x, y), lambda x, y, z, s: x / y),
    "multi_lerp": (lambda x, y, z, s: us.multi_lerp(x, y, weight=s), lambda x, y, z, s: x + s * (y - x)),
    "multi_multiply": (lambda x, y, z, s: us.multi_multiply(x, y), lambda x, y, z, s: x * y),
    "multi_scale": (lambda x, y, z, s: us.multi_scale(x, s), lambda x, y, z, s: x * s),
    "multi_shift": (lambda x, y, z, s: us.multi_shift(x, s), lambda x, y, z, s: x + s),
    "multi_sqrt": (lambda x, y, z, s: us.multi_sqrt(x), lambda x, y, z, s: torch.sqrt(x)),
    "multi_sign": (lambda x, y, z, s: us.multi_sign(x), lambda x, y, z, s: torch.sign(x)),
    "multi_norm": (lambda x, y, z, s: us.multi_norm(x), lambda x, y, z, s: torch.linalg.vector_norm(x)),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("dtypes", DTYPES)
@pytest.mark.parametrize("scalar", SCALARS)
def test_against_a_loop(name, dtypes, scalar):
    of_lists, of_one = ROWS[name]
    first, second = DTYPES[dtypes]
    xs, ys, zs, s = arrays(0, first), arrays(1, second), arrays(2, second), SCALARS[scalar]
    before = [x.clone() for x in xs]
    got = of_lists(xs, ys, zs, s)
    assert isinstance(got, list)
    for g, x, y, z in zip(got, xs, ys, zs, strict=True):
        assert g.dtype is x.dtype
        wanted = of_one(x.double(), y.double(), z.double(), float(s)).to(x.dtype)
        tolerance = 2e-2 if torch.bfloat16 in (x.dtype, y.dtype) else 1e-6
        torch.testing.assert_close(g, wanted, rtol=tolerance, atol=tolerance)
    assert all(torch.equal(a, b) for a, b in zip(before, xs, strict=True))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_all_finite(bad, dtype):
    xs = [x.to(getattr(torch, dtype)) for x in arrays(0, ("float32",))] + [torch.tensor([1])]
    assert us.multi_all_finite(xs).item() is True
    assert us.multi_all_finite([torch.full((3,), torch.finfo(xs[0].dtype).max, dtype=xs[0].dtype)]).item() is True
    xs[1][2] = bad
    assert us.multi_all_finite(xs).item() is False


def test_where():
    xs, ys = arrays(0, ("float32",)), arrays(1, ("float32",))
    for condition, wanted in ((True, xs), (torch.tensor(False), ys), (torch.tensor(True), xs)):
        assert all(torch.equal(a, b) for a, b in zip(us.multi_where(condition, xs, ys), wanted, strict=True))


def test_empty_lists():
    with us.backend("torch"):
        assert us.multi_add([], [], alpha=2.0) == us.multi_norm([]) == us.multi_scale([], 2.0) == []
        assert us.multi_all_finite([]).item() is True


def test_gradient_flows_through():
    xs = [torch.tensor(2.0), torch.tensor(3.0)]
    g = us.grad(lambda xs: us.sum(us.stack(us.multi_addcmul(xs, xs, xs, value=2.0))))(xs)
    assert [x.item() for x in g] == [9, 13]
