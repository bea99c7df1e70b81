"""The JAX baseline: a `lax.scan` over steps under one `jit`, on JAX's default device.

What it computes is in array_form.py. JAX is imported only when the backend is used, and 64-bit integers are enabled
only around its calls.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from kineticsim_env.runtime.words import MULTIPLIERS
from scripts.benchmarks.array_form import ArrayForm
from scripts.benchmarks.backend import Result, Workload

_UNROLL = 4  # steps in one turn of XLA's loop


class JaxScan:
    """All steps of a run in one compiled program, which is made once for each length of run."""

    name = "JAX"

    def __init__(self, platform: str | None = None) -> None:
        """Take `"cpu"` or `"cuda"`; None leaves the choice to JAX."""
        if platform not in (None, "cpu", "cuda"):
            raise ValueError(f"platform: expected None, 'cpu' or 'cuda', got {platform!r}")
        self._platform = platform
        self._form: ArrayForm | None = None
        self._state: Any = None
        self._programs: dict[int, Callable[[Any], Any]] = {}

    @property
    def device(self) -> str:
        """`"cpu"` or `"cuda"`."""
        if self._platform or importlib.util.find_spec("jax") is None:
            return self._platform or "cpu"
        return "cuda" if _jax().default_backend() in ("gpu", "cuda") else "cpu"

    def unavailable(self) -> str | None:
        """Say why it cannot run here and how to get it, or None."""
        if importlib.util.find_spec("jax") is None:
            return 'JAX is not installed (pip install jax, or "jax[cuda13]" for a GPU)'
        jax = _jax()
        try:
            jax.devices(self._platform)
        except RuntimeError as error:
            return f'JAX has no {self._platform or "device"} (pip install "jax[cuda13]"): {error}'
        return None

    def prepare(self, workload: Workload) -> None:
        """Allocate, and compile for a workload's shapes and its number of steps."""
        if missing := self.unavailable():
            raise RuntimeError(f"{self.name}: {missing}")
        self.close()
        self._form, self._jax = ArrayForm.of(workload), _jax()
        self._device = self._jax.devices(self._platform)[0]
        self._agent_steps = self._put(self._form.agent_steps().view(np.uint64))
        self.reset()
        if workload.steps:
            self._program(workload.steps)
        self.synchronize()

    def reset(self) -> None:
        """Go back to the opening book at step 0."""
        form = self._prepared()
        markets, start = form.markets, np.int32(2 * form.init_price)
        state = (
            form.keys().view(np.uint64),  # key + t * 2^32 * G
            np.full(markets, start),  # doubled mid of the last step
            np.full(markets, start),  # doubled last price
            np.zeros(markets, np.int32),  # volume
            np.zeros(markets, np.int32),  # auctions that traded
            *(np.tile(side, (markets, 1)) for side in form.opening()),
            np.uint32(0),  # step
        )
        self._state = self._put(state)
        self._steps = 0

    def run(self, steps: int) -> None:
        """Advance by `steps` auctions, in one call; may return before the device is done."""
        self._prepared().check_steps(self._steps + steps)
        if steps:
            program = self._program(steps)
            with _enable_64_bits(self._jax):
                self._state = program(self._state, self._agent_steps)
            self._steps += steps

    def synchronize(self) -> None:
        """Wait for the device."""
        if self._state is not None:
            self._jax.block_until_ready(self._state)

    def result(self) -> Result:
        """Return the end state."""
        form = self._prepared()
        _, _, last2, volume, trades, demand, supply, _ = (np.asarray(part) for part in self._state)
        return form.result(demand, supply, volume, last2 >> 1, trades)

    def close(self) -> None:
        """Give memory back."""
        self._form, self._state, self._agent_steps, self._programs = None, None, None, {}

    def _prepared(self) -> ArrayForm:
        if self._form is None:
            raise RuntimeError(f"{self.name}: call prepare first")
        return self._form

    def _put(self, arrays: Any) -> Any:
        with _enable_64_bits(self._jax):
            return self._jax.device_put(arrays, self._device)

    def _program(self, steps: int) -> Callable[..., Any]:
        if steps not in self._programs:
            step, scan = _make_step(self._jax, self._prepared()), self._jax.lax.scan

            def run(state: Any, agent_steps: Any) -> Any:
                turn = lambda state, _: (step(state, agent_steps), None)  # noqa: E731
                return scan(turn, state, None, length=steps, unroll=min(_UNROLL, steps))[0]

            with _enable_64_bits(self._jax):
                compiled = self._jax.jit(run, donate_argnums=0).lower(self._state, self._agent_steps).compile()
            self._programs[steps] = compiled
        return self._programs[steps]


