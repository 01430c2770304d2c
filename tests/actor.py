"""A job of the launcher contract's tests, which prints as Megatron does: `actor.py BEHAVIOUR LAST RESULT`."""

import json
import sys
import time
from pathlib import Path

SECONDS = 0.2


def main(behaviour: str, last: int, result: Path) -> int:
    """Behave as requested, and return the exit code."""
    if behaviour == "crash":
        raise RuntimeError("planted")
    if behaviour == "oom":
        raise RuntimeError("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
    if behaviour == "hang":
        time.sleep(3600)
    done = []
    for number in range(1, last + 1):
        time.sleep(SECONDS)
        print(f" iteration {number:8d}/{last:8d} | elapsed time per iteration (ms): {1e3 * SECONDS:.1f} |", flush=True)
        done.append({"number": number, "seconds": SECONDS, "loss": 1.0})
    result.with_name(".result").write_text(json.dumps({"iterations": done}))
    result.with_name(".result").rename(result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))
