"""Random numbers from a hash of their purpose, identical on every machine and in every process.

The stream of a generator may change with numpy's version, and the order of draws with the code; a hash does not.
"""

from __future__ import annotations

from hashlib import blake2b
from statistics import NormalDist

_NORMAL = NormalDist()


def uniform(*words: object) -> float:
    """Return a number strictly between 0 and 1, determined by the words."""
    text = "\x1f".join(str(word) for word in words)
    whole = int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=7).digest(), "big")
    return (whole + 0.5) / 2**56


def between(low: float, high: float, *words: object) -> float:
    """Return a uniform number from `low` to `high`."""
    return low + (high - low) * uniform(*words)


def normal(*words: object) -> float:
    """Return a standard normal number."""
    return _NORMAL.inv_cdf(uniform(*words))
