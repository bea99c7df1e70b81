"""PyTorch baselines: eager operations, and the same ones as a CUDA graph; torch_compiled.py has a compiled step.

What they compute is in array_form.py. All tensors are allocated once, and every step updates them in place.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from kineticsim_env.runtime.words import MULTIPLIERS, signed
from scripts.benchmarks.array_form import ArrayForm
from scripts.benchmarks.backend import Result, Workload

_FIRST, _SECOND = (signed(multiplier) for multiplier in MULTIPLIERS)
_GRAPH_STEPS = 20  # steps per replay; the rest of a run is replayed one by one

int32, int64 = torch.int32, torch.int64


class TorchBackend:
    """What the three backends share: the device, the state of M markets, the cut of a run into calls."""

    name: str
    _state: tuple[str, ...]

    def __init__(self, device: str | None = None) -> None:
        """Take `"cpu"` or `"cuda"`; None is CUDA where torch sees a GPU."""
        if device not in (None, "cpu", "cuda"):
            raise ValueError(f"device: expected None, 'cpu' or 'cuda', got {device!r}")
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._tensors: dict[str, torch.Tensor] = {}
        self._form: ArrayForm | None = None
        self._step: Callable[[], None] | None = None
        self._calls: list[tuple[int, Callable[[], object]]] = []

    def unavailable(self) -> str | None:
        """Say why it cannot run here and how to get it, or None."""
        if self.device == "cuda" and not torch.cuda.is_available():
            return "torch sees no CUDA GPU (pip install torch, in a build with CUDA, on a machine with a driver for it)"
        return None

    def prepare(self, workload: Workload) -> None:
        """Allocate, compile and capture for a workload's shapes."""
        if missing := self.unavailable():
            raise RuntimeError(f"{self.name}: {missing}")
        self.close()
        self._form = ArrayForm.of(workload)
        self._allocate(self._form)
        self.reset()
        with torch.no_grad():
            self._calls = self._make_calls(self._form)
        self.reset()
        self.synchronize()

    def reset(self) -> None:
        """Go back to the opening book at step 0."""
        for name in self._state:
            self._tensors[name].copy_(self._tensors[f"{name} at 0"])
        self._steps = 0

    def run(self, steps: int) -> None:
        """Advance by `steps` auctions; on a GPU it may return before the device is done."""
        form = self._prepared()
        form.check_steps(self._steps + steps)
        self._steps += steps
        with torch.no_grad():
            for length, call in self._calls:  # the longest first
                for _ in range(steps // length):
                    call()
                steps %= length

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def result(self) -> Result:
        """Return the end state."""
        form = self._prepared()
        demand, supply = (side.cpu().numpy() for side in self._sides())
        volume, last2, trades = (self._tensors[name].cpu().numpy() for name in ("volume", "last2", "trades"))
        return form.result(demand, supply, volume, last2 >> 1, trades)

    def close(self) -> None:
        """Give memory back."""
        self._calls, self._form, self._step, self._tensors = [], None, None, {}

    def _prepared(self) -> ArrayForm:
        if self._form is None:
            raise RuntimeError(f"{self.name}: call prepare first")
        return self._form

    def _empty(self, name: str, dtype: torch.dtype, *shape: int) -> None:
        self._tensors[name] = torch.empty(shape, dtype=dtype, device=self.device)

    def _constant(self, name: str, values: np.ndarray | int | list, dtype: torch.dtype) -> None:
        self._tensors[name] = torch.as_tensor(np.asarray(values), device=self.device).to(dtype)

    def _stateful(self, name: str, values: np.ndarray | int, dtype: torch.dtype, *shape: int) -> None:
        """Allocate a tensor of the state, and what a reset puts there."""
        self._constant(f"{name} at 0", values, dtype)
        self._tensors[f"{name} at 0"] = self._tensors[f"{name} at 0"].expand(shape)
        self._empty(name, dtype, *shape)

    def _statistics(self, form: ArrayForm) -> None:
        self._stateful("base", form.keys(), int64, form.markets)  # key + t * 2^32 * G
        self._stateful("prev_mid2", 2 * form.init_price, int32, form.markets)
        self._stateful("last2", 2 * form.init_price, int32, form.markets)  # doubled, as the mid is
        self._stateful("volume", 0, int32, form.markets)
        self._stateful("trades", 0, int64, form.markets)

    def _allocate(self, form: ArrayForm) -> None:
        raise NotImplementedError

    def _make_calls(self, form: ArrayForm) -> list[tuple[int, Callable[[], object]]]:
        raise NotImplementedError

    def _sides(self) -> tuple[torch.Tensor, torch.Tensor]:
        raise NotImplementedError

    def _capture(self, step: Callable[[], None]) -> list[tuple[int, Callable[[], object]]]:
        """Capture graphs of several steps and of one; key, step and book are on the device, so they may be mixed."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        calls: list[tuple[int, Callable[[], object]]] = []
        for length in (_GRAPH_STEPS, 1):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(length):
                    step()
            calls.append((length, graph.replay))
        return calls


class TorchEager(TorchBackend):
    """About 55 operations per step, into preallocated tensors.

    Agents are [A, M], markets innermost: classes are contiguous rows, and neighbouring threads add into different
    markets' bins. Words are int64; fields are read through an int32 view of their halves, at half the memory traffic.
    The book is [M, 2, L], demand with its ticks reversed, so that one cumulative sum serves both sides.
    """

    name = "torch eager"
    _state = ("base", "prev_mid2", "last2", "volume", "trades", "maker_bins", "book", "counts")

    def _allocate(self, form: ArrayForm) -> None:
        markets, agents, levels, takers = form.markets, form.agents, form.levels, form.takers
        reach, width, bins = form.reach, form.width, form.bins
        self._statistics(form)
        self._constant("agent_steps", form.agent_steps()[:, None], int64)
        for name in ("word", "scratch", "bin"):
            self._empty(name, int64, agents, markets)
        self._empty("quantity", int32, agents, markets)
        for name in ("low", "side", "place"):
            self._empty(name, int32, takers, markets)
        self._empty("fired", torch.bool, takers, markets)
        self._empty("sums", int32, bins, markets)
        self._empty("where", int64, markets, bins)
        self._empty("increase", int32, markets, 2 * levels)
        self._empty("cumulated", int32, markets, 2, levels)
        self._empty("executable", int32, markets, levels)
        self._empty("reached", torch.bool, markets, 3, levels)
        for name in ("mid2", "fall", "traded_to", "double_price", "fixed_side"):
            self._empty(name, int32, markets)
        for name in ("two_sided", "still", "traded"):
            self._empty(name, torch.bool, markets)
        self._constant("one", 1 << 16, int32)
        self._constant("noise_base", (reach - form.spread + width + 1) << 16, int32)
        self._constant("momentum_base", reach - 1 + width + 1, int32)
        self._constant("marketable_place", 2 * width + 1, int32)
        self._constant("double_levels", 2 * levels, int32)

        # A maker's bin alternates between its buying and its selling bin: it is written directly to its rows of `bin`.
        self._tensors["maker_bins"] = self._tensors["bin"][takers:]
        maker = np.arange(takers, agents)
        buy, sell = reach - form.half_spread, reach + form.half_spread + width + 1
        self._constant("maker_bins at 0", np.where(maker % 2 == 0, buy, sell)[:, None], int64)

        # Where each bin belongs in [2 * L] for every doubled mid: demand at L - 1 - tick, supply at L + tick.
        mid2, offset = np.arange(2 * levels - 1)[:, None], np.arange(-reach, reach + 1)
        floor = (mid2 >> 1) + offset
        tick = np.clip(floor + (mid2 & floor & 1), 0, levels - 1)
        edge = np.zeros_like(mid2)
        self._constant("places", np.concatenate([levels - 1 - tick, edge, levels + tick, levels + edge], 1), int64)

        demand, supply = form.opening()
        self._stateful("book", np.stack([demand[::-1], supply]), int32, markets, 2, levels)
        counts = [(demand > 0).sum(), (supply > 0).sum(), 0]
        self._stateful("counts", np.array(counts), int32, markets, 3)

    def _sides(self) -> tuple[torch.Tensor, torch.Tensor]:
        book = self._tensors["book"]
        return book[:, 0].flip(1), book[:, 1]

    def _make_calls(self, form: ArrayForm) -> list[tuple[int, Callable[[], object]]]:
        self._step = _eager_step(form, self._tensors)
        return [(1, self._step)]


def _eager_step(form: ArrayForm, t: dict[str, torch.Tensor]) -> Callable[[], None]:
    """Return a function that advances the tensors by a step; the views that it needs are made once, here."""
    markets, agents, levels, noise, takers = form.markets, form.agents, form.levels, form.noise, form.takers
    width, spread = form.width, form.spread
    word, scratch, base = t["word"], t["scratch"], t["base"]
    word_low, word_high = t["word"].view(int32).view(agents, markets, 2).unbind(2)
    shifted_low, shifted_high = t["scratch"].view(int32).view(agents, markets, 2).unbind(2)
    noise_high, taker_low, taker_shifted = word_high[:noise], word_low[:takers], shifted_low[:takers]
    low, side, place, fired = t["low"], t["side"], t["place"], t["fired"]
    noise_place, momentum_place, momentum_side = place[:noise], place[noise:], side[noise:]
    quantity, bins, taker_bins, maker_bins = t["quantity"], t["bin"], t["bin"][:takers], t["maker_bins"]
    sums, sums_by_market, where = t["sums"], t["sums"].T, t["where"]
    increase, cumulated, increase_by_side = t["increase"], t["cumulated"], t["increase"].view(markets, 2, levels)
    book, demand, supply, executable = t["book"], t["book"][:, 0], t["book"][:, 1], t["executable"]
    counts, reached, reached_sides, reached_supply = t["counts"], t["reached"], t["reached"][:, :2], t["reached"][:, 2]
    buys, sells, at_volume = counts.unbind(1)
    mid2, prev_mid2, last2, fall, still = t["mid2"], t["prev_mid2"], t["last2"], t["fall"], t["still"]
    volume, trades, traded_to, traded = t["volume"], t["trades"], t["traded_to"], t["traded"]
    volume_column, volume_cells = volume[:, None], volume[:, None, None]
    two_sided, double_price, fixed_side = t["two_sided"], t["double_price"], t["fixed_side"]
    one, noise_base, momentum_base = t["one"], t["noise_base"], t["momentum_base"]
    marketable_place = t["marketable_place"]
    double_levels, agent_steps, places = t["double_levels"], t["agent_steps"], t["places"]
    key_step, maker_flip = form.key_step, torch.tensor(2 * form.reach + width + 1, device=word.device)
    # The last shift of the hash flips bit 32 where it is not masked, and only the quantity's lowest bit is there: a
    # power of two does not read it.
    power_of_two = form.max_quantity & (form.max_quantity - 1) == 0

    def words() -> None:
        torch.add(base, agent_steps, out=word)
        for shift, factor in ((30, _FIRST), (27, _SECOND)):
            torch.bitwise_right_shift(word, shift, out=scratch)
            scratch.bitwise_and_((1 << (64 - shift)) - 1)  # torch shifts int64 arithmetically
            word.bitwise_xor_(scratch)
            word.mul_(factor)
        torch.bitwise_right_shift(word, 31, out=scratch)
        if not power_of_two:
            scratch.bitwise_and_((1 << 33) - 1)
            word_high.bitwise_xor_(shifted_high)
        torch.bitwise_xor(taker_low, taker_shifted, out=low)

    def observe() -> None:
        torch.sub(buys, sells, out=mid2)
        mid2.add_(levels - 1)
        torch.logical_and(buys, sells, out=two_sided)
        torch.where(two_sided, mid2, last2, out=mid2)
        torch.sub(prev_mid2, mid2, out=fall)
        torch.eq(fall, 0, out=still)
        torch.bitwise_right_shift(fall, 31, out=fixed_side)  # after a rise -1: momentum agents buy
        prev_mid2.copy_(mid2)

    def bin_orders() -> None:
        torch.bitwise_and(word_high, 0xFFFF, out=quantity)
        torch.add(one, quantity, alpha=form.max_quantity, out=quantity)
        quantity.bitwise_right_shift_(16)
        if takers:
            torch.bitwise_right_shift(low, 31, out=side)  # -1 buys, 0 sells
            if noise < takers:
                torch.where(still, momentum_side, fixed_side, out=momentum_side)
                torch.add(momentum_base, momentum_side, alpha=-2, out=momentum_place)
            torch.bitwise_right_shift(noise_high, 16, out=noise_place)
            noise_place.bitwise_and_(0xFFFF)
            torch.add(noise_base, noise_place, alpha=2 * spread + 1, out=noise_place)
            noise_place.bitwise_right_shift_(16)
            low.bitwise_and_(0xFFFFFF)
            torch.lt(low, form.threshold, out=fired)
            torch.where(fired, marketable_place, place, out=place)  # masked_fill_ runs on one core
            torch.add(place, side, alpha=width + 1, out=taker_bins)
        sums.zero_()
        sums.scatter_add_(0, bins, quantity)
        if takers < agents:
            torch.sub(maker_flip, maker_bins, out=maker_bins)

    def clear() -> None:
        torch.index_select(places, 0, mid2, out=where)
        increase.zero_()
        increase.scatter_add_(1, where, sums_by_market)
        torch.cumsum(increase_by_side, 2, dtype=int32, out=cumulated)
        book.add_(cumulated)
        torch.minimum(demand.flip(1), supply, out=executable)
        torch.amax(executable, 1, out=traded_to)
        torch.gt(traded_to, volume, out=traded)
        volume.copy_(traded_to)
        torch.ge(supply, volume_column, out=reached_supply)
        torch.gt(book, volume_cells, out=reached_sides)
        torch.sum(reached, 2, dtype=int32, out=counts)
        torch.maximum(book, volume_cells, out=book)
        torch.add(double_levels, at_volume, alpha=-2, out=double_price)
        torch.where(traded, double_price, last2, out=last2)
        trades.add_(traded)

    def step() -> None:
        words()
        observe()
        bin_orders()
        clear()
        base.add_(key_step)

    return step


class TorchGraphs(TorchEager):
    """The eager step, captured in CUDA graphs of several steps."""

    name = "torch CUDA graphs"

    def __init__(self, device: str | None = None) -> None:
        """Take `"cuda"`, the only device with graphs."""
        if device not in (None, "cuda"):
            raise ValueError(f"device: expected 'cuda', got {device!r}")
        super().__init__("cuda")

    def _make_calls(self, form: ArrayForm) -> list[tuple[int, Callable[[], object]]]:
        self._step = _eager_step(form, self._tensors)
        return self._capture(self._step)
