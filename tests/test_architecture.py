"""The house of unisync: who may import whom, where frameworks and the environment may be touched, and no shortcuts.

Every rule is a function from source text to violations, and has a test of its own that a violating snippet is caught.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "unisync"

FLOORS: dict[str, int] = {
    "_types": 0, "_config": 0, "errors": 0, "_dispatch": 0, "_dtypes": 0, "_context": 0, "_events": 0,
    "_key": 0, "_labels": 0, "_per_replica": 0, "tree": 0,
    "backends": 1,
    "functional": 2,
    "nn": 3, "optim": 3, "losses": 3, "profiler": 3,
    "distributed": 4,
    "sync": 5, "memory": 5, "data": 5, "checkpoint": 5,
    "parallel": 6,
    "cli": 7, "__init__": 7, "__main__": 7,
}  # fmt: skip
"""The floor of each file or folder directly under unisync/."""

ALLOWED: dict[tuple[str, str], str] = {
    (
        "_dispatch",
        "backends",
    ): "load() imports the backends inside the function: the one place where floor 0 reaches up",
    ("memory", "sync"): "recompute plans use the planners",
}
"""Imports that the floors forbid and that are meant, with the reason."""

FRAMEWORKS = frozenset({"torch", "jax", "jaxlib", "tensorflow", "keras", "autograd", "ml_dtypes"})
BACKENDS = frozenset({"numpy", "torch", "jax", "tensorflow"})
ENVIRONMENT_READERS = frozenset({"unisync._config", "unisync.distributed.environment"})


def module_name(path: Path) -> str:
    """The dotted name of a file under unisync/."""
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def sources() -> dict[str, tuple[ast.Module, bool]]:
    """Module → its syntax tree, and whether it is a package, for all of unisync."""
    paths = sorted(ROOT.rglob("*.py"))
    return {module_name(p): (ast.parse(p.read_text(encoding="utf-8")), p.name == "__init__.py") for p in paths}


def unit(module: str) -> str:
    """The row of FLOORS that a module of unisync falls under."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imports(
    tree: ast.AST, module: str, is_package: bool, known: frozenset[str], lazy: bool = True
) -> list[tuple[str, int]]:
    """(module, line) of everything imported; `from a import b` is a.b if that is a module, else a."""
    found: list[tuple[str, int]] = []
    for node in ast.walk(tree) if lazy else _outside_functions(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.split(".") if is_package else module.split(".")[:-1]
                prefix = package[: len(package) - node.level + 1]
                base = ".".join([*prefix, *([node.module] if node.module else [])])
            for alias in node.names:
                name = f"{base}.{alias.name}"
                found.append((name if name in known else base, node.lineno))
    return found


def _outside_functions(node: ast.AST):
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield child
            yield from _outside_functions(child)


def floor_violations(tree: ast.AST, module: str, is_package: bool, known: frozenset[str]) -> list[str]:
    """Imports from a higher floor, or from another folder of the same floor."""
    here, bad = unit(module), []
    for target, line in imports(tree, module, is_package, known):
        if target.split(".")[0] != "unisync":
            continue
        there = unit(target)
        if there == here or (here, there) in ALLOWED:
            continue
        same_ground = FLOORS[here] == FLOORS[there] and FLOORS[here] in (0, 7)  # single files and thin faces
        if not same_ground and FLOORS[there] >= FLOORS[here]:
            bad.append(
                f"{module}:{line} imports {target}: floor {FLOORS[there]} is not below {FLOORS[here]}, "
                "and it is not its own folder"
            )
    return bad


def framework_violations(tree: ast.AST, module: str) -> list[str]:
    """Framework imports above floor 1, of autograd outside the numpy backend, or of another's in a backend."""
    bad = []
    for target, line in imports(tree, module, False, frozenset()):
        root = target.split(".")[0]
        if root not in FRAMEWORKS:
            continue
        folder = module.split(".")[2] if unit(module) == "backends" and module.count(".") >= 2 else None
        mine = {"jax": "jax", "jaxlib": "jax", "torch": "torch", "autograd": "numpy", "tensorflow": "tensorflow"}
        mine |= {"keras": "tensorflow"}
        if folder is None or mine.get(root, folder) != folder:
            bad.append(f"{module}:{line} imports {target}")
    return bad


def environment_violations(tree: ast.AST, module: str) -> list[str]:
    """Uses of os.environ and its kin outside the two files that may."""
    if module in ENVIRONMENT_READERS:
        return []
    names = {"environ", "environb", "getenv", "putenv", "unsetenv"}
    bad = []
    for node in ast.walk(tree):
        attribute = isinstance(node, ast.Attribute) and node.attr in names
        imported = (
            isinstance(node, ast.ImportFrom)
            and node.module == "os"
            and any(alias.name in names for alias in node.names)
        )
        if attribute or imported:
            bad.append(f"{module}:{node.lineno} touches the environment")
    return bad


def shortcut_violations(tree: ast.AST, module: str) -> list[str]:
    """`import *` and `__all__`."""
    bad = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            bad.append(f"{module}:{node.lineno} import *")
        if isinstance(node, ast.Name) and node.id == "__all__":
            bad.append(f"{module}:{node.lineno} __all__")
    return bad


def backend_comparison_violations(tree: ast.AST, module: str) -> list[str]:
    """Comparisons with a backend's name, above floor 1: each is a missing primitive."""
    if FLOORS[unit(module)] <= 1:
        return []

    def named(node: ast.AST | None) -> bool:
        return node is not None and any(isinstance(n, ast.Constant) and n.value in BACKENDS for n in ast.walk(node))

    bad = []
    for node in ast.walk(tree):
        compared = isinstance(node, ast.Compare) and any(named(n) for n in (node.left, *node.comparators))
        matched = isinstance(node, (ast.MatchValue, ast.MatchOr)) and named(node)
        tested = (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("startswith", "endswith", "__eq__")
            and any(named(a) for a in node.args)
        )
        if compared or matched or tested:
            bad.append(f"{module}:{node.lineno} compares with a backend's name: that is a missing primitive")
    return bad


def find_cycle(graph: dict[str, set[str]]) -> list[str]:
    """Some import cycle, as the modules along it; empty if there is none."""
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return []
        for target in sorted(graph.get(node, ())):
            cycle = visit(target, [*path, node])
            if cycle:
                return cycle
        done.add(node)
        return []

    return next((cycle for node in sorted(graph) if (cycle := visit(node, []))), [])


# The rules, on all of unisync


def test_every_file_stands_on_a_floor():
    unplaced = sorted({unit(m) for m in sources()} - set(FLOORS))
    assert not unplaced, f"give these a row in FLOORS: {unplaced}"


def test_a_file_imports_only_from_lower_floors_and_its_own_folder():
    known = frozenset(sources())
    assert not [v for m, (t, p) in sources().items() for v in floor_violations(t, m, p, known)]


def test_a_backend_imports_no_other_backend():
    known = frozenset(sources())
    bad = []
    for module, (tree, package) in sources().items():
        parts = module.split(".")
        if len(parts) < 3 or parts[1] != "backends":
            continue
        for target, line in imports(tree, module, package, known):
            other = target.split(".")
            foreign = len(other) > 2 and other[2] != parts[2] and not other[2].startswith("_")  # _engine.py is for all
            if other[:2] == ["unisync", "backends"] and foreign:
                bad.append(f"{module}:{line} imports {target}")
    assert not bad


def test_there_are_no_import_cycles():
    known = frozenset(sources())
    graph = {
        m: {t for t, _ in imports(tree, m, package, known, lazy=False) if t in known and t != m}
        for m, (tree, package) in sources().items()
    }
    assert not find_cycle(graph)


@pytest.mark.parametrize(
    "rule", [framework_violations, environment_violations, shortcut_violations, backend_comparison_violations]
)
def test_rule_holds_everywhere(rule):
    assert not [v for m, (t, _) in sources().items() for v in rule(t, m)]


def test_exceptions_are_used():
    known = frozenset(sources())
    used = {(unit(m), unit(t)) for m, (tree, p) in sources().items() for t, _ in imports(tree, m, p, known)}
    present = {unit(m) for m in sources()}
    assert not [pair for pair in ALLOWED if pair not in used and set(pair) <= present]


def test_dispatch_imports_backends_only_inside_a_function():
    tree, package = sources()["unisync._dispatch"]
    at_import = imports(tree, "unisync._dispatch", package, frozenset(sources()), lazy=False)
    assert not [t for t, _ in at_import if unit(t) == "backends" and t.startswith("unisync")]


# The rules catch what they are for

KNOWN = frozenset({"unisync", "unisync.tree", "unisync.nn.layer", "unisync.parallel.trainer", "unisync.optim.adam"})


@pytest.mark.parametrize(
    ("module", "package", "text"),
    [
        ("unisync.nn.layer", False, "from unisync.parallel import trainer"),
        ("unisync.nn.layer", False, "import unisync.parallel.trainer"),
        ("unisync.nn.layer", False, "from ..parallel.trainer import train"),
        ("unisync.nn.layer", False, "def f():\n    from unisync.parallel import trainer"),
        ("unisync.nn.layer", False, "import unisync"),
        ("unisync.nn.layer", False, "from unisync import nowhere"),
        ("unisync.nn.layer", False, "from unisync.optim import adam"),
        ("unisync.nn", True, "from ..optim.adam import adam"),
        ("unisync.backends.torch.nn", False, "from unisync.functional.random import Key"),
        ("unisync.tree", False, "from unisync.functional import nn"),
    ],
)
def test_floor_rule_catches(module, package, text):
    assert floor_violations(ast.parse(text), module, package, KNOWN)


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("unisync.nn.layer", "from unisync import tree"),
        ("unisync.nn.layer", "from . import other"),
        ("unisync.nn.layer", "from ..functional.nn import relu"),
        ("unisync.cli.main", "import unisync as us"),
        ("unisync._dispatch", "from unisync.errors import UnisyncError"),
        ("unisync.nn.layer", "import numpy, optree"),
    ],
)
def test_floor_rule_lets_pass(module, text):
    assert not floor_violations(ast.parse(text), module, False, KNOWN)


