"""A Triton kernel that writes outside every allocation. Triton reads its source, so it has a file of its own."""

import triton  # type: ignore[import-not-found,unused-ignore] # there with torch for CUDA only
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def write_at(start, offset):  # type: ignore[no-untyped-def] # Triton's types are its own
    """Write one word so many words after the start."""
    tl.store(start + offset.to(tl.int64), 1.0)