def _jax() -> Any:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else it takes most of the GPU when it starts
    import jax

    return jax


def _enable_64_bits(jax: Any) -> AbstractContextManager:
    """Return the context in which JAX has 64-bit types, under its new or its old name."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    experimental: Any = importlib.import_module("jax.experimental")
    return experimental.enable_x64()


def _make_step(jax: Any, form: ArrayForm) -> Callable[[Any, Any], Any]:
    """Return the function from a state to the next, traced where 64-bit types are enabled."""
    jnp = jax.numpy
    reach, width, levels, per_integer, sum_bits = form.reach, form.width, form.levels, form.per_integer, form.sum_bits
    first, second = (np.uint64(multiplier) for multiplier in MULTIPLIERS)
    num_integers = -(-form.bins // per_integer)
    tick = np.arange(levels, dtype=np.int32)
    agent = np.arange(form.agents, dtype=np.uint32)
    is_noise, is_maker = agent < form.noise, agent >= form.takers

    def shift(x: Any, by: int) -> Any:
        return jax.lax.shift_right_logical(x, jnp.full_like(x, by))

    def bin_orders(base: Any, agent_steps: Any, move: Any, time: Any) -> list[Any]:
        """Sum all quantities of a market in a few int64, several bins each: one reduction, no scatter."""
        word = base[:, None] + agent_steps
        word = (word ^ shift(word, 30)) * first
        word = (word ^ shift(word, 27)) * second
        word = word ^ shift(word, 31)
        low, high = word.astype(jnp.uint32), shift(word, 32).astype(jnp.uint32)
        quantity = 1 + (((high & 0xFFFF) * np.uint32(form.max_quantity)) >> 16)
        by_chance = ((low >> 31) ^ 1).astype(jnp.int32)
        makers = ((agent + time) & 1).astype(jnp.int32)
        momentum = jnp.where(move == 0, by_chance, (move < 0).astype(jnp.int32))
        side = jnp.where(is_noise, by_chance, jnp.where(is_maker, makers, momentum))  # 1 sells
        noise_place = ((high >> 16) * np.uint32(2 * form.spread + 1) >> 16).astype(jnp.int32) + (reach - form.spread)
        other_place = reach + (2 * side - 1) * np.where(is_maker, form.half_spread, -1).astype(np.int32)
        fired = ((low & 0xFFFFFF) < np.uint32(form.threshold)) & ~is_maker
        place = jnp.where(fired, width, jnp.where(is_noise, noise_place, other_place)) + (width + 1) * side
        packed = quantity.astype(jnp.int64) << ((place & (per_integer - 1)) * sum_bits).astype(jnp.int64)
        integer = place >> (per_integer.bit_length() - 1)
        parts = tuple(jnp.where(integer == i, packed, 0) for i in range(num_integers))
        zeros = tuple(np.int64(0) for _ in parts)
        return list(jax.lax.reduce(parts, zeros, lambda x, y: tuple(a + b for a, b in zip(x, y, strict=True)), (1,)))

    def step(state: Any, agent_steps: Any) -> Any:
        base, prev_mid2, last2, volume, trades, demand, supply, time = state
        buys, sells = ((side > volume[:, None]).sum(1, dtype=jnp.int32) for side in (demand, supply))
        mid2 = jnp.where((buys > 0) & (sells > 0), buys - sells + (levels - 1), last2)
        integers = bin_orders(base, agent_steps, (mid2 - prev_mid2)[:, None], time)

        def bin_sum(i: int) -> Any:
            shifted = integers[i // per_integer] >> np.int64(i % per_integer * sum_bits)
            return (shifted & np.int64((1 << sum_bits) - 1)).astype(jnp.int32)[:, None]

        demand, supply = demand + bin_sum(width), supply + bin_sum(2 * width + 1)
        for j in range(width):
            floor = (mid2 >> 1) + (j - reach)
            price = jnp.clip(floor + (mid2 & floor & 1), 0, levels - 1)[:, None]
            demand = demand + jnp.where(tick <= price, bin_sum(j), 0)
            supply = supply + jnp.where(tick >= price, bin_sum(width + 1 + j), 0)
        new_volume = jnp.minimum(demand, supply).max(1)
        lowest = (supply < new_volume[:, None]).sum(1, dtype=jnp.int32)
        traded = new_volume > volume
        return (
            base + np.uint64(form.key_step % 2**64),
            mid2,
            jnp.where(traded, 2 * lowest, last2),
            new_volume,
            trades + traded.astype(jnp.int32),
            jnp.maximum(demand, new_volume[:, None]),
            jnp.maximum(supply, new_volume[:, None]),
            time + np.uint32(1),
        )

    return step
