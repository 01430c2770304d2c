"""Chance that is the same everywhere: numbers drawn from words by a hash.

A generator's stream may change with numpy's version, and the order of draws with the code; a hash of what the number
is for changes with neither, nor with the process.
"""

from __future__ import annotations

from hashlib import blake2b
from statistics import NormalDist

_NORMAL = NormalDist()


def uniform(*words: object) -> float:
    """A number between 0 and 1, both left out, always the same for the same words."""
    text = "\x1f".join(str(word) for word in words)
    whole = int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=7).digest(), "big")
    return (whole + 0.5) / 2**56


def between(low: float, high: float, *words: object) -> float:
    """A number from `low` to `high`."""
    return low + (high - low) * uniform(*words)


def normal(*words: object) -> float:
    """A standard normal number."""
    return _NORMAL.inv_cdf(uniform(*words))
