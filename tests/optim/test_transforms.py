"""Transforms: laws of chains, freezing, groups, compiled use, dtypes, and bad arguments."""

from __future__ import annotations

import json
from collections import namedtuple

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import unisync as us
from unisync.errors import ArgumentError, ArgumentTypeError, MixedBackendsError, StateError, UnknownNameError
from unisync.optim.base import Choice, step
from unisync.parallel.step import keep

o = us.optim
RECIPES = ["sgd", "adam", "adamw", "rmsprop", "adagrad", "lion", "lamb"]


def tree(dtype="float32", value=1.0):
    def leaf(*shape):
        return us.astype(us.full(shape, value, dtype="float32") + us.arange(shape[-1], dtype="float32") / 8, dtype)

    return {"0": {"weight": leaf(2, 3), "bias": leaf(3)}, "1": {"weight": leaf(2)}}


def arrays(t):
    return [us.to_numpy(leaf) if us.is_array(leaf) else leaf for leaf in us.tree.leaves(t)]


def assert_equal(a, b, rtol=0.0):
    assert us.tree.structure(a) == us.tree.structure(b)
    for x, y in zip(arrays(a), arrays(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol)


def run(optimizer, steps=3, params=None, grads=None, method="update"):
    params = tree() if params is None else params
    grads = tree(value=-0.5) if grads is None else grads
    state = optimizer.init(params)
    for _ in range(steps):
        if method == "step":
            params, state = optimizer.step(grads, state, params)
        else:
            updates, state = optimizer.update(grads, state, params)
            params = o.apply_updates(params, updates)
    return params, state


PARTS = [
    o.identity(), o.scale(0.5), o.trace(0.9), o.scale_by_adam(), o.scale_by_rms(), o.scale_by_adagrad(),
    o.scale_by_lion(), o.add_decayed_weights(0.1), o.clip_by_global_norm(0.5), o.clip_by_value(0.2),
    o.scale_by_trust_ratio(),
    o.scale_by_learning_rate(o.cosine(0.1, 10)),
]  # fmt: skip
some_parts = st.lists(st.sampled_from(PARTS), max_size=4)


@settings(max_examples=25, deadline=None)
@given(some_parts, some_parts, some_parts)
def test_chains_are_associative_and_identity_is_neutral(a, b, c):
    with us.backend("numpy"):
        flat, _ = run(o.chain(*a, *b, *c))
        left, _ = run(o.chain(o.chain(o.chain(*a), *b), *c))
        right, _ = run(o.chain(*a, o.chain(*b, o.chain(*c))))
        padded, _ = run(o.chain(o.identity(), *a, o.identity(), *b, *c, o.identity()))
    for other in (left, right, padded):
        assert_equal(flat, other)


@settings(max_examples=25, deadline=None)
@given(some_parts)
def test_step_is_update_and_apply(parts):
    with us.backend("numpy"):
        (a, state_a), (b, state_b) = run(o.chain(*parts)), run(o.chain(*parts), method="step")
    assert_equal(a, b, rtol=1e-6)
    assert_equal(state_a, state_b, rtol=1e-6)


@settings(max_examples=25, deadline=None)
@given(some_parts)
def test_one_group_is_the_whole(parts):
    with us.backend("numpy"):
        whole, _ = run(o.chain(*parts))
        group, _ = run(o.partition({"**": o.chain(*parts)}))
    assert_equal(whole, group, rtol=1e-6)


def test_a_users_own_transform(backend):
    def init(params):
        return {"seen": 0}

    def update(grads, state, params=None):
        return us.tree.map(lambda g: g * 2.0, grads), {"seen": state["seen"] + 1}

    own = o.Transform(init, update)
    params, state = run(o.chain(own, o.freeze("1"), o.sgd(0.1, momentum=0.9)))
    expected, _ = run(o.chain(o.scale(2.0), o.freeze("1"), o.sgd(0.1, momentum=0.9)))
    assert_equal(params, expected)
    assert state[0] == {"seen": 3}
    stepped, _ = run(own, method="step")
    assert_equal(stepped, run(own)[0])


@pytest.mark.parametrize("container", [list, tuple, namedtuple("Pair", "first second")._make])
def test_any_tree_of_params(backend, container):
    params, _ = run(o.adam(0.1), params=container([us.ones(2), us.ones(3)]), grads=container([us.ones(2), us.ones(3)]))
    assert type(params) is type(container([1, 2]))
    np.testing.assert_allclose(us.to_numpy(params[1]), [0.7] * 3, rtol=1e-5)


def test_one_array_and_no_array(backend):
    array, _ = run(o.sgd(0.25), params=us.ones(2), grads=us.ones(2))
    np.testing.assert_allclose(us.to_numpy(array), [0.25, 0.25])
    for optimizer in (o.adam(), o.chain(o.clip_by_global_norm(1.0), o.sgd(0.1, 0.9)), o.lamb()):
        assert run(optimizer, params={}, grads={})[0] == {}


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("wrap", [lambda t: t, lambda t: o.chain(o.freeze("1"), t), lambda t: o.partition({"0": t}, t)])
def test_donated_params_and_state_give_the_same(backend, name, wrap):
    optimizer, results = wrap(o.by_name(name, 0.1)), []
    for donate in (False, True):
        params, grads = tree(), tree(value=-0.5)
        state = optimizer.init(params)
        for _ in range(3):
            params, state = optimizer.step(grads, state, params, donate=donate)
        results.append((params, state, grads))
    assert_equal(*results, rtol=1e-6)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("wrap", [lambda t: t, lambda t: o.chain(o.freeze("1"), t), lambda t: o.partition({"0": t}, t)])
def test_a_step_that_may_not_count(backend, name, wrap):
    """Chosen array by array within the step it is what is chosen between whole trees after it."""
    optimizer, params, grads = wrap(o.by_name(name, 0.1)), tree(), tree(value=-0.5)
    params, state = optimizer.step(grads, optimizer.init(params), params)
    for ok, wanted in ((True, optimizer.step(grads, state, params)), (False, (params, state))):
        choice = Choice(us.asarray(ok))
        new = step(optimizer, grads, state, params, choice=choice)
        kept = keep(us.namespace(), choice.ok, new, (params, state), choice.made)
        leaves = [(x, y) for x, y in zip(us.tree.leaves(kept), us.tree.leaves(wanted), strict=True) if us.is_array(y)]
        assert_equal([x for x, _ in leaves], [y for _, y in leaves])


@pytest.mark.parametrize("backend", ["numpy", "torch"], indirect=True)
def test_donated_arrays_are_updated_in_place_unless_somebody_may_keep_them(backend):
    keeper = o.Transform(lambda params: {"last": params}, lambda grads, state, params=None: (grads, {"last": params}))
    for optimizer, in_place in ((o.adam(0.1), True), (o.chain(o.adam(0.1), keeper), False), (keeper, False)):
        params = tree()
        before = us.tree.leaves(params)
        values = arrays(params)
        after, _ = optimizer.step(tree(value=-0.5), optimizer.init(params), params, donate=True)
        assert us.namespace().shares_memory(us.tree.leaves(after), before) == in_place
        kept = [np.array_equal(us.to_numpy(x), value) for x, value in zip(before, values, strict=True)]
        assert in_place or all(kept)


@pytest.mark.parametrize("name", RECIPES)
def test_nothing_is_changed_in_place(backend, name):
    optimizer = o.by_name(name, 0.1)
    params, grads = tree(), tree(value=-0.5)
    state = optimizer.init(params)
    before = [x.copy() if hasattr(x, "copy") else x for x in arrays((params, grads, state))]
    optimizer.update(grads, state, params)
    optimizer.step(grads, state, params)
    for x, y in zip(arrays((params, grads, state)), before, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("schedule", [False, True])
def test_compiled_equals_eager(backend, name, schedule):
    optimizer = o.chain(
        o.clip_by_global_norm(1.0), o.by_name(name, o.warmup_cosine(0.1, 2, 5) if schedule else 0.1), o.freeze("1")
    )
    compiled = us.jit(lambda g, s, p: optimizer.step(g, s, p))
    eager_params, params, grads = tree(), tree(), tree(value=-0.5)
    eager_state, state = optimizer.init(params), optimizer.init(params)
    for _ in range(4):
        eager_params, eager_state = optimizer.step(grads, eager_state, eager_params)
        params, state = compiled(grads, state, params)
    assert_equal(eager_params, params, rtol=1e-5)
    assert_equal(eager_state, state, rtol=1e-5)


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_the_count_is_traced_once(backend, name):
    if backend in ("numpy", "torch"):
        pytest.skip("runs the function as it is")
    traces = []
    optimizer = o.by_name(name, o.cosine(0.1, 10))

    def update(grads, state, params):
        traces.append(1)
        return optimizer.update(grads, state, params)

    compiled = us.jit(update)
    params, state = tree(), optimizer.init(tree())
    for _ in range(5):
        _, state = compiled(tree(), state, params)
    assert len(traces) == 1


@pytest.mark.parametrize(
    ("name", "dtype", "compiled"),
    [(name, "bfloat16", True) for name in RECIPES]
    + [("adamw", dtype, True) for dtype in ("float16", "float32", "float64")]
    + [(name, "bfloat16", False) for name in ("adamw", "lamb")],
)
def test_dtypes_are_kept(backend, name, dtype, compiled):
    optimizer = o.chain(o.clip_by_global_norm(1.0), o.by_name(name, o.cosine(0.1, 10)))
    params = tree(dtype)
    state = optimizer.init(params)
    update = us.jit(lambda g, s, p: optimizer.update(g, s, p)) if compiled else optimizer.update
    for _ in range(2):
        updates, state = update(params, state, params)
        params = o.apply_updates(params, updates)
    for leaf in us.tree.leaves((updates, params)):
        assert us.dtype_of(leaf) == dtype
    assert {us.dtype_of(leaf) for leaf in us.tree.leaves(state) if us.is_array(leaf) and len(leaf.shape)} <= {dtype}


def test_mixed_dtypes_keep_their_own(backend):
    params = {"a": us.ones(2, dtype="float16"), "b": us.ones(2, dtype="float64")}
    optimizer = o.chain(o.clip_by_global_norm(1.0), o.adamw(0.1))
    params, _ = run(optimizer, params=params, grads=params)
    assert [us.dtype_of(params[k]) for k in "ab"] == ["float16", "float64"]


def test_gradients_of_another_dtype(backend):
    params, grads = tree("bfloat16"), tree("float32")
    optimizer = o.adamw(0.1)
    state = optimizer.init(params)
    stepped, _ = optimizer.step(grads, state, params)
    updates, state = optimizer.update(grads, state, params)
    applied = o.apply_updates(params, us.tree.map(lambda u: us.astype(u, "float32"), updates))
    for leaf in us.tree.leaves((stepped, updates, applied, state[0]["second_moment"])):
        assert us.dtype_of(leaf) == "bfloat16"


def test_backends_agree_on_float64(backend):
    def losses():
        params = {"weight": us.asarray(np.linspace(-1, 1, 6))}
        optimizer = o.adam(o.cosine(0.1, 50))
        state = optimizer.init(params)
        update = us.jit(lambda g, s, p: optimizer.step(g, s, p))
        for _ in range(50):
            grads = us.tree.map(lambda p: p * p * p - p + 0.1, params)
            params, state = update(grads, state, params)
        return us.to_numpy(params["weight"])

    with us.backend("numpy"):
        expected = losses()
    np.testing.assert_allclose(losses(), expected, rtol=1e-9)


def test_frozen_params_are_hidden_from_the_whole_chain(backend):
    grads = tree(value=-0.5)
    for order in (lambda f, *rest: (f, *rest), lambda f, *rest: (*rest, f)):
        optimizer = o.chain(*order(o.freeze("0"), o.clip_by_global_norm(0.1), o.adamw(0.1, weight_decay=0.5)))
        params = tree()
        state = optimizer.init(params)
        updates, state = optimizer.update(grads, state, params)
        assert np.all(us.to_numpy(updates["0"]["weight"]) == 0)
        assert np.all(us.to_numpy(updates["1"]["weight"]) != 0)
        assert {p.partition("moment/")[2] for p in us.tree.paths(state) if "moment" in p} == {"1/weight"}
        stepped, _ = optimizer.step(grads, state, params)
        assert stepped["0"]["weight"] is params["0"]["weight"]


def test_freeze_inside_a_group(backend):
    optimizer = o.partition({"0": o.chain(o.freeze("**/bias"), o.sgd(1.0))}, default=o.sgd(0.5))
    updates, _ = optimizer.update(tree(), optimizer.init(tree()), tree())
    assert np.all(us.to_numpy(updates["0"]["bias"]) == 0)
    np.testing.assert_allclose(us.to_numpy(updates["0"]["weight"]), -us.to_numpy(tree()["0"]["weight"]))
    np.testing.assert_allclose(us.to_numpy(updates["1"]["weight"]), -0.5 * us.to_numpy(tree()["1"]["weight"]))


def test_the_first_matching_group_wins(backend):
    optimizer = o.partition({"0/bias": o.sgd(1.0), "0": o.sgd(0.5), "**": o.sgd(0.25)})
    ones = us.tree.map(us.ones_like, tree())
    updates, _ = optimizer.update(ones, optimizer.init(ones), ones)
    assert [float(us.to_numpy(u).flat[0]) for u in us.tree.leaves(updates)] == [-1.0, -0.5, -0.25]


def test_state_is_paths_and_numbers(backend):
    optimizer = o.chain(o.freeze("0/bias"), o.partition({"0": o.adam(o.cosine(0.1, 5))}, default=o.sgd(0.1, 0.9)))
    _, state = run(optimizer)
    for path, leaf in zip(us.tree.paths(state), us.tree.leaves(state), strict=True):
        assert us.is_array(leaf) or isinstance(leaf, int), path
    numbers = {
        p: leaf for p, leaf in zip(us.tree.paths(state), us.tree.leaves(state), strict=True) if type(leaf) is int
    }
    assert json.loads(json.dumps(numbers)) == {"1/0/1/count": 3, "1/0/2/count": 3}


def test_counts_that_were_saved_as_arrays(backend):
    optimizer = o.adam(o.exponential(0.1, 0.5))
    eager, _ = run(optimizer, steps=3)
    params, state = run(optimizer, steps=2)
    state = us.tree.map(lambda leaf: us.asarray(leaf) if isinstance(leaf, int) else leaf, state)
    params, _ = optimizer.step(tree(value=-0.5), state, params)
    assert_equal(params, eager, rtol=1e-5)


BAD = [
    (lambda: o.sgd(-0.1), "learning_rate"),
    (lambda: o.sgd(float("inf")), "learning_rate"),
    (lambda: o.adam(-1e-3), "learning_rate"),
    (lambda: o.adagrad(-1e-3, lr_decay=0.1), "learning_rate"),
    (lambda: o.sgd(0.1, momentum=1.0), "momentum"),
    (lambda: o.sgd(0.1, momentum=-0.1), "momentum"),
    (lambda: o.rmsprop(momentum=-0.1), "momentum"),
    (lambda: o.sgd(0.1, nesterov=True), "nesterov"),
    (lambda: o.sgd(0.1, momentum=0.9, nesterov=True, dampening=0.1), "nesterov"),
    (lambda: o.sgd(0.1, momentum=0.9, dampening=1.5), "dampening"),
    (lambda: o.sgd(0.1, weight_decay=-1), "weight_decay"),
    (lambda: o.adam(betas=(1.0, 0.9)), "beta1"),
    (lambda: o.adamw(betas=(0.9, -0.1)), "beta2"),
    (lambda: o.adam(eps=-1e-8), "eps"),
    (lambda: o.rmsprop(alpha=1.0), "alpha"),
    (lambda: o.adagrad(initial_accumulator=-1.0), "initial_accumulator"),
    (lambda: o.adagrad(lr_decay=-1.0), "lr_decay"),
    (lambda: o.clip_by_global_norm(0), "max_norm"),
    (lambda: o.clip_by_value(-1), "limit"),
]


@pytest.mark.parametrize(("make", "name"), BAD)
def test_bad_hyperparameters(make, name):
    with pytest.raises(ArgumentError, match=f"`{name}` must .* got .* Try: "):
        make()


def test_bad_types():
    with pytest.raises(ArgumentTypeError, match=r"`learning_rate` must .* got str\. Try: learning_rate=0.1"):
        o.sgd("0.1x")
    with pytest.raises(ArgumentTypeError, match=r"`transforms` must .* got float"):
        o.chain(0.1)
    with pytest.raises(ArgumentTypeError, match="`patterns` must be path patterns"):
        o.freeze([0])


def test_patterns_that_match_nothing(backend):
    for optimizer in (
        o.freeze("2/*"),
        o.chain(o.freeze("2/*"), o.sgd(0.1)),
        o.partition({"2/*": o.sgd(0.1)}, default=o.sgd(0.2)),
    ):
        with pytest.raises(
            ArgumentError, match=r"got '2/\*', which matches none of: 0/bias, 0/weight, 1/weight\. Try: "
        ):
            optimizer.init(tree())
    masked = o.sgd(0.1, weight_decay=0.1, mask="wieght")
    with pytest.raises(ArgumentError, match="got 'wieght', which matches none of"):
        masked.update(tree(), masked.init(tree()), tree())


def test_groups_that_leave_out_params(backend):
    with pytest.raises(ArgumentError, match="got none for 1/weight"):
        o.partition({"0": o.sgd(0.1)}).init(tree())
    with pytest.raises(ArgumentError, match="got '0/bias' after patterns that match all of its params"):
        o.partition({"0": o.sgd(0.1), "0/bias": o.sgd(0.2)}, default=o.sgd(0.3)).init(tree())


def test_trees_that_do_not_fit(backend):
    optimizer = o.sgd(0.1, momentum=0.9)
    params = tree()
    state = optimizer.init(params)
    short = {"0": params["0"]}
    with pytest.raises(ArgumentError, match=r"`params` must have the structure .* differs at 1/weight"):
        optimizer.update(params, state, short)
    with pytest.raises(ArgumentError, match=r"`updates` must have the structure .* differs at 1/weight"):
        o.apply_updates(params, short)
    with pytest.raises(StateError, match="`state` must be of the same params"):
        optimizer.update(short, state, short)
    with pytest.raises(StateError, match="one state for each of 3 transforms, got 1"):
        optimizer.update(params, state[:1], params)
    masked = o.sgd(0.1, weight_decay=0.1, mask={"0": True})
    with pytest.raises(ArgumentError, match="`mask` must have the structure"):
        masked.update(params, masked.init(params), params)
    with pytest.raises(ArgumentError, match="`params` must be given: weight decay"):
        o.adamw().update(params, o.adamw().init(params))


def test_arrays_of_two_backends(backend):
    if backend == "numpy":
        pytest.skip("needs two backends")
    with us.backend("numpy"):
        params = tree()
    with pytest.raises(MixedBackendsError):
        o.sgd(0.1).update(tree(), o.sgd(0.1).init(params), params)


def test_by_name():
    with pytest.raises(UnknownNameError, match=r"`optimizer` must be one of .*, got 'adma'\. Try: 'adam'"):
        o.by_name("adma")
    with pytest.raises(UnknownNameError, match=r"`option of sgd` must be one of .*, got 'momentun'\. Try: 'momentum'"):
        o.by_name("sgd", 0.1, momentun=0.9)


@pytest.mark.parametrize(
    "make",
    [
        lambda: us.optim.sgd("0.1"),
        lambda: us.optim.adam("1e-3"),
        lambda: us.optim.adamw(betas=("0.9", 0.999)),
        lambda: us.optim.adam(eps="1e-8"),
        lambda: us.optim.rmsprop(momentum="0.9"),
        lambda: us.optim.adagrad("0.1", lr_decay=0.1),
        lambda: us.optim.adamw(weight_decay="0.1"),
        lambda: us.optim.clip_by_global_norm("1.0"),
        lambda: us.optim.cosine("0.1", 10),
        lambda: us.optim.cosine(0.1, "10"),
    ],
)
def test_numbers_as_text_are_refused_at_construction(make):
    with pytest.raises(us.errors.ArgumentTypeError, match=r"must be a number.*got str"):
        make()
