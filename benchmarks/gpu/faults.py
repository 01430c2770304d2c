"""A trainer that fails on the GPU in a given way: `python -m benchmarks.gpu.faults oom|hang|illegal`.

It prints its first iteration as Megatron does, and fails in the second. Without a GPU, it runs out of host memory, or
the process itself makes an illegal memory access.
"""

from __future__ import annotations

import ctypes
import sys
import time

OUT_OF_REACH = 1 << 50
"""A size in bytes that no machine has, and an offset that no allocation covers."""


def main(how: str) -> None:
    """Train one iteration, then fail."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    began = time.perf_counter()
    matrix = torch.randn(1024, 1024, device=device)
    float((matrix @ matrix).sum())
    milliseconds = (time.perf_counter() - began) * 1e3
    line = f"elapsed time per iteration (ms): {milliseconds:.1f} | global batch size: 8 | lm loss: 1.1E+01"
    print(f" iteration {1:8d}/  1000 | consumed samples: 8 | {line} |", flush=True)
    if how == "oom":
        torch.empty(OUT_OF_REACH, device=device, dtype=torch.uint8)
    elif how == "hang":
        time.sleep(3600)
    elif device == "cpu":
        ctypes.string_at(0)
    else:
        _write_out_of_bounds(matrix)


def _write_out_of_bounds(matrix: object) -> None:
    """Write to unmapped memory with a kernel, and synchronize so that the asynchronous error is raised."""
    import torch

    from benchmarks.gpu.kernel import write_at

    write_at[(1,)](matrix, OUT_OF_REACH // 64)
    torch.cuda.synchronize()


if __name__ == "__main__":
    main(sys.argv[1])
