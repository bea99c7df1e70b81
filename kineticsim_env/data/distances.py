"""How far two samples are from each other: L1 of their histograms, and Wasserstein-1, with bootstrap intervals."""

from __future__ import annotations

import numpy as np

_TAIL = 0.0005  # of both samples together, at each end: numbers beyond it are moved to it
_BLOCKS = 20  # that a sample is cut into
_MOST_BINS = 1 << 14
_AT_ONCE = 8  # samples drawn


def distances(
    real: np.ndarray, simulated: np.ndarray, discrete: bool, resamples: int, generator: np.random.Generator
) -> np.ndarray:
    """Return L1 and Wasserstein-1 of two samples, then of R drawn anew.

    L1 is half the sum of how much the shares of bins differ, 0 to 1. Bins are of one width, by Freedman and Diaconis
    (1981) of both samples together; where `discrete`, or where half of the numbers are equal, each number has its own.
    Wasserstein-1 is the area between the two distribution functions, in standard deviations of both samples together.

    Numbers are like their neighbours, so what is drawn anew are blocks of these, of both samples (Künsch 1989).

    Args:
        real: Numbers `[n]`, in the order of time.
        simulated: Likewise.
        discrete: Whether each number has a bin.
        resamples: R.
        generator: Of the draws.

    Returns:
        float64 `[2, 1 + R]`; NaN where both samples are empty, L1 1 and Wasserstein-1 NaN where one is.
    """
    found = np.full((2, 1 + resamples), np.nan)
    if not len(real) or not len(simulated):
        found[0] = np.nan if len(real) == len(simulated) else 1
        return found
    both = np.concatenate([real, simulated]).astype(np.float64)
    both = np.clip(both, *np.quantile(both, [_TAIL, 1 - _TAIL]))
    support, codes = np.unique(both, return_inverse=True)
    bins = np.arange(len(support)) if discrete else _first_of_bins(both, support)
    steps = np.diff(support) / both.std()
    samples = [_Blocks(part, len(support)) for part in np.split(codes, [len(real)])]
    weights = [np.vstack([np.ones(len(part)), part.drawn(resamples, generator)]) for part in samples]
    for begin in range(0, 1 + resamples, _AT_ONCE):
        now = slice(begin, begin + _AT_ONCE)
        one, other = (part.shares(weight[now]) for part, weight in zip(samples, weights, strict=True))
        differs = one - other
        found[0, now] = abs(np.add.reduceat(differs, bins, axis=1)).sum(1) / 2
        found[1, now] = abs(np.cumsum(differs, axis=1)[:, :-1]) @ steps
    return found


class _Blocks:
    """A sample in blocks of neighbours: how often each has each number of the support."""

    def __init__(self, codes: np.ndarray, support: int) -> None:
        blocks = min(_BLOCKS, len(codes))
        place = np.arange(len(codes)) * blocks // len(codes) * support + codes
        self.counts = np.bincount(place, minlength=blocks * support).reshape(blocks, support).astype(np.float64)

    def __len__(self) -> int:
        return len(self.counts)

    def drawn(self, resamples: int, generator: np.random.Generator) -> np.ndarray:
        """Return how often each block is drawn, `[R, blocks]`."""
        return generator.multinomial(len(self), np.full(len(self), 1 / len(self)), resamples)

    def shares(self, weights: np.ndarray) -> np.ndarray:
        """Return the share of each number where blocks count so often, `[R, support]`."""
        found = weights @ self.counts
        return found / found.sum(1, keepdims=True)


def _first_of_bins(both: np.ndarray, support: np.ndarray) -> np.ndarray:
    """Return which numbers of the support begin a bin, of bins that are not empty."""
    low, high = np.quantile(both, [0.25, 0.75])
    if low == high:
        return np.arange(len(support))
    span = support[-1] - support[0]
    count = min(np.ceil(span / (2 * (high - low) * len(both) ** (-1 / 3))), _MOST_BINS)
    edges = np.linspace(support[0], support[-1], int(count) + 1)
    return np.unique(np.searchsorted(support, edges[:-1]))
