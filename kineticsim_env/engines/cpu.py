"""`CpuEngine`: the C++ engine, on torch's thread pool."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from contextlib import nullcontext

import numpy as np
import torch

from kineticsim_env.agents.policies import ProgramPolicy
from kineticsim_env.config import MAX_ORIGIN
from kineticsim_env.engines.agents import AgentGroup
from kineticsim_env.engines.base import ENV_RESET, OPEN
from kineticsim_env.engines.native import INT32_LIMIT, NativeEngine, market_stopped
from kineticsim_env.errors import EngineUnavailable, MarketError
from kineticsim_env.runtime import agent_library, build, layout
from kineticsim_env.runtime.calls import Uninterrupted
from kineticsim_env.runtime.flow_table import TIME, most_orders_at_tick


class CpuEngine(NativeEngine):
    """The C++ engine, on torch's thread pool."""

    name = "cpu"

    def __init__(self, device: torch.device, sizes: Mapping[str, int], tensors: Mapping[str, torch.Tensor]) -> None:
        """Load (perhaps build) the library and bind it; see `NativeEngine`."""
        self._library = build.load_cpu()
        ours = (ctypes.sizeof(layout.Launch), 4 * layout.PARAMS_INTS)
        theirs = (self._library.ks_sizeof_launch(), self._library.ks_sizeof_params())
        if ours != theirs:  # a field of layout.h that runtime/layout.py reads otherwise than the compiler does
            raise EngineUnavailable(f"layout.h: Python reads structs of {ours} bytes, the compiler of {theirs}")
        self._safe_auctions = 0
        super().__init__(device, sizes, tensors)

    def set_agents(self, groups: Sequence[AgentGroup]) -> None:
        """See `Engine.set_agents`; compiles classes that this process has not seen."""
        found = agent_library.functions([group.kind for group in groups])
        super().set_agents(groups)
        for number, address in enumerate(found):
            self._struct.agents[number].functions = address

    def set_slot_policies(self, policies: Mapping[int, ProgramPolicy]) -> None:
        """See `Engine.set_slot_policies`; compiles policies that this process has not seen, before anything changes."""
        found = agent_library.policy_functions(tuple(policies.values()))
        super().set_slot_policies(policies)
        for slot, address in zip(policies, found, strict=True):
            self._struct.slot_policies[slot].functions = address

    def _plan(self, rows: Mapping[str, np.ndarray]) -> bool:
        self._safe_auctions = 0
        return super()._plan(rows)

    def state_changed(self) -> None:
        """Forget how many auctions no market can overflow in."""
        self._safe_auctions = 0

    def _execute(self, mode: int, total_auctions: int) -> None:
        """Run; if a market stops, restore the state before the call and raise.

        For that a copy of the state is made, but only if a market can stop: not while quantities are too small to
        overflow within so many auctions.
        """
        saved: dict[str, torch.Tensor] = {}
        for launcher in self._previous_launchers.values():
            if launcher.played.value:  # by programs that torch compiled, which count no auctions
                self._safe_auctions = launcher.played.value = 0
        if mode in (ENV_RESET, OPEN):
            self._safe_auctions = 0
        elif total_auctions > self._safe_auctions:
            self._safe_auctions = self._count_safe_auctions()
            if total_auctions > self._safe_auctions:
                saved = {name: tensor.clone() for name, tensor in self._tensors.items()}
        with Uninterrupted() if saved else nullcontext():
            failed = self._library.ks_cpu_launch(ctypes.addressof(self._struct))
            if failed >= 0:
                self._raise_stopped(int(failed), saved)
        self._safe_auctions -= total_auctions

    def _raise_stopped(self, market: int, saved: Mapping[str, torch.Tensor]) -> None:
        """Restore the state before the call, and raise with the reason why a market stopped."""
        reason = market_stopped(market, int(self._tensors["t"][market]), int(self._tensors["error"][market]))
        self._safe_auctions = 0
        if not saved:  # no market could stop by the bounds: live tensors were written to since
            raise MarketError(f"{reason}; tensors were changed by hand, so the state before the call is lost")
        for name, tensor in saved.items():
            self._tensors[name].copy_(tensor)
        raise MarketError(reason)

    def _count_safe_auctions(self) -> int:
        """Return how many auctions no market can overflow in, from the largest book and what agents may add."""
        # Warm starts count: a reset inside a launch swaps them in.
        books = [self._tensors[name] for name in ("bid", "ask", "bank_bid", "bank_ask") if name in self._tensors]
        largest = max(int(book.sum(1).max()) for book in books)
        room = INT32_LIMIT - 1 - largest - self._most_quoted()
        places = [(self._tensors["last_tick"], self._tensors["price_origin"])]
        if "bank_scalars" in self._tensors:
            places.append(self._tensors["bank_scalars"][:, 1:3].unbind(1))
        # The grid follows the mid, or jumps back to a last price that it has left behind.
        furthest = max(int(torch.maximum(origin.abs(), (tick + origin).abs()).max()) for tick, origin in places)
        origin_room = MAX_ORIGIN - furthest
        moves = 1  # of the grid in an auction, at most
        if self._struct.arrivals != layout.ENUMS["Arrivals"]["each"]:
            moves += int(np.max(-(-self._rows["interval"] // self._rows["beat"])))
        least = min(room // max(self._growth, 1), origin_room // (8 * self._sizes["L"] * moves))
        return max(0, min(least, self._count_safe_of_flows()) if self._flows else least)

    def _count_safe_of_flows(self) -> int:
        """Return how many intervals neither the time of an order flow nor its weights can be too large in."""
        of_banks = {name: self._tensors[name] for name in ("bank_lives", "bank_flow") if name in self._tensors}
        lives, flows = self._tensors["lives"], self._tensors["flow"]
        orders = max(int(some.sum((1, 2)).max()) for some in (lives, of_banks.get("bank_lives", lives)))
        time = max(int(some[:, TIME].max()) for some in (flows, of_banks.get("bank_flow", flows)))
        events = int(self._rows["interval"].max())
        come = events + int(self._openings().max()) * max(map(most_orders_at_tick, self._flows))
        weighs = (2**40 - 1) // max(int(flow.cancel.max()) for flow in self._flows) - orders
        length = 1000 * int(self._rows["interval_us"].max())  # which goes on from the last event at most
        gap = max(int(flow.gap.max()) for flow in self._flows)
        return min((2**62 - 1 - time) // (events * 32 * gap + length), weighs // come)

    def _shape(self, mode: int) -> dict[str, int]:
        function = ctypes.cast(self._library.ks_cpu_launch, ctypes.c_void_p).value
        return {"function": function or 0, "device": -1}
