"""Every primitive of the specification is there on every backend, under its name, with its signature, and nothing else.

The specification is read from the source: a primitive is a public function of `functional/<file>.py` that calls the
function of its own name on a backend.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
from pathlib import Path
from types import FunctionType

import pytest

import unisync as us
from unisync import _dispatch
from unisync.backends import FILES, _imported

FUNCTIONAL = Path(us.__file__).parent / "functional"

EXTRAS: dict[str, str] = {
    "describe": "the framework's version and devices, for `unisync doctor`",
    "shares_memory": "whether a write to one list of arrays may change another: the trainer asks before it writes",
    "lengths": "a shape for draws: TensorFlow may not know all of x.shape while it traces",
    "scalar": "a Python number as a 0-d array beside another: dispatch needs it for a number on the left",
}
"""Public functions of a backend that are not in the specification."""

GAPS: dict[tuple[str, str], str] = {}
"""(backend, primitive) → why the backend does not have it. An entry that starts to exist fails the test."""

INTERNAL = frozenset({"backend_of", "flatten_key", "unflatten_key"})
"""Functions that are public between the files of unisync but not for users."""


def functions(file: str) -> dict[str, FunctionType]:
    """The public functions written in functional/<file>.py."""
    module = importlib.import_module(f"unisync.functional.{file}")
    return {
        name: value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    }


def primitives_of(text: str) -> list[str]:
    """The names of the public top-level functions that call `<backend>.<own name>(...)`."""
    tree = ast.parse(text)
    imported = {
        alias.asname or alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }

    def calls_its_name(function: ast.FunctionDef) -> bool:
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == function.name:
                receiver = node.func.value
                if not (isinstance(receiver, ast.Name) and receiver.id in imported):
                    return True
        return False

    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and calls_its_name(node)
    ]


@functools.cache
def specification() -> dict[str, str]:
    """Primitive → the file that it stands in."""
    return {
        name: file for file in FILES for name in primitives_of((FUNCTIONAL / f"{file}.py").read_text(encoding="utf-8"))
    }


PRIMITIVES = sorted(specification())


def signature_mismatch(spec: FunctionType, function: object) -> str:
    """What is wrong with a backend's function beside the specification's; empty if nothing is.

    `like` is settled by dispatch. Where the specification takes positional-only arrays alone, a function of the
    framework itself may stand in, as no caller can see the difference.
    """
    wanted = [p for p in inspect.signature(spec).parameters.values() if p.name != "like"]
    arrays_only = all(p.kind is p.POSITIONAL_ONLY and p.default is p.empty for p in wanted)
    own = isinstance(function, FunctionType) and function.__module__.startswith("unisync.")
    if arrays_only and not own:
        try:
            inspect.signature(function).bind(*wanted)  # type: ignore[arg-type]
        except ValueError:
            return ""  # a builtin that does not tell
        except TypeError as error:
            return f"does not take {len(wanted)} arrays: {error}"
        return ""
    try:
        found = list(inspect.signature(function).parameters.values())  # type: ignore[arg-type]
    except ValueError:
        return "does not tell its signature, and the specification has more than positional-only arrays"
    described = [[(p.name, p.kind.description, p.default) for p in ps] for ps in (wanted, found)]
    return "" if described[0] == described[1] else f"has {described[1]}, the specification {described[0]}"


def spec_function(name: str) -> FunctionType:
    return functions(specification()[name])[name]


# The specification


def test_the_specification_is_found():
    assert len(PRIMITIVES) > 150
    assert {"exp", "add", "clip", "zeros", "conv2d", "value_and_grad", "scan", "jit", "multi_norm", "uniform"} < set(
        PRIMITIVES
    )
    assert not {"grad", "dropout", "finfo", "result_type", "convert", "backend_of", "is_array"} & set(PRIMITIVES)


def test_files_mirror_functional():
    own = {p.stem for p in FUNCTIONAL.glob("*.py") if not p.stem.startswith("_")}
    assert set(FILES) == own - {"collectives"}  # which engines carry, not array functions


def public_functions() -> list[tuple[str, FunctionType]]:
    found = [(name, f) for file in FILES for name, f in functions(file).items() if name not in INTERNAL]
    return found + [(n, getattr(us, n)) for n in ("set_backend", "current_backend", "backend", "namespace", "is_array")]


@pytest.mark.parametrize(("name", "function"), [pytest.param(n, f, id=n) for n, f in public_functions()])
def test_documented_and_exported(name, function):
    text = inspect.getdoc(function) or ""
    assert "Example:" in text, f"{name} needs an example"
    assert ">>>" in text
    assert any(getattr(place, name, None) is function for place in (us, us.nn, us.random)), f"{name} is not exported"


# The backends


def test_backend_describes_itself(backend):
    m = us.namespace()
    assert backend == m.NAME
    assert isinstance(m.ARRAY_TYPES, tuple)
    assert all(isinstance(cls, type) for cls in m.ARRAY_TYPES)
    assert all(_dispatch.of[cls] is m for cls in m.ARRAY_TYPES)
    assert isinstance(us.zeros(1), m.ARRAY_TYPES)
    assert m.describe()


@pytest.mark.parametrize("name", PRIMITIVES)
def test_primitive(backend, name):
    m = us.namespace()
    if (backend, name) in GAPS:
        assert not hasattr(m, name), f"{backend} has {name} now: take it out of GAPS"
        return
    assert hasattr(m, name), f"{backend} lacks {name}"
    file = importlib.import_module(f"unisync.backends.{backend}.{specification()[name]}")
    assert getattr(m, name) is vars(file).get(name), f"{name} must stand in {specification()[name]}.py"
    assert not (problem := signature_mismatch(spec_function(name), getattr(m, name))), f"{backend}.{name} {problem}"


def test_nothing_else_is_public(backend):
    m = us.namespace()
    public = {n for n, v in vars(m).items() if not n.startswith("_") and callable(v) and not _imported(v, m.__name__)}
    assert public - set(PRIMITIVES) - set(EXTRAS) == set()


def test_scalar_hook(backend):
    assert list(inspect.signature(us.namespace().scalar).parameters) == ["value", "like"]


def test_gaps_are_of_the_specification():
    assert all(name in _dispatch.BACKENDS and op in PRIMITIVES and reason for (name, op), reason in GAPS.items())


# The checks catch what they are for


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def f(x):\n    return of[type(x)].f(x)", ["f"]),
        ("def f(x):\n    m = of[x]\n    return m.f(x)", ["f"]),
        ("def f(x):\n    def g(y):\n        return backend_of(y).f(x)\n    return g", ["f"]),
        ("def f(x):\n    return of[type(x)].g(x)", []),
        ("from unisync import _dtypes\ndef f(x):\n    return _dtypes.f(x)", []),
        ("def _f(x):\n    return of[type(x)]._f(x)", []),
    ],
)
def test_primitives_are_recognised(text, found):
    assert primitives_of(text) == found


def _own(source: str) -> FunctionType:
    scope: dict = {"__name__": "unisync.backends.fake.file"}
    exec(source, scope)
    return scope["f"]


@pytest.mark.parametrize(
    ("spec", "function", "matches"),
    [
        ("def f(x, /): ...", "def f(x, /): ...", True),
        ("def f(x, /): ...", "def f(x): ...", False),
        ("def f(x, /): ...", "def f(y, /): ...", False),
        ("def f(x, /, *, axis=None): ...", "def f(x, /, *, axis=0): ...", False),
        ("def f(x, /, *, axis=None): ...", "def f(x, /, axis=None): ...", False),
        ("def f(n, *, dtype=None, like=None): ...", "def f(n, *, dtype=None): ...", True),
        ("def f(n, *, dtype=None, like=None): ...", "def f(n, *, dtype=None, like=None): ...", False),
    ],
)
def test_signatures_are_compared(spec, function, matches):
    assert (not signature_mismatch(_own(spec), _own(function))) is matches


def test_a_foreign_function_may_stand_in_for_arrays_alone():
    one, two = _own("def f(x, /): ..."), _own("def f(x, y, /): ...")
    keyword = _own("def f(x, /, *, axis=None): ...")
    assert not signature_mismatch(one, len)
    assert signature_mismatch(two, len)
    assert signature_mismatch(keyword, len)
