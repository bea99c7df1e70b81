"""sbi's trainer of neural posterior estimation, as calibration uses it."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from sbi.inference import NPE


class Batches:
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


class Losses(torch.nn.Module):
    """What training minimises, as a module: that is what a CUDA graph is made of."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, theta: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return minus the logarithm of the density, `[N]`."""
        return self.network.loss(theta, x)


class Trainer(NPE):
    """sbi's trainer, with batches by index, a rate that falls, and on a GPU a CUDA graph.

    At a rate that stays, the last steps leave an error in the posterior that 4,000 held-out points show: ranks of
    examples/studies/calibration's market were not uniform (p below 1e-4 of one parameter, with 30,000 simulations and
    with a million), and are with one that falls (Loshchilov and Hutter 2017, SGDR).
    """

    passes, rate = 1, 0.0  # how many, and the rate of the first; it falls to 0 with the last, as half a cosine
    passed: Callable[[], Any] = staticmethod(lambda: None)
    replay: Any = None

    def begin_pass(self) -> None:
        """Set the rate of the pass that begins."""
        self.passed()
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * 0.5 * (1 + math.cos(math.pi * self.epoch / self.passes))

    def _get_losses(self, batch: Any, loss_args: Any) -> torch.Tensor:
        """Return the losses of a batch.

        A step is a thousand kernels of a microsecond or two each. On an H200, launched one by one, they took 13 ms in a
        bare loop and 37 ms here. So they are recorded once, for the size that all batches have, and take 5 ms.
        """
        theta, x, _ = batch
        network: Any = self._neural_net
        if theta.device.type != "cuda" or not network.training:
            return super()._get_losses(batch, loss_args)
        if self.replay is None:
            gc.collect()  # an older graph among the garbage would end the capture by being destroyed within it
            graphed: Any = torch.cuda.make_graphed_callables(Losses(network), (theta, x))
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
            Batches(data, self.train_indices, training_batch_size, self.begin_pass),
            Batches(data, self.val_indices, training_batch_size, None),
        )


class NoTracker:
    """Where sbi's trainer logs: nowhere. Its own default is a folder of TensorBoard where the program runs."""

    log_dir = None
    log_metric = log_metrics = log_params = add_figure = flush = staticmethod(lambda *logged, **options: None)
