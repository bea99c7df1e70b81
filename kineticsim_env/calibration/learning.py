"""Neural posterior estimation by sbi: from parameters and statistics of simulations to the posterior of any statistics.

Parameters are places within the unit cube, in the scale of each range: uniform a priori, whole numbers spread over a
room of their own. The network sees them as normal quantiles of these places: what is uniform is normal there, as is the
base of its flow, so that no probability lies outside the ranges, and none is missing at their ends. (Of their
logits, whose tails are heavier, 95% regions held 89% of the true parameters in examples/studies/calibration's market.)
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import warnings
from collections.abc import Generator
from typing import Any

import numpy as np
import torch
from sbi.neural_nets import posterior_nn
from torch.distributions import MultivariateNormal

from kineticsim_env.calibration.trainer import NoTracker, Trainer

_HIDDEN, _TRANSFORMS = 50, 3  # of the network
_STEPS = 4000  # of the optimiser, at most: so many passes over the simulations as have these
_PATIENCE = 10  # passes without a gain before it ends
_BATCHES = 100  # per pass, with between
_BATCH = (50, 8192)  # rows each
_RATE = 1e-3  # of the largest; others' is as the root of their rows (Malladi et al. 2022, of Adam)
_VALIDATION = 0.1
_EDGE = 1e-6  # of the unit cube, at which quantiles end
_AT_ONCE = 50  # posteriors that are drawn from together


@dataclasses.dataclass(frozen=True)
class Standard:
    """Statistics as the network sees them: asinh((value - median) / spread).

    The spread is half the distance of the quantiles 0.16 and 0.84. Where tails are heavy a mean and a deviation would
    be those of a few markets; asinh is linear within the spread, and logarithmic far beyond.
    """

    median: np.ndarray
    spread: np.ndarray

    @classmethod
    def of(cls, rows: np.ndarray) -> Standard:
        """Choose from rows `[N, n]`."""
        low, median, high = np.quantile(rows, (0.16, 0.5, 0.84), axis=0)
        deviation = rows.std(0)
        spread = np.where(high > low, (high - low) / 2, deviation)
        return cls(median, np.where(spread > 0, spread, 1.0))

    def __call__(self, rows: np.ndarray) -> torch.Tensor:
        """Return them, float32 `[N, n]`."""
        return torch.from_numpy(np.arcsinh((rows - self.median) / self.spread)).float()


@dataclasses.dataclass
class Learned:
    """A network that was trained."""

    posterior: Any  # sbi's `DirectPosterior`, of normal quantiles of places given standardised statistics
    standard: Standard
    device: torch.device
    epochs: int  # passes over the simulations
    converged: bool  # training ended because nothing was gained any more

    def sample(self, rows: np.ndarray, draws: int, seed: int) -> np.ndarray:
        """Return draws from the posterior of each row of statistics, float64 `[draws, N, d]`."""
        with _quietly(self.device, seed):
            given, sampled = self.standard(rows).to(self.device), self.posterior.sample_batched
            parts = [sampled((draws,), part, draws, show_progress_bars=False) for part in given.split(_AT_ONCE)]
            return torch.special.ndtr(torch.cat(parts, 1).double()).cpu().numpy()

    def densities(self, places: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the logarithm of the posterior's density at places `[k, N, d]` given each row, float64 `[k, N]`.

        It is the density of places within the unit cube: that of their quantiles over the normal one, up to a constant.
        """
        found = []
        with _quietly(self.device, 0):
            given = self.standard(rows).to(self.device)
            for begin in range(0, len(rows), _AT_ONCE):
                part = slice(begin, begin + _AT_ONCE)
                asked = _quantiles(places[:, part]).to(self.device)
                density = self.posterior.log_prob_batched(asked, given[part], norm_posterior=False)
                found.append((density + 0.5 * asked.square().sum(-1)).double().cpu())
        return torch.cat(found, 1).numpy()


def _quantiles(unit: np.ndarray) -> torch.Tensor:
    """Return normal quantiles of places, float32."""
    return torch.special.ndtri(torch.from_numpy(unit).clamp(_EDGE, 1 - _EDGE)).float()


def learn(unit: np.ndarray, rows: np.ndarray, device: torch.device, seed: int, bar: Any = None) -> Learned:
    """Train on places within the unit cube, float64 `[N, d]`, and statistics, float64 `[N, n]`, finite.

    The seed is that of the first weights, of the order of rows, and of which of them validate; `bar` goes on with each
    pass.
    """
    standard = Standard.of(rows)
    given: dict[str, Any] = {"z_score_theta": "none", "z_score_x": "none"}
    network = posterior_nn("zuko_nsf", hidden_features=_HIDDEN, num_transforms=_TRANSFORMS, **given)
    size = int(np.clip(len(rows) // _BATCHES, *_BATCH))
    epochs = -(-_STEPS // max(1, int((1 - _VALIDATION) * len(rows)) // size))
    with _quietly(device, seed):
        one = torch.eye(unit.shape[1], device=device)
        silent: dict[str, Any] = {"tracker": NoTracker(), "show_progress_bars": False, "logging_level": "ERROR"}
        trainer = Trainer(MultivariateNormal(0 * one[0], one), network, device=str(device), **silent)
        trainer.passes, trainer.rate = epochs, _RATE * (size / _BATCH[1]) ** 0.5
        if bar is not None:
            bar.reset(total=epochs)
            trainer.passed = bar.update
        trainer.append_simulations(_quantiles(unit), standard(rows))
        trainer.train(
            training_batch_size=size,
            validation_fraction=_VALIDATION,
            stop_after_epochs=_PATIENCE,
            max_num_epochs=epochs - 1,  # sbi makes one pass more
        )
        posterior = trainer.build_posterior()
    done = trainer.summary["epochs_trained"][-1]
    return Learned(posterior, standard, device, done, done < epochs)


@contextlib.contextmanager
def _quietly(device: torch.device, seed: int) -> Generator[None]:
    """Seed torch for a while; what sbi prints and warns of is not for our users, who did not choose its settings.

    On the CPU one thread is as fast for networks so small, and many times faster where others use the cores, too.
    Gradients are on, whatever the caller has, and afterwards as before: a Ctrl-C that comes just as sbi turns them off
    would leave them off.
    """
    devices = [device] if device.type == "cuda" else []
    threads = torch.get_num_threads()
    with contextlib.ExitStack() as stack:
        if device.type == "cuda":
            stack.enter_context(torch.cuda.device(device))  # CUDA graphs are recorded on the current device's stream
        else:
            stack.callback(torch.set_num_threads, threads)
            torch.set_num_threads(1)
        unheard = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
        with_gradients = torch.inference_mode(False), torch.enable_grad()
        for one in (*with_gradients, torch.random.fork_rng(devices), warnings.catch_warnings(), *unheard):
            stack.enter_context(one)
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        yield
