"""`import unisync` works without any framework and imports none; a missing one names the extra that installs it."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from unisync import _dispatch

HEAVY = ("torch", "jax", "jaxlib", "tensorflow", "keras", "autograd", "rich", "typer", "sklearn", "scipy")

BLOCKER = f"""
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HEAVY!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}} (blocked)", name=name)
        return None

sys.meta_path.insert(0, Blocker())
"""


def run(code: str, *, block: bool = True) -> dict:
    """The JSON that `code` prints last, run in a fresh interpreter, with the heavy packages blocked."""
    root = Path(__file__).parent.parent
    text = (BLOCKER if block else "import sys\n") + textwrap.dedent(code)
    command = [sys.executable, "-W", "error", "-c", text]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=100)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_block_blocks():
    got = run("""
        import json
        try:
            import torch
        except ModuleNotFoundError as error:
            print(json.dumps({"name": error.name}))
        """)
    assert got == {"name": "torch"}


@pytest.mark.parametrize("block", [True, False], ids=["blocked", "installed"])
def test_import_brings_in_no_framework(block):
    got = run(
        f"""
        import json
        import unisync as us
        model_side = [us.nn, us.tree, us.random.Key(0).fold_in(1), us.float32, us.pi, us.iinfo(us.int8)]
        heavy = {HEAVY!r}
        print(json.dumps({{"found": sorted(name for name in heavy if name in sys.modules)}}))
        """,
        block=block,
    )
    assert got == {"found": []}


def test_a_missing_framework_names_the_extra():
    got = run(f"""
        import json
        import unisync as us
        said = {{}}
        for name in {_dispatch.BACKENDS!r}:
            try:
                us.set_backend(name)
            except us.errors.MissingDependencyError as error:
                said[name] = str(error)
            try:
                with us.backend(name):
                    pass
            except ImportError as error:
                said[name] += " / " + str(error)
        said["current"] = us._dispatch._chosen is None
        print(json.dumps(said))
        """)
    for name in ("torch", "jax", "tensorflow"):
        assert f"'.[{name}]'" in got[name]
        assert name in got[name]
        assert got[name].count("pip install") == 2
    assert "autograd" in got["numpy"]
    assert got["current"] is True


def test_another_backend_stays_out():
    got = run(
        """
        import json
        import unisync as us
        us.set_backend("numpy")
        us.grad(lambda x: us.sum(us.exp(x)))(us.asarray([1.0]))
        print(json.dumps([name for name in ("torch", "jax", "tensorflow", "keras") if name in sys.modules]))
        """,
        block=False,
    )
    assert got == []
