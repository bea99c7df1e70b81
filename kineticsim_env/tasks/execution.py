"""`ExecutionTask`: the settings of `KineticSim/Execution-v0`, and its page."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np

from kineticsim_env.config import MarketConfig
from kineticsim_env.runtime.values import check_instance
from kineticsim_env.tasks.base import CHOICES, ForBlocks, Task


@dataclasses.dataclass(frozen=True)
class ExecutionTask(ForBlocks, Task):
    """An executor has a block to buy or to sell by a deadline, and pays as little as it can against the arrival price.

    ## Description

    The market is that of `MarketMakingTask`: continuous trading among noise, momentum, maker and fundamental agents,
    around a fundamental price that walks, and jumps while there is news. At every decision the executor replaces its
    one order, on the side of its block, which stands for `auctions_per_step` intervals of 48 orders. At the deadline
    the engine executes what is left, as marketable orders of `forced_qty` units per interval, within the last step: not
    trading is never free. What is hard: large orders eat through the book, small ones take until the deadline, waiting
    ones may miss a price that runs away, and momentum agents follow what the block does to the price.

    ## Action Space

    `action_type="continuous"` (default): `Box(-1, 1, (2,), float32)`.

    | Num | Action | at -1 | at +1 |
    |-----|--------|-------|-------|
    | 0 | aggression: ticks through the mid, rounded | `max_offset` behind it | `max_offset` through it |
    | 1 | size: units, rounded | 0, no order | `max_qty` |

    `action_type="discrete"`: `Discrete(15)`: 0 is no order, `1 + 2 * i + j` is an order at
    (-6, -3, -1, 0, 1, 3, 6)[i] ticks through the mid, of half (j = 0) or all of `max_qty`.

    With `keep=True`, in a continuous market, there is a third number: above 0 it keeps the order that stands, at its
    place in the queue. Or `Discrete(16)`, where 15 does.

    Ladders (`orders_per_side`) have actions and observations of each level: docs/environment.md.

    "Through" is up for a buy and down for a sell. A mid on a half tick is rounded down for a buy and up for a sell. An
    order is cut to what is left of the block.

    ## Observation Space

    `Box(-1, 1, (39,), float32)`, with `s(x, n) = x / (|x| + n)`. The book is that of the built-in agents.

    | Num | Observation | Min | Max |
    |-----|-------------|-----|-----|
    | 0-9 | bid depth at the mid and 1 to 9 ticks below it, s(units, 8) | 0 | 1 |
    | 10-19 | ask depth at the mid and 1 to 9 ticks above it, s(units, 8) | 0 | 1 |
    | 20 | spread, s(ticks, 8); 0 if a side is empty | 0 | 1 |
    | 21 | last price less mid, s(half ticks, 8) | -1 | 1 |
    | 22-25 | changes of the mid in the last 4 decisions, newest first, s(half ticks, 8) | -1 | 1 |
    | 26-29 | volumes of the last 4 decisions, newest first, s(units, 32) | 0 | 1 |
    | 30 | what is left of the block / `block_qty`, negative for a sale | -1 | 1 |
    | 31 | money made so far against the arrival price, s(ticks x units, 8 `block_qty`) | -1 | 1 |
    | 32 | time left, as a share of the horizon | 0 | 1 |
    | 33 | side of the block: 1 buy, -1 sell | -1 | 1 |
    | 34 | mid less price of the standing order, s(half ticks, 16); 0 without one | -1 | 1 |
    | 35 | its quantity / `max_qty` | 0 | 1 |
    | 36 | mid less arrival price, s(half ticks, 16) | -1 | 1 |
    | 37 | built-in units before the own bid in its queue, s(units, 8); 0 without one, or off the grid | 0 | 1 |
    | 38 | built-in units before the own ask in its queue, likewise | 0 | 1 |

    In call auctions (`mechanism="call"`, such as those of `preset="trading"`) there are no queues, and it is
    `Box(-1, 1, (37,), float32)`: without 37 and 38.

    With `see_fundamental=True` the fundamental price, which informed agents go by, comes behind all these: the
    fundamental price less the mid, s(half ticks, 16), from -1 to 1 at 39, or in call auctions at 37.

    Where `decide` ends decisions sooner, the last one's length, from 0 to 1, is behind that.

    ## Rewards

    In ticks per unit of the whole block, so that blocks of any size compare. The arrival price is the mid when the
    episode began (Perold 1988, "The implementation shortfall"):

    - `reward="shortfall"` (default): what the decision's trades made against the arrival price, less fees, divided by
      `block_qty`. The rewards of an episode sum to minus the implementation shortfall of the block.
    - `reward="risk_averse"`: less `risk_aversion` times the squared share of the block that is left, at every decision,
      the running cost of waiting in Almgren and Chriss (2000).
    - `reward="terminal"`: 0, and at the end the whole of `"shortfall"`.
    - `reward="edge"`: what the decision's trades made against the fundamental price after it, less fees, divided by
      `block_qty`. That price moves up and down alike, so for a block that is done in full the mean of an episode is
      that of `"shortfall"` but for a constant, with less noise: PPO learns more from it
      (examples/studies/baselines). No observation has that price: it is there to train by.

    What even the forced auctions leave undone (the other side has to be empty for that) costs `leftover_penalty` ticks
    per unit. All are divided by `reward_scale`.

    ## Starting State

    That of `MarketMakingTask`, a warm start. The side of the block is drawn likewise; a first episode that starts at a
    later time (`stagger`) has the whole block still to trade.

    ## Episode End

    Termination, and never truncation: the deadline is part of the task, not a cut in time.

    1. The block is done.
    2. After `horizon` decisions of full length, and what was left has been forced through.

    ## Arguments

    | Parameter | Type | Default | Description |
    |-----------|------|---------|-------------|
    | `horizon` | int | 100 | decisions until the deadline |
    | `side` | str | `"random"` | of the block, drawn in each episode; or `"buy"`, `"sell"` |
    | `block_qty` | int | 100 | units to trade |
    | `forced_qty` | int | 4 | units per auction in which the engine executes what is left, at most `max_qty` |
    | `action_type` | str | `"continuous"` | or `"discrete"` |
    | `max_offset` | int | 10 | ticks from the mid that a continuous action reaches |
    | `max_qty` | int | 8 | largest order, units |
    | `keep` | bool | False | whether actions may keep what stands; in a continuous market only |
    | `decide` | str | `"interval"` | or until a `"fill"`, or until the `"touch"` moves: docs/environment.md |
    | `reward` | str | `"shortfall"` | or `"risk_averse"`, `"terminal"`, `"edge"` |
    | `risk_aversion` | float | 0.05 | ticks per decision with the whole block left |
    | `leftover_penalty` | float | 10 | ticks per unit that even the forced auctions leave |
    | `reward_scale` | float | 1 | what rewards are divided by |
    | `warmup` | int | 100 | auctions that a warm start has behind it |
    | `bank_size` | int | 256 | warm starts to draw from; 0 is the cold opening book |
    | `bank_per_market` | int | 4 | warm starts of each market or scenario, where markets differ |
    | `warm_seed` | int | 2^61 | seed of the first warm start |

    `horizon`, `block_qty`, `max_qty`, `risk_aversion` and `leftover_penalty` may be arrays, one number per market, and
    `randomise` may draw them for each episode (`"task.block_qty"`). Observations then end with a column for each that
    differs: the value divided by the largest.

    Further arguments, of the environments: `config` (a `MarketConfig`) or `preset` (`"news"`), `engine` and
    `device` as in `Simulator`, `auctions_per_step` (1), `replace` (`"noise"` takes the place of a built-in noise
    agent; None, the default, adds an agent), `randomise`; and see `ExecutionVectorEnv`.

    ```python
    import gymnasium
    import kineticsim_env

    env = gymnasium.make("KineticSim/Execution-v0", block_qty=200, side="sell")
    envs = gymnasium.make_vec("KineticSim/Execution-v0", num_envs=4096, output="torch")
    ```

    ## Version History

    * v0: initial version
    """

    role: ClassVar[str | None] = "executor"
    replaceable: ClassVar[str | None] = "noise"

    horizon: int = 100
    reward: str = "shortfall"
    reward_scale: float = 1.0

    def __post_init__(self) -> None:
        """Check every field, and that forced orders are within its limits."""
        super().__post_init__()
        check_forced(self)

    def market_config(self, config: MarketConfig) -> MarketConfig:
        """Return the config with the task's limits; an inventory limit must have room for the block."""
        check_block(self, config)
        return super().market_config(config)

    def to_params(self, roles: Any, **settings: Any) -> dict[str, object]:
        """See `Task.to_params`; the reward is that of executors."""
        number = CHOICES["execution_reward"].index(self.reward)
        return super().to_params(roles, **settings) | {"execution_reward": number}

    def _choices(self) -> dict[str, tuple[str, ...]]:
        return CHOICES | {"reward": CHOICES["execution_reward"]}


def check_forced(task: Any) -> None:
    """Refuse forced orders that `max_qty` would cut."""
    smallest = int(np.min(task.each.get("max_qty", task.max_qty)))
    if task.forced_qty > smallest:
        raise ValueError(f"forced_qty: expected 1 to max_qty = {smallest}, got {task.forced_qty}")


def check_block(task: Any, config: MarketConfig) -> None:
    """Refuse a block, or forced orders, that the config's limits leave no room for."""
    check_instance("config", config, MarketConfig)
    limit, largest = config.inventory_limit, np.min(config.max_quote_qty)
    if limit is not None and task.block_qty > np.min(limit):
        raise ValueError(
            f"block_qty: expected up to the config's inventory_limit, {np.min(limit)}, got {task.block_qty}"
        )
    if task.forced_qty > largest:
        raise ValueError(f"forced_qty: expected up to the config's max_quote_qty, {largest}, got {task.forced_qty}")
