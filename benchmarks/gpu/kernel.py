"""A Triton kernel that writes outside every allocation; in its own file because Triton reads the source."""

import triton  # type: ignore[import-not-found,unused-ignore] # there with torch for CUDA only
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def write_at(start, offset):  # type: ignore[no-untyped-def] # Triton's types are its own
    """Write one word at an offset, in words, from the start."""
    tl.store(start + offset.to(tl.int64), 1.0)
