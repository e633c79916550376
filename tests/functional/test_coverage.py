"""No primitive without a test: each stands by name in one of the functional tests."""

from __future__ import annotations

import ast
from pathlib import Path

from test_conformance import PRIMITIVES

ELSEWHERE = {"uniform": "test_random_key.py", "normal": "test_random_key.py", "bernoulli": "test_random_key.py"}
"""Primitives that another file than those of this folder tests."""


def names_in(text: str) -> set[str]:
    """The strings and attributes of a source text."""
    nodes = list(ast.walk(ast.parse(text)))
    strings = {
        word for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str) for word in n.value.split()
    }
    return strings | {n.attr for n in nodes if isinstance(n, ast.Attribute)}


def test_every_primitive_is_tested():
    named: set[str] = set()
    for path in Path(__file__).parent.glob("*.py"):
        if path != Path(__file__):
            named |= names_in(path.read_text(encoding="utf-8"))
    assert sorted(set(PRIMITIVES) - named - set(ELSEWHERE)) == []
