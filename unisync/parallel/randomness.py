"""Finding out whether a model needs random numbers in training, so that a step makes no key that nobody reads."""

from __future__ import annotations

from typing import Any, NoReturn, final

from unisync import _dispatch
from unisync._key import Key


@final
class Tripwire:
    """The bits of a key that notice when they are read.

    Attributes:
        touched: whether they were.
    """

    def __init__(self) -> None:
        self.touched = False

    def key(self) -> Key:
        """A key with these bits: new keys can be made from it, but no numbers drawn."""
        key = Key(0)
        key.data = self
        return key

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._trip()

    def _trip(self, *args: Any) -> NoReturn:
        self.touched = True
        raise RuntimeError("the model draws random numbers")


class _Namespace:
    """Stands for the backend of a tripwire: whatever is computed with it trips it."""

    NAME = "none"

    def __getattr__(self, name: str) -> Any:
        return lambda x, *args, **kwargs: x._trip()


_dispatch.of[Tripwire] = _Namespace()
