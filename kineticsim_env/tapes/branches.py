"""Some markets of a simulator as they are now, apart from it: what a tape plays, as often as it is asked for."""

from __future__ import annotations

import ctypes

import numpy as np
import torch

from kineticsim_env.config import MarketConfig
from kineticsim_env.engines.agents import AgentGroup
from kineticsim_env.engines.base import RUN, unpack
from kineticsim_env.engines.cpu import CpuEngine
from kineticsim_env.engines.ensemble import Ensemble
from kineticsim_env.engines.native import INT32_LIMIT
from kineticsim_env.runtime import build
from kineticsim_env.runtime.flow_table import NOW, TIME, FlowTable

_HOST = torch.device("cpu")


class Branch:
    """Copies of the state and the parameters of some markets, in host memory.

    Attributes:
        config: What all markets of the simulator play.
        markets: Their numbers in the simulator.
    """

    def __init__(self, simulator: Ensemble, markets: list[int]) -> None:
        self.config: MarketConfig = simulator.config
        self.markets = markets
        self._sizes = {**simulator.sizes, "M": 1}
        self._groups: tuple[AgentGroup, ...] = simulator._groups
        self._flows: tuple[FlowTable, ...] = tuple(simulator._flows)
        self._state = {name: _rows(tensor, markets) for name, tensor in simulator.tensors.items()}
        self._parameters = _rows(simulator.engine.parameters(), markets)
        agents = simulator.engine.agent_parameters()
        self._agents = None if agents is None else _rows(agents, markets)

    def __getitem__(self, name: str) -> torch.Tensor:
        """Return a tensor of the state by its name in `struct Launch`."""
        return self._state[name]

    def parameter(self, name: str) -> np.ndarray:
        """Return a field of `struct MarketParams` of every market, int64 `[m]`."""
        return unpack(self._parameters.numpy())[name]

    def flow(self, number: int) -> FlowTable | None:
        """Return the order flow of market number `number` of these, or None."""
        return self._flows[int(self.parameter("flow")[number])] if self._flows else None

    def engine(self, number: int) -> OneMarket:
        """Return a C++ engine with a copy of market number `number` of these."""
        state = {name: tensor[number : number + 1].clone() for name, tensor in self._state.items()}
        engine = OneMarket(_HOST, self._sizes, state)
        engine.set_ensemble(self.config)
        if self._flows:
            engine.set_flows(self._flows)
        engine.set_agents(self._groups)
        if self._agents is not None:
            engine.set_agent_parameters(self._agents[number : number + 1].numpy().copy())
        engine.set_parameters(unpack(self._parameters[number : number + 1].numpy()))
        return engine


class OneMarket(CpuEngine):
    """The C++ engine of one market, which a tape launches itself."""

    def open(self, library: ctypes.CDLL) -> int:
        """Return a new player of it in the library of tapes. It uses the engine's tensors as long as it is there."""
        self._struct.env_mode, self._struct.growth, self._struct.records = RUN, INT32_LIMIT - 1, 0
        play = ctypes.cast(build.load_cpu().ks_cpu_launch, ctypes.c_void_p)
        return library.ks_tape_open(ctypes.addressof(self._struct), play)

    @property
    def t(self) -> int:
        """The interval that the market is at."""
        return int(self._tensors["t"][0])

    @property
    def time(self) -> int:
        """Nanoseconds since the reset, of a market of an order flow."""
        return int(self._tensors["flow"][0, NOW if self._rows["interval_us"][0] else TIME])

    @property
    def error(self) -> int:
        """The market's error word."""
        return int(self._tensors["error"][0])


def _rows(tensor: torch.Tensor, markets: list[int]) -> torch.Tensor:
    """Return copies of the rows of some markets in host memory; of a single row, one for each."""
    index = [0] * len(markets) if len(tensor) == 1 else markets
    return tensor[torch.tensor(index, device=tensor.device)].to(_HOST, copy=True).contiguous()
