"""`python -m scripts.sanitizer`: a small run of every kernel variant, for compute-sanitizer to watch on a CUDA GPU.

Any number of order bins, windows of one chunk and of many, books that overflow, kernels of their own, all options,
slots at one tick, window shifts, environment steps of every role across episode ends and resets, in sizes
that leave part of the last block without a market (`auctions.py`).
On the clock: call auctions by warps and continuous trading by a lane or more per market, with beats in
intervals, levers and regimes, environments, and markets whose quantities leave 16 bits on the way (`on_the_clock.py`).
Order flows that are fitted to data, whose orders a warp chooses together (`flows.py`).
Policies in the kernels: networks inside rollouts, programs that play slots, and order records (`policies.py`).

`make sanitize` runs it. Most of the time goes to compiling some 180 kernels: let several processes share the cases,
after a run without sanitizer that has filled their cache.
"""

import argparse
import time
from functools import partial
from itertools import chain

import torch

from scripts.sanitizer import auctions, flows, on_the_clock, policies

PARTS = {"auctions": auctions, "clock": on_the_clock, "flows": flows, "policies": policies}


def main() -> None:
    """Play all cases, or the share of them that one of several processes has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", default="0/1", help="I/N: every Nth case, from number I on (default: all of them)")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS, help="of the cases (default: all)")
    options = parser.parse_args()
    first, step = (int(word) for word in options.share.split("/"))
    waiting = list(chain(*(PARTS[name].cases() for name in options.parts)))[first::step]
    began = time.perf_counter()
    for number, case in enumerate(waiting, 1):
        case()
        torch.cuda.synchronize()
        print(f"{number} of {len(waiting)}, {time.perf_counter() - began:.0f} s: {shown(case)}", flush=True)
    print("the workload is done")


def shown(case: partial[None]) -> str:
    """Return the call of a case."""
    given = [*map(repr, case.args), *(f"{name}={value!r}" for name, value in case.keywords.items())]
    words = (word if len(word) < 80 else f"{word[:60]}..." for word in given)
    return f"{getattr(case.func, '__name__', '')}({', '.join(words)})"


if __name__ == "__main__":
    main()
