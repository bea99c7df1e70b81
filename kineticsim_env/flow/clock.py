"""The clock of an order flow, fitted to gaps between events: hidden states with a mean gap each.

By expectation and maximisation (Rabiner 1989), over many short runs of gaps at once.
"""

from __future__ import annotations

import numpy as np

from kineticsim_env.runtime.flow_table import AFTER, STATES

_RUN = 400  # gaps
_COARSE = 1000  # nanoseconds: times of data that are multiples of it do not tell events apart
_ROUNDS = 25
_PSEUDO = 3  # transitions that each kind of event has beside its own, as those of all kinds are


def fit_clock(gaps: np.ndarray, after: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean gap of each state, float64 `[STATES]` in nanoseconds, and transitions, `[AFTER, STATES, STATES]`.

    Times of data are multiples of some step, so a gap is taken for an exponential one that is cut to whole steps.

    Args:
        gaps: int64 `[n]`, nanoseconds; one at least is above 0.
        after: int64 `[n]`, what the event before each did, an index of `AFTER`.
    """
    step = int(np.gcd.reduce(gaps)) or 1
    if step < _COARSE:  # what has the same time is one event
        gaps, after = gaps[gaps > 0], after[gaps > 0]
    run = min(_RUN, len(gaps))
    whole = len(gaps) // run * run
    counts, kinds = (x[:whole].reshape(-1, run) for x in (gaps // step, after))
    mean = _first_guess(counts)
    follow = np.full((len(AFTER), STATES, STATES), 0.1 / (STATES - 1))
    follow[:, range(STATES), range(STATES)] = 0.9
    begins = np.full(STATES, 1 / STATES)
    for _ in range(_ROUNDS):
        # Of g steps with the chance q of going on: (1 - q) q^g, whose mean is q / (1 - q).
        on = mean / (1 + mean)
        seen = (1 - on) * on ** counts[..., None] + 1e-300
        forward, backward = np.empty((*counts.shape, STATES)), np.ones((*counts.shape, STATES))
        scale = np.empty(counts.shape)
        for t in range(run):
            came = begins if t == 0 else _times(forward[:, t - 1], follow[kinds[:, t]])
            forward[:, t] = came * seen[:, t]
            scale[:, t] = forward[:, t].sum(1)
            forward[:, t] /= scale[:, t, None]
        moved = np.zeros_like(follow)
        for t in range(run - 1, 0, -1):
            later = seen[:, t] * backward[:, t] / scale[:, t, None]
            for kind in range(len(AFTER)):
                mine = kinds[:, t] == kind
                moved[kind] += np.einsum("ci,cj->ij", forward[mine, t - 1], later[mine])
            backward[:, t - 1] = np.einsum("cij,cj->ci", follow[kinds[:, t]], later)
        moved *= follow
        state = forward * backward
        state /= state.sum(2, keepdims=True)
        mean = np.maximum((state * counts[..., None]).sum((0, 1)) / state.sum((0, 1)), 1e-6)
        begins = state[:, 0].mean(0)
        pooled = moved.sum(0) + 1e-9
        moved += _PSEUDO * pooled / pooled.sum(1, keepdims=True)
        follow = moved / moved.sum(2, keepdims=True)
    order = np.argsort(mean)
    continuous = step / np.log1p(1 / mean[order])  # whose whole steps have that mean
    return continuous, follow[:, order][:, :, order]


def _times(rows: np.ndarray, matrices: np.ndarray) -> np.ndarray:
    return np.einsum("ci,cij->cj", rows, matrices)


def _first_guess(counts: np.ndarray) -> np.ndarray:
    """Return means that are apart, by quantiles of the gaps that are not 0."""
    some = counts[counts > 0]
    if not len(some):
        return np.geomspace(0.1, 1, STATES)
    return np.maximum(np.quantile(some, np.linspace(0.1, 0.97, STATES)), 0.5) * np.geomspace(0.5, 1, STATES)
