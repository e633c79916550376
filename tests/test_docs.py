"""The Python blocks of README.md and docs/, run page by page as a reader would: each page in one namespace."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import unisync as us
from unisync.backends import installed

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"^print\((.*)\)  # (.+)$", re.MULTILINE)


INTERNAL = {"same_shape", "checked", "defaults", "batch_means", "weighted_mean"}
"""Functions of the modules `losses`, `metrics` and `callbacks` that other parts of unisync use."""


def pages() -> list[Path]:
    """The pages that have Python blocks."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if BLOCK.search(page.read_text())]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_blocks_run_and_print_what_they_say(page, tmp_path, monkeypatch, capsys):
    blocks = BLOCK.findall(page.read_text())
    for framework in ("torch", "jax", "tensorflow"):
        if any(re.search(rf"import {framework}|\"{framework}\"[)]", block) for block in blocks) and not installed(
            framework
        ):
            pytest.skip(f"needs {framework}")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    before = us.current_backend()
    try:
        for block in blocks:
            exec(compile(block, str(page), "exec"), names)
            printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
            for _, shown in SHOWN.findall(block):
                assert shown in printed, f"{page.name} says {shown!r} of\n{block}"
    finally:
        us.set_backend(before)


def test_there_are_blocks():
    assert {"README.md", "index.md", "training.md", "layers.md", "backends.md"} <= {page.name for page in pages()}


@pytest.mark.parametrize("module", ["nn", "losses", "optim", "metrics", "callbacks", "data"])
def test_the_catalogue_names_everything(module):
    text = (ROOT / "docs" / "catalogue.md").read_text()
    part = getattr(us, module)
    inside = "unisync." if module not in ("losses", "metrics", "callbacks") else part.__name__
    names = [
        name
        for name, value in vars(part).items()
        if not name.startswith("_")
        and callable(value)
        and getattr(value, "__module__", "").startswith(inside)
        and (module != "nn" or name[0].isupper())
        and name not in INTERNAL
    ]
    assert names
    assert [name for name in names if f"`{name}`" not in text] == []


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_the_commands_of_the_readme_exist():
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for command in re.findall(r"make (\w+)", (ROOT / "README.md").read_text()):
        assert command in targets
