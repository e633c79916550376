"""The examples in the docstrings, run on the numpy backend: `us` and `np` are what a reader would have imported."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import numpy as np
import pytest

import unisync as us


def _modules() -> list[str]:
    """All modules that import no framework: all but the backends, and not `python -m unisync`."""
    names = [info.name for info in pkgutil.walk_packages(us.__path__, "unisync.", onerror=None) if _wanted(info.name)]
    return ["unisync", *names]


def _wanted(name: str) -> bool:
    return not name.startswith("unisync.backends.") and not name.endswith("__main__")


def _examples() -> list[doctest.DocTest]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = {}
    for name in _modules():
        for test in finder.find(importlib.import_module(name), name):
            if test.examples:
                found[test.name] = test
    return [found[name] for name in sorted(found)]


@pytest.mark.parametrize("example", [pytest.param(e, id=e.name.removeprefix("unisync.")) for e in _examples()])
def test_example(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example.globs = {"us": us, "np": np}
    report: list[str] = []
    with us.backend("numpy"), np.printoptions():
        doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example, out=report.append)
    assert not report, "".join(report)


def test_a_wrong_example_is_caught():
    wrong = doctest.DocTestParser().get_doctest(">>> us.pi\n3.0\n", {"us": us}, "wrong", None, 0)
    report: list[str] = []
    doctest.DocTestRunner().run(wrong, out=report.append)
    assert report
