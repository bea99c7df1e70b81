"""One process of the fuzzer: plays cases and tells its parent, line by line; what kills it is the parent's to see.

python -m scripts.fuzz.worker KIND FIRST STEP COUNT SECONDS
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import warnings

import gymnasium as gym
import torch

from scripts.fuzz import kinds


def main() -> None:
    """Play the cases FIRST, FIRST + STEP and so on: COUNT of them, or as many as SECONDS allow."""
    kind = sys.argv[1]
    first, step, count = (int(text) for text in sys.argv[2:5])
    stop = time.monotonic() + float(sys.argv[5])
    line = os.dup(1)
    os.dup2(2, 1)  # what the package prints is no report
    warnings.simplefilter("ignore")
    gym.logger.min_level = gym.logger.ERROR  # ty: ignore[invalid-assignment]
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "3")))
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    for number in range(count):
        if time.monotonic() > stop:
            break
        seed = first + number * step
        os.write(line, f"{seed}\n".encode())
        result = kinds.play_and_forget(kind, seed)
        if result is not None:
            failure, alone = result
            told = {"seed": seed, "text": str(failure), "key": list(failure.key), "alone": alone}
            os.write(line, (json.dumps(told) + "\n").encode())
    os.write(line, b"end\n")
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
    os._exit(0)  # without destructors: libraries under a sanitizer do not all end well


if __name__ == "__main__":
    main()
