"""The key that randomness starts from: a value and a tree node, on floor 0 so that the backends may know it."""

from __future__ import annotations

import operator
from typing import Any, final

import numpy as np
import optree

from unisync import _dispatch, tree
from unisync.errors import ArgumentTypeError, TraceError

_MASK = (1 << 64) - 1
_FOLD = 0x8CB92BA72F3D8DD7  # keeps what is folded in apart from seeds: data and salt meet in an xor
_SPLIT = 0xB5297A4D3F84D5B5  # what `split` folds in: no number that a step, a layer or a replica has


@final
class Key:
    """The source of random numbers: 64 bits, as two uint32 words that a compiled function may take as input.

    Args:
        seed: any integer; those that differ by a multiple of 2⁶⁴ are the same.

    Raises:
        ArgumentTypeError: the seed is not an integer.

    Example:
        >>> key = us.random.Key(0)
        >>> key == us.random.Key(0), key == key.fold_in(1)
        (True, False)
    """

    __slots__ = ("data", "salt")

    def __init__(self, seed: int) -> None:
        try:
            number = operator.index(seed)
        except TypeError:
            raise ArgumentTypeError(f"`seed` must be an integer, got {seed!r}. Try: us.random.Key(0).") from None
        self.data: Any = _words(_mix(number & _MASK))
        self.salt = 0

    def fold_in(self, *numbers: int) -> Key:
        """A new key from this one and integers, e.g. a step or a layer's index; order matters.

        Raises:
            ArgumentTypeError: a number is not a Python or NumPy integer.
        """
        salt = self.salt
        for n in numbers:
            if not isinstance(n, (int, np.integer)):
                raise ArgumentTypeError(
                    f"`numbers` must be Python integers, got {type(n).__name__}. "
                    "Try: fold in outside the compiled function and pass the key to it."
                )
            salt = _mix((_mix(salt ^ _FOLD) + int(n)) & _MASK)
        return _key(self.data, salt)

    def split(self, n: int = 2) -> tuple[Key, ...]:
        """n independent new keys, none of which `fold_in` of a small integer gives."""
        parent = self.fold_in(_SPLIT)
        return tuple(parent.fold_in(i) for i in range(n))

    def commit(self) -> Key:
        """A new key in this one's place, with all its bits in `data`: pass it to a compiled function in a loop.

        What was folded in is otherwise a constant of the compiled function, and a new one compiles anew. The new key
        draws other numbers than this one: were the bits kept, the order of folding would no longer matter.
        """
        return _key(_words(_mix(self._host_bits() ^ 0xC0FFEE)), 0)

    def generator(self) -> np.random.Generator:
        """A NumPy generator (Philox) on the host: the same numbers whatever the backend.

        Raises:
            TraceError: the key's bits are being traced by a compiled function.
        """
        return np.random.Generator(np.random.Philox(key=self._host_bits()))

    def words(self) -> Any:
        """The key's bits as uint32 words of shape (2,), on the host or traced: what native draws start from."""
        salt = _words(self.salt)
        return (
            self.data ^ salt
            if isinstance(self.data, np.ndarray)
            else _dispatch.of[type(self.data)].bitwise_xor(self.data, _dispatch.of[type(self.data)].asarray(salt))
        )

    def _host_bits(self) -> int:
        try:
            words = np.asarray(self.data)
        except Exception as error:
            raise TraceError(
                "host draws need a key whose bits are known, got one that is being traced by a compiled function. "
                "Try: us.random.uniform(key, shape), or draw outside the compiled function."
            ) from error
        return (int(words[0]) << 32 | int(words[1])) ^ self.salt

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self._host_bits() == other._host_bits()

    def __hash__(self) -> int:
        return hash(self._host_bits())

    def __repr__(self) -> str:
        return f"Key({self.data!r}, salt={self.salt})"


def _key(data: Any, salt: int) -> Key:
    key = object.__new__(Key)
    key.data, key.salt = data, salt
    return key


def _mix(z: int) -> int:
    """One step of SplitMix64 (Steele, Lea, Flood 2014): every input bit reaches every output bit."""
    z = (z + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & _MASK
    return z ^ z >> 31


def _words(bits: int) -> np.ndarray:
    return np.array([bits >> 32, bits & 0xFFFFFFFF], dtype=np.uint32)


def flatten_key(key: Key) -> tuple[tuple[Any], int]:
    """A key's arrays and its constant, as pytree registries want them."""
    return (key.data,), key.salt


def unflatten_key(salt: int, children: Any) -> Key:
    """The inverse of `flatten_key`."""
    return _key(children[0], salt)


optree.register_pytree_node(Key, flatten_key, unflatten_key, namespace=tree.NAMESPACE)  # type: ignore[arg-type]