@pytest.mark.parametrize(
    ("rule", "module", "text"),
    [
        (framework_violations, "unisync.nn.layer", "import torch"),
        (framework_violations, "unisync.nn.layer", "def f():\n    from jax import numpy as jnp"),
        (framework_violations, "unisync.functional.nn", "import autograd.numpy as anp"),
        (framework_violations, "unisync.backends", "import torch"),
        (framework_violations, "unisync.backends.jax.nn", "import torch"),
        (framework_violations, "unisync.backends.torch.nn", "import autograd"),
        (framework_violations, "unisync._dispatch", "import ml_dtypes"),
        (environment_violations, "unisync.nn.layer", "import os\nos.environ['A']"),
        (environment_violations, "unisync.nn.layer", "from os import environ"),
        (environment_violations, "unisync.backends.jax.nn", "import os\nos.getenv('A')"),
        (shortcut_violations, "unisync.nn", "from .layer import *"),
        (shortcut_violations, "unisync.nn", "__all__ = ['a']"),
        (backend_comparison_violations, "unisync.nn.layer", "if m.NAME == 'torch': pass"),
        (backend_comparison_violations, "unisync.nn.layer", "x = 'jax' != name"),
        (backend_comparison_violations, "unisync.nn.layer", "x = name in ('jax', 'torch')"),
        (backend_comparison_violations, "unisync.nn.layer", "match name:\n    case 'numpy': pass"),
        (backend_comparison_violations, "unisync.nn.layer", "x = name.startswith('tensorflow')"),
    ],
)
def test_rule_catches(rule, module, text):
    assert rule(ast.parse(text), module)


def test_rules_let_the_right_places_pass():
    assert not framework_violations(ast.parse("import torch"), "unisync.backends.torch.nn")
    assert not framework_violations(ast.parse("import autograd"), "unisync.backends.numpy")
    assert not environment_violations(ast.parse("import os\nos.environ"), "unisync._config")
    assert not backend_comparison_violations(ast.parse("x = 'torch' == y"), "unisync.backends.torch.nn")
    assert not backend_comparison_violations(ast.parse("f('torch'); x = y == 'adam'"), "unisync.nn.layer")


def test_cycles_are_found():
    assert find_cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) == ["a", "b", "c", "a"]
    assert find_cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
