"""The backends under test. A module of its own, since every folder's conftest goes by the name `conftest`."""

from __future__ import annotations

import os

from unisync import _dispatch
from unisync.backends import installed

_asked = os.environ.get("UNISYNC_TEST_BACKENDS")
BACKENDS = _asked.split(",") if _asked else [name for name in _dispatch.BACKENDS if installed(name)]
