"""The examples in the docstrings, run on the numpy backend: `us` and `np` are what a reader would have imported."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import numpy as np
import pytest

import unisync as us

ROOT = Path(us.__file__).parent


def modules() -> list[str]:
    """All modules of unisync but those that import a framework."""
    names = []
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        if parts[-1] != "__main__" and not (parts[1] == "backends" and len(parts) > 3):
            names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return names


class Close(doctest.OutputChecker):
    """Takes numbers that agree to five digits as equal: the last ones depend on the machine's vector units."""

    NUMBER = re.compile(r"-?\d+\.\d*(?:e[+-]?\d+)?")

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        if super().check_output(want, got, optionflags):
            return True
        texts = ["".join(self.NUMBER.sub("#", text).split()) for text in (want, got)]
        numbers = [[float(x) for x in self.NUMBER.findall(text)] for text in (want, got)]
        return texts[0] == texts[1] and numbers[0] == pytest.approx(numbers[1], rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("name", modules())
def test_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report: list[str] = []
    module = importlib.import_module(name)
    for example in doctest.DocTestFinder(exclude_empty=True).find(module, name):
        example.globs = {"us": us, "np": np}
        with us.backend("numpy"):
            doctest.DocTestRunner(Close(), optionflags=doctest.NORMALIZE_WHITESPACE).run(example, out=report.append)
    assert not report, "".join(report)


def test_the_functions_are_among_them():
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = finder.find(importlib.import_module("unisync.functional.elementwise"), "elementwise")
    assert len([example for example in found if example.examples]) > 50


@pytest.mark.parametrize(
    ("wanted", "got", "equal"),
    [
        ("array([0.26894143, 0.88])", "array([0.2689414, 0.88 ])", True),
        ("array([0.2689, 0.88])", "array([0.2699, 0.88])", False),
        ("array([0.5])", "array([0.5], dtype=float32)", False),
        ("(5.0, 2)", "(5.0, 3)", False),
        ("[1.0, 2.0]", "[1.0]", False),
    ],
)
def test_what_counts_as_equal(wanted, got, equal):
    assert Close().check_output(wanted + "\n", got + "\n", doctest.NORMALIZE_WHITESPACE) is equal
