"""`MarketMakingTask`: the settings of `KineticSim/MarketMaking-v0`, and its page."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from kineticsim_env.tasks.base import ForProfit, Task


@dataclasses.dataclass(frozen=True)
class MarketMakingTask(ForProfit, Task):
    """A market maker quotes both sides of a market of built-in agents, and earns the spread.

    It is one maker more; `replace="maker"` replaces a built-in one, as makers of `parallel_env` do.

    ## Description

    The default market trades continuously: orders come one after another, and each is matched at once with what rests
    in the book. Its built-in agents are noise, momentum, maker and fundamental agents. Its fundamental price walks, and
    now and then there is news, a hidden regime in which it also jumps; fundamental agents know the price, and nobody
    knows the regime. At every decision the learner replaces its two quotes; they stand for `auctions_per_step`
    intervals of 48 orders. What is hard: quotes near the mid trade most, and informed orders hit them;
    inventory gains and loses with the price; it has to be seen from the market whether there is news.

    With a `preset` or `config` of call auctions, such as `"trading"`, all orders of an interval clear at one price, the
    one that trades most.

    ## Action Space

    `action_type="continuous"` (default): `Box(-1, 1, (4,), float32)`; each number is mapped linearly to whole units.

    | Num | Action | at -1 | at +1 |
    |-----|--------|-------|-------|
    | 0 | bid offset: ticks below the mid | 0 | `max_offset` |
    | 1 | ask offset: ticks above the mid | 0 | `max_offset` |
    | 2 | bid size: units | 0, no quote | `max_qty` |
    | 3 | ask size: units | 0, no quote | `max_qty` |

    `action_type="discrete"`: `Discrete(49)`, `7 * bid + ask`, each from 0 to 6: 0 is no quote, i from 1 to 6 is
    `max_qty` units at (1, 2, 3, 4, 6, 8)[i - 1] ticks from the mid.

    With `keep=True`, in a continuous market, there are 6 numbers: 4 and 5 keep the bid and the ask that stand, at their
    places in the queues, where they are above 0. Or `Discrete(64)`, `8 * bid + ask`, where 7 keeps that side.

    Ladders (`orders_per_side`) have actions and observations of each level: docs/environment.md.

    A mid on a half tick is rounded down for the bid and up for the ask. Quotes are cut to the room that
    `inventory_limit` leaves, and a pair that crosses loses its smaller side.

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
    | 33 | mid less own standing bid, s(half ticks, 16); 0 without one | -1 | 1 |
    | 34 | quantity of the own standing bid / `max_qty` | 0 | 1 |
    | 35 | own standing ask less mid, s(half ticks, 16); 0 without one | -1 | 1 |
    | 36 | quantity of the own standing ask / `max_qty` | 0 | 1 |
    | 37 | built-in units before the own bid in its queue, s(units, 8); 0 without one, or off the grid | 0 | 1 |
    | 38 | built-in units before the own ask in its queue, likewise | 0 | 1 |

    In call auctions (`mechanism="call"`) it is `Box(-1, 1, (37,), float32)`, without 37 and 38.

    Behind all these come, with `see_fundamental=True`, the fundamental price less the mid, s(half ticks, 16), from -1
    to 1, and, where `decide` ends decisions sooner, the last one's length, from 0 to 1.

    ## Rewards

    `pnl` is the change over the decision of cash less fees plus inventory at the `mark`, in ticks x units.

    - `reward="edge"` (default): what the decision's trades made against the fundamental price after it, less fees. It
      is `pnl` at that price without what the inventory held before gained or lost by the price's move. That is 0 in
      the mean, whatever the policy, so an episode's mean is that of liquidated PnL but for the cost of unwinding,
      with less noise (examples/studies/rewards). `mark` has no part in it.
    - `reward="pnl"`: `pnl`.
    - `reward="inventory"`: `pnl - inventory_penalty * inventory^2`, with a price of risk.
    - `reward="asymmetric"`: `pnl` less the share `dampening` of what holding inventory gained; its losses count in
      full.
    - `reward="per_unit"`: `pnl` per unit at stake: the units filled in the decision, or the units held before it
      if these are more. A decision without a fill costs `idle_penalty` besides, so that not trading is no optimum.

    All are divided by `reward_scale`. Who is marked at the mid can move it; the fundamental price, which nobody knows
    in a real market, cannot be moved.

    ## Starting State

    A warm start: one of `bank_size` markets that ran for `warmup` auctions without learners, chosen by the seed and the
    episode's number; no inventory, no cash, no quotes. The vector environment starts each market's first episode at an
    elapsed time drawn likewise (`stagger`), so that a batch is not one slice of the episode.

    ## Episode End

    1. Termination: the marked value is at or below `-max_loss`, if set.
    2. After `horizon` decisions of full length: truncation. With `at_end="unwind"` termination: what is held is sold
       into the book, as the score does, and the reward pays that (docs/environment.md).

    ## Arguments

    | Parameter | Type | Default | Description |
    |-----------|------|---------|-------------|
    | `horizon` | int | 300 | decisions in an episode |
    | `action_type` | str | `"continuous"` | or `"discrete"` |
    | `max_offset` | int | 10 | ticks from the mid that a continuous action reaches |
    | `max_qty` | int | 8 | largest quote, units per side |
    | `keep` | bool | False | whether actions may keep what stands; in a continuous market only |
    | `decide` | str | `"interval"` | or until a `"fill"`, or until the `"touch"` moves: docs/environment.md |
    | `inventory_limit` | int or None | 40 | largest inventory, long or short; a config with a limit keeps its own |
    | `initial_inventory` | int | 0 | units that every episode begins with; PnL counts from their value then |
    | `reward` | str | `"edge"` | or `"pnl"`, `"inventory"`, `"asymmetric"`, `"per_unit"` |
    | `mark` | str | `"fundamental"` | or the `"mid"` of the built-in book, or `"liquidation"` at once |
    | `inventory_penalty` | float | 0.01 | ticks per decision for each squared unit, in `"inventory"` |
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
    `device` as in `Simulator`, `auctions_per_step` (1), `replace` (None), `randomise`; and see `MarketMakingVectorEnv`.

    ```python
    import gymnasium
    import kineticsim_env

    env = gymnasium.make("KineticSim/MarketMaking-v0", horizon=500, reward="asymmetric")
    envs = gymnasium.make_vec("KineticSim/MarketMaking-v0", num_envs=4096, output="torch")
    ```

    ## Version History

    * v0: initial version
    """

    role: ClassVar[str | None] = "maker"
    replaceable: ClassVar[str | None] = "maker"
