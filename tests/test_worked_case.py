"""The paper's worked case of five levels, on the array baselines; other backends: test_cuda_baselines.py and
test_market_properties.py.

Demand 10 5 8 0 2 against supply 0 4 7 6 3 clears 10 units at tick 2. The baselines begin with a book and get their
agents' orders, so the one agent here, who quotes one unit at the mid of 2.5 that rounds to tick 2, brings the last unit
of demand or of supply there, as its coin falls.
"""

import numpy as np
import pytest
from plain_rules import word

from kineticsim_env.config import MarketConfig
from scripts.benchmarks.array_form import ArrayForm
from scripts.benchmarks.backend import Workload
from scripts.benchmarks.jax_backend import JaxScan
from scripts.benchmarks.torch_backends import TorchEager, TorchGraphs
from scripts.benchmarks.torch_compiled import TorchCompile

BUY, SELL = np.array([10, 5, 8, 0, 2, 0, 0, 0]), np.array([0, 4, 7, 6, 3, 0, 0, 0])


class OneUnitAtTheMid(Workload):
    @property
    def config(self):
        return MarketConfig(
            num_agents=1, noise=1.0, momentum=0.0, maker=0.0, max_order_qty=1, noise_spread=0, market_order_prob=0.0,
            num_levels=8, init_price=4,
        )  # fmt: skip


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: TorchEager("cpu"), id="eager"),
        pytest.param(lambda: JaxScan("cpu"), id="jax"),
        pytest.param(lambda: TorchEager("cuda"), id="eager-cuda", marks=pytest.mark.gpu),
        pytest.param(TorchGraphs, id="graphs-cuda", marks=pytest.mark.gpu),
        pytest.param(lambda: TorchCompile("cuda"), id="compile-cuda", marks=pytest.mark.gpu),
    ],
)
def test_the_papers_worked_case(monkeypatch, make, seed):
    backend = make()
    if missing := backend.unavailable():
        pytest.skip(f"could not import: {missing}")
    buys = word(seed, 0, 0, 0) >> 31 & 1
    buy, sell = BUY.copy(), SELL.copy()
    (buy if buys else sell)[2] -= 1
    demand, supply = buy[::-1].cumsum()[::-1].astype(np.int32), sell.cumsum().astype(np.int32)
    monkeypatch.setattr(ArrayForm, "opening", lambda self: (demand.copy(), supply.copy()))
    backend.prepare(OneUnitAtTheMid(markets=1, agents=1, levels=8, steps=1, seed=seed))
    backend.reset()
    backend.run(1)
    backend.synchronize()
    result = backend.result()
    assert result.bid[0].tolist() == [10, 5, 0, 0, 0, 0, 0, 0]
    assert result.ask[0].tolist() == [0, 0, 1, 6, 3, 0, 0, 0]
    assert (result.last_price[0], result.volume[0], result.trades[0]) == (2, 10, 1)
