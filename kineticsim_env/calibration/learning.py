"""Neural posterior estimation by sbi: from parameters and statistics of simulations to the posterior of any statistics.

Parameters are places within the unit cube, in the scale of each range: uniform a priori, whole numbers spread over a
room of their own. The network sees them as normal quantiles of these places: what is uniform is normal there, as is the
base of its flow, so that no probability lies outside the ranges, and none is missing at their ends. (Of their
logits, whose tails are heavier, 95% regions held 89% of the true parameters in docs/calibration.md's market.)
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
import warnings
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np
import torch
from sbi.diagnostics.sbc import check_uniformity_frequentist
from sbi.inference import NPE
from sbi.neural_nets import posterior_nn
from torch.distributions import MultivariateNormal

_HIDDEN, _TRANSFORMS = 50, 3  # of the network
_STEPS = 4000  # of the optimiser, at most: so many passes over the simulations as have these
_PATIENCE = 10  # passes without a gain before it ends
_BATCHES = 100  # per pass, with between
_BATCH = (50, 8192)  # rows each
_RATE = 1e-3  # of the first pass; it falls to 0 with the last, as half a cosine (Loshchilov and Hutter 2017, SGDR)
_VALIDATION = 0.1
_EDGE = 1e-6  # of the unit cube, at which quantiles end
_DRAWS = 500  # from each posterior of a check,
_AT_ONCE = 50  # of which so many are drawn together


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


class _Batches:
    """Batches of rows that lie on the device; torch's loader would fetch them row by row."""

    def __init__(self, data: Any, rows: torch.Tensor, size: int, begins: Callable[[], Any] | None) -> None:
        self.data, self.rows, self.begins = data, rows, begins
        self.batch_size = min(size, len(rows))

    def __len__(self) -> int:
        return len(self.rows) // self.batch_size

    def __iter__(self) -> Iterator[tuple[torch.Tensor, ...]]:
        rows = self.rows
        if self.begins is not None:  # a pass that trains
            rows = rows[torch.randperm(len(rows), device=rows.device)]
            self.begins()
        for rows_of_one in rows[: len(self) * self.batch_size].split(self.batch_size):
            yield tuple(part[rows_of_one] for part in self.data)


class _Losses(torch.nn.Module):
    """What training minimises, as a module: that is what a CUDA graph is made of."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, theta: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return minus the logarithm of the density, `[N]`."""
        return self.network.loss(theta, x)


