"""A trainer that fails on the GPU in the way that is asked for: `python -m benchmarks.gpu.faults oom|hang|illegal`.

It prints its first iteration as Megatron does, and fails in the second. Without a GPU, the memory that runs out is the
host's, and the illegal access is the process's own.
"""

from __future__ import annotations

import ctypes
import sys
import time

OUT_OF_REACH = 1 << 50
"""Bytes that no machine has; also an offset that no allocation covers."""


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
    """Write with a kernel where no memory is mapped, and wait for the error, which comes with a later call."""
    import torch

    from benchmarks.gpu.kernel import write_at

    write_at[(1,)](matrix, OUT_OF_REACH // 64)
    torch.cuda.synchronize()


if __name__ == "__main__":
    main(sys.argv[1])
