"""The mean and variance of all that was seen, kept on a device."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from kineticsim_env.runtime.checks import check_like, check_mapping, check_tensor
from kineticsim_env.runtime.values import check_count, check_instance, check_number, show

FLOATS = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))


class RunningMeanStd:
    """Mean and variance of all rows seen so far, in double, by Chan's parallel form of Welford's update.

    Attributes:
        mean: float64 `shape`, 0 at first.
        var: float64 `shape`, the variance of the population, 1 at first.
        count: float64, rows seen, `epsilon` at first.
    """

    @torch.inference_mode(False)  # tensors made in inference mode cannot be written to outside of it
    def __init__(self, shape: tuple[int, ...], device: torch.device, epsilon: float = 1e-4) -> None:
        """Start with no rows, mean 0 and variance 1 of weight `epsilon`, as Gymnasium does."""
        if not isinstance(shape, (tuple, list)):
            raise TypeError(f"shape: expected a tuple of sizes, got {show(shape)}")
        shape = tuple(check_count("shape", size, 0) for size in shape)
        check_count("shape", math.prod(max(size, 1) for size in shape), 0)  # strides are products of sizes
        epsilon = check_number("epsilon", epsilon, 0.0)
        try:
            device = torch.empty(0, device=device).device
        except Exception as error:  # torch raises many kinds of errors here
            raise ValueError(f"device: expected a device that torch has here, got {show(device)}") from error
        self.mean = torch.zeros(shape, dtype=torch.float64, device=device)
        self.var = torch.ones(shape, dtype=torch.float64, device=device)
        self.count = torch.full((), epsilon, dtype=torch.float64, device=device)

    @torch.no_grad()
    def update(self, rows: torch.Tensor, mask: torch.Tensor | None = None) -> None:
        """Take in a batch.

        Args:
            rows: `[M, *shape]`, any floating dtype, M from 1, on the device.
            mask: bool `[M]`, the rows that count; None is all.
        """
        wanted = self.mean

        def fits(rows: torch.Tensor) -> bool:
            return rows.dim() > 0 and len(rows) > 0 and rows.shape[1:] == wanted.shape and rows.device == wanted.device

        def fits_rows(mask: torch.Tensor) -> bool:
            return mask.shape == rows.shape[:1] and mask.device == wanted.device

        sizes = ", ".join(["M", *map(str, wanted.shape)])
        rows = check_tensor("rows", rows, f"floats [{sizes}] on {wanted.device}", fits, FLOATS).double()
        if mask is not None:
            check_tensor("mask", mask, f"bool [{len(rows)}] on {wanted.device}, None", fits_rows, (torch.bool,))
        if mask is None:
            number = torch.full_like(self.count, len(rows))
            var, mean = torch.var_mean(rows, dim=0, correction=0)
        else:
            weight = mask.double().view(-1, *[1] * (rows.dim() - 1))
            number = weight.sum()
            divisor = number.clamp(min=1.0)
            mean = (rows * weight).sum(0) / divisor
            var = ((rows - mean).square() * weight).sum(0) / divisor
        delta, total = mean - self.mean, self.count + number
        spread = self.var * self.count + var * number + delta.square() * (self.count * number / total)
        self.var.copy_(spread / total)
        self.mean.add_(delta * (number / total))
        self.count.copy_(total)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return mean, var and count by name, live."""
        return {name: getattr(self, name) for name in ("mean", "var", "count")}

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return copies of mean, var and count."""
        return {name: tensor.clone() for name, tensor in self.tensors().items()}

    def load_state_dict(self, saved: Mapping[str, torch.Tensor]) -> None:
        """Take over statistics of the same shape, from any device.

        Raises:
            TypeError, ValueError: Naming the entry, what came and what is allowed; nothing is changed then.
        """
        check_mapping(saved)
        present = self.tensors()
        check_like(saved, present)
        for name, tensor in present.items():
            tensor.copy_(saved[name])


def running_statistics(given: RunningMeanStd | None, shape: tuple[int, ...], device: torch.device) -> RunningMeanStd:
    """Return the statistics of another wrapper, if they are of the same shape and device, or new ones."""
    if given is None:
        return RunningMeanStd(shape, device)
    mean = check_instance("statistics", given, RunningMeanStd).mean
    if mean.shape != shape or mean.device != device:
        found = f"{list(mean.shape)} on {mean.device}"
        raise ValueError(f"statistics: expected those of {list(shape)} on {device}, got those of {found}")
    return given