class _Trainer(NPE):
    """sbi's trainer, with batches by index, a rate that falls, and on a GPU a CUDA graph.

    At a rate that stays, the last steps leave an error in the posterior that 4,000 held-out points show: ranks of
    docs/calibration.md's market were not uniform (p below 1e-4 of one parameter, with 30,000 simulations and with a
    million), and are with one that falls.
    """

    passes = 1
    passed: Callable[[], Any] = staticmethod(lambda: None)
    replay: Any = None

    def begin_pass(self) -> None:
        """Set the rate of the pass that begins."""
        self.passed()
        for group in self.optimizer.param_groups:
            group["lr"] = _RATE * 0.5 * (1 + math.cos(math.pi * self.epoch / self.passes))

    def _get_losses(self, batch: Any, loss_args: Any) -> torch.Tensor:
        """Return the losses of a batch.

        A step is a thousand kernels of a microsecond or two each. Launched one by one they take 13 ms on an idle H200
        and 37 ms beside busy processes. So they are recorded once, for the size that all batches have: 5 ms.
        """
        theta, x, _ = batch
        network: Any = self._neural_net
        if theta.device.type != "cuda" or not network.training:
            return super()._get_losses(batch, loss_args)
        if self.replay is None:
            graphed: Any = torch.cuda.make_graphed_callables(_Losses(network), (theta, x))
            self.replay = graphed
        return self.replay(theta, x)

    def get_dataloaders(
        self,
        starting_round: int = 0,
        training_batch_size: int = 200,
        validation_fraction: float = 0.1,
        resume_training: bool = False,
        dataloader_kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Return batches to train with, and to validate with."""
        # sbi leaves its masks on the CPU.
        data = [part.to(self._device) for part in self.get_simulations(starting_round)]
        order = torch.randperm(len(data[0]), device=data[0].device)
        cut = int((1 - validation_fraction) * len(order))
        self.train_indices, self.val_indices = order[:cut], order[cut:]
        return (
            _Batches(data, self.train_indices, training_batch_size, self.begin_pass),
            _Batches(data, self.val_indices, training_batch_size, None),
        )


class _NoTracker:
    """Where sbi's trainer logs: nowhere. Its own default is a folder of TensorBoard where the program runs."""

    log_dir = None

    def log_metric(self, name: str, value: float, step: int | None = None) -> None:
        """Leave it."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Leave them."""

    def log_params(self, params: dict[str, Any]) -> None:
        """Leave them."""

    def add_figure(self, name: str, figure: Any, step: int | None = None) -> None:
        """Leave it."""

    def flush(self) -> None:
        """Nothing is kept."""


@dataclasses.dataclass
class Learned:
    """A network that was trained.

    Attributes:
        posterior: sbi's `DirectPosterior`, of normal quantiles of places given standardised statistics.
        standard: What standardises them.
        device: Where the network is.
        epochs: Passes over the simulations.
        converged: Whether training ended because nothing was gained any more.
    """

    posterior: Any
    standard: Standard
    device: torch.device
    epochs: int
    converged: bool

    def sample(self, rows: np.ndarray, draws: int, seed: int) -> np.ndarray:
        """Return draws from the posterior of each row of statistics, float64 `[draws, N, d]`."""
        with _quietly(self.device, seed):
            given = self.standard(rows).to(self.device)
            parts = [
                self.posterior.sample_batched((draws,), part, draws, show_progress_bars=False)
                for part in given.split(_AT_ONCE)
            ]
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
    """Train.

    Args:
        unit: Places of the parameters within the unit cube, float64 `[N, d]`.
        rows: Statistics, float64 `[N, n]`, finite.
        device: Where the network is trained.
        seed: Of its first weights, of the order of rows, and of which of them validate.
        bar: A progress bar, advanced with each pass.
    """
    standard = Standard.of(rows)
    given: dict[str, Any] = {"z_score_theta": "none", "z_score_x": "none"}
    network = posterior_nn("zuko_nsf", hidden_features=_HIDDEN, num_transforms=_TRANSFORMS, **given)
    size = int(np.clip(len(rows) // _BATCHES, *_BATCH))
    epochs = -(-_STEPS // max(1, int((1 - _VALIDATION) * len(rows)) // size))
    with _quietly(device, seed):
        size_of_one = unit.shape[1]
        prior = MultivariateNormal(torch.zeros(size_of_one, device=device), torch.eye(size_of_one, device=device))
        trainer = _Trainer(
            prior, network, device=str(device), tracker=_NoTracker(), show_progress_bars=False, logging_level="ERROR"
        )
        trainer.passes = epochs
        if bar is not None:
            bar.reset(total=epochs)
            trainer.passed = bar.update
        trainer.append_simulations(_quantiles(unit), standard(rows))
        trainer.train(
            training_batch_size=size,
            learning_rate=_RATE,
            validation_fraction=_VALIDATION,
            stop_after_epochs=_PATIENCE,
            max_num_epochs=epochs - 1,  # sbi makes one pass more
        )
        posterior = trainer.build_posterior()
    done = trainer.summary["epochs_trained"][-1]
    return Learned(posterior, standard, device, done, done < epochs)


@dataclasses.dataclass(frozen=True)
class Check:
    """How far posteriors can be trusted: of points that were held out, whose parameters are known.

    Attributes:
        names: Of the d parameters.
        places: The true parameters, as places within their ranges from 0 to 1, float64 `[N, d]`.
        means: Those of the posteriors, likewise.
        ranks: How many of the draws are below the true parameter, int64 `[N, d]`: uniform if the posteriors are right
            (simulation-based calibration, Talts et al. 2018).
        draws: How many there were of each posterior.
        levels: How much probability lies where a posterior is denser than at the true parameters, float64 `[N]`:
            uniform if they are right (expected coverage, Hermans et al. 2022).
    """

    names: tuple[str, ...]
    places: np.ndarray
    means: np.ndarray
    ranks: np.ndarray
    draws: int
    levels: np.ndarray

    @property
    def p_values(self) -> dict[str, float]:
        """Kolmogorov and Smirnov's test that ranks are uniform, per parameter: small if posteriors are wrong."""
        found = check_uniformity_frequentist(torch.from_numpy(self.ranks), self.draws)
        return dict(zip(self.names, found.double().tolist(), strict=True))

    @property
    def recovered(self) -> dict[str, float]:
        """Share of a parameter's variance that posterior means explain: 1 is exact, 0 knows no more than the range."""
        missed = ((self.means - self.places) ** 2).sum(0) / ((self.places - self.places.mean(0)) ** 2).sum(0)
        return dict(zip(self.names, (1 - missed).tolist(), strict=True))

    def coverage(self, level: float) -> float:
        """Return how often the true parameters are within the densest region that holds `level` of a posterior."""
        return float((self.levels <= level).mean())


def check(learned: Learned, names: tuple[str, ...], unit: np.ndarray, rows: np.ndarray, seed: int) -> Check:
    """Draw from the posteriors of points with known parameters, and compare.

    Args:
        learned: The network.
        names: Of the parameters.
        unit: Their places, float64 `[N, d]`, of points that the network has not seen.
        rows: Statistics of these points, float64 `[N, n]`.
        seed: Of the draws.
    """
    draws = learned.sample(rows, _DRAWS, seed)
    density = learned.densities(np.concatenate([unit[None], draws]), rows)
    levels = (density[1:] > density[:1]).mean(0)
    return Check(names, unit, draws.mean(0), (draws < unit).sum(0), _DRAWS, levels)


@contextlib.contextmanager
def _quietly(device: torch.device, seed: int) -> Generator[None]:
    """Seed torch for a while; what sbi prints and warns of is not for our users, who did not choose its settings.

    On the CPU one thread is as fast for networks so small, and many times faster where others use the cores, too.
    """
    devices = [device] if device.type == "cuda" else []
    threads = torch.get_num_threads()
    with contextlib.ExitStack() as stack:
        if device.type == "cpu":
            stack.callback(torch.set_num_threads, threads)
            torch.set_num_threads(1)
        stack.enter_context(torch.random.fork_rng(devices))
        stack.enter_context(warnings.catch_warnings())
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        yield
