"""`TradingTask`: the settings of `KineticSim/Trading-v0`, and its page."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from kineticsim_env.tasks.base import ForProfit, Task


@dataclasses.dataclass(frozen=True)
class TradingTask(ForProfit, Task):
    """A trader gives one order per decision, to buy or to sell, or none.

    ## Description

    The market is that of `MarketMakingTask`: continuous trading among noise, momentum, maker and fundamental agents,
    around a fundamental price that walks, and jumps while there is news. At every decision the trader replaces its one
    order, which stands for `auctions_per_step` intervals of 48 orders. What is hard: little that is public predicts the
    next price; an order that trades at once pays half the spread, so that only moves that go further than that are
    worth it; one that waits is hit by those who know more.

    ## Action Space

    `action_type="continuous"` (default): `Box(-1, 1, (2,), float32)`.

    | Num | Action | at -1 | at 0 | at +1 |
    |-----|--------|-------|------|-------|
    | 0 | order: units, rounded | sell `max_qty` | none | buy `max_qty` |
    | 1 | aggression: ticks through the mid, rounded | `max_offset` behind it | at the mid | `max_offset` through it |

    `action_type="discrete"`: `Discrete(15)`: 0 is no order, 1 + j buys and 8 + j sells `max_qty` units at
    (-6, -3, -1, 0, 1, 3, 6)[j] ticks through the mid.

    With `keep=True`, in a continuous market, there is a third number: above 0 it keeps the order that stands, at its
    place in the queue. Or `Discrete(16)`, where 15 does.

    Ladders (`orders_per_side`) have actions and observations of each level: docs/environment.md.

    "Through" is up for a buy and down for a sell. A mid on a half tick is rounded down for a buy and up for a sell. An
    order is cut to the room that `inventory_limit` leaves.

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
    | 30 | inventory / `inventory_limit`; s(units, 8 `max_qty`) without a limit | -1 | 1 |
    | 31 | cash and inventory at the mid, s(ticks x units, 1000) | -1 | 1 |
    | 32 | time left, as a share of the horizon | 0 | 1 |
    | 33 | side of the standing order: 1 buy, -1 sell, 0 none | -1 | 1 |
    | 34 | mid less its price, s(half ticks, 16); 0 without one | -1 | 1 |
    | 35 | its quantity / `max_qty` | 0 | 1 |
    | 36 | 0 | -1 | 1 |
    | 37 | built-in units before the own bid in its queue, s(units, 8); 0 without one, or off the grid | 0 | 1 |
    | 38 | built-in units before the own ask in its queue, likewise | 0 | 1 |

    In call auctions (`mechanism="call"`, such as those of `preset="trading"`) there are no queues, and it is
    `Box(-1, 1, (36,), float32)`: without 36 to 38.

    With `see_fundamental=True` the fundamental price, which informed agents go by, comes behind all these: the
    fundamental price less the mid, s(half ticks, 16), from -1 to 1 at 39, or in call auctions at 37. Of
    call auctions 36 is 0 then.

    Where `decide` ends decisions sooner, the last one's length, from 0 to 1, is behind that.

    ## Rewards

    Those of `MarketMakingTask`, by the same names: `reward="edge"` (default), `"pnl"`, `"inventory"`, `"asymmetric"` or
    `"per_unit"`, divided by `reward_scale`; and by the same `mark`.

    ## Starting State

    That of `MarketMakingTask`: a warm start, without inventory, cash and order.

    ## Episode End

    1. Termination: `max_loss` is set, and the marked value is at or below `-max_loss`.
    2. After `horizon` decisions of full length: truncation. With `at_end="unwind"` termination: what is held is sold
       into the book, as the score does, and the reward pays that (docs/environment.md).

    ## Arguments

    | Parameter | Type | Default | Description |
    |-----------|------|---------|-------------|
    | `horizon` | int | 300 | decisions in an episode |
    | `action_type` | str | `"continuous"` | or `"discrete"` |
    | `max_offset` | int | 10 | ticks from the mid that a continuous action reaches |
    | `max_qty` | int | 8 | largest order, units |
    | `keep` | bool | False | whether actions may keep what stands; in a continuous market only |
    | `decide` | str | `"interval"` | or until a `"fill"`, or until the `"touch"` moves: docs/environment.md |
    | `inventory_limit` | int or None | 40 | largest inventory, long or short; a config with a limit keeps its own |
    | `initial_inventory` | int | 0 | units that every episode begins with; PnL counts from their value then |
    | `reward` | str | `"edge"` | or `"pnl"`, `"inventory"`, `"asymmetric"`, `"per_unit"` |
    | `mark` | str | `"fundamental"` | or the `"mid"` of the built-in book, or `"liquidation"` at once |
    | `inventory_penalty` | float | 0.002 | ticks per decision for each squared unit, in `"inventory"` |
    | `dampening` | float | 0.5 | share taken of the gains of holding |
    | `idle_penalty` | float | 0.1 | what a decision without a fill costs, where rewards are per unit |
    | `reward_scale` | float | 10 | what rewards are divided by |
    | `max_loss` | float or None | None | ticks x units; None is no termination |
    | `at_end` | str | `"truncate"` | or `"unwind"`, at the horizon |
    | `warmup` | int | 100 | auctions that a warm start has behind it |
    | `bank_size` | int | 256 | warm starts to draw from; 0 is the cold opening book |
    | `bank_per_market` | int | 4 | warm starts of each market or scenario, where markets differ |
    | `warm_seed` | int | 2^61 | seed of the first warm start |

    `horizon`, `max_qty`, `inventory_limit`, `initial_inventory`, `inventory_penalty` and `idle_penalty` may be arrays,
    one number per market, and `randomise` may draw them for each episode (`"task.horizon"`). Observations then end with
    a column for each that differs: the value divided by the largest.

    Further arguments, of the environments: `config` (a `MarketConfig`) or `preset` (`"news"`), `engine` and
    `device` as in `Simulator`, `auctions_per_step` (1), `replace` (`"momentum"` takes the place of a built-in momentum
    agent; None, the default, adds an agent), `randomise`; and see `TradingVectorEnv`.

    ```python
    import gymnasium
    import kineticsim_env

    env = gymnasium.make("KineticSim/Trading-v0", horizon=500, reward="pnl")
    envs = gymnasium.make_vec("KineticSim/Trading-v0", num_envs=4096, output="torch")
    ```

    ## Version History

    * v0: initial version
    """

    role: ClassVar[str | None] = "trader"
    replaceable: ClassVar[str | None] = "momentum"

    inventory_penalty: float = 0.002
