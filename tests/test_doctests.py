"""The examples in the docstrings, run on the numpy backend: `us` and `np` are what a reader would have imported."""

from __future__ import annotations

import doctest
import importlib
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


@pytest.mark.parametrize("name", modules())
def test_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report: list[str] = []
    module = importlib.import_module(name)
    for example in doctest.DocTestFinder(exclude_empty=True).find(module, name):
        example.globs = {"us": us, "np": np}
        with us.backend("numpy"):
            doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example, out=report.append)
    assert not report, "".join(report)


def test_the_functions_are_among_them():
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = finder.find(importlib.import_module("unisync.functional.elementwise"), "elementwise")
    assert len([example for example in found if example.examples]) > 50


def test_a_wrong_example_is_caught():
    wrong = doctest.DocTestParser().get_doctest(">>> us.pi\n3.0\n", {"us": us}, "wrong", None, 0)
    report: list[str] = []
    doctest.DocTestRunner().run(wrong, out=report.append)
    assert report
