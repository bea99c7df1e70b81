"""What docs/mechanisms.md says before and after its figures; `mechanisms_text.py` puts it together."""

from __future__ import annotations

LEVERS = (  # field, example, what it does; a test runs every example
    (
        "rounding",
        'rounding="coin"',
        "a price half way between two ticks goes up or down as a coin falls, once per beat",
    ),
    ("reference", 'reference="fundamental"', "built-in agents price around the fundamental price, not around the mid"),
    ("taker_offset", "taker_offset=3", "momentum and fundamental agents price so many ticks beyond the mid"),
    ("fee", "fee=-200", "thousandths of a tick that a slot pays per unit; below 0 it is a rebate"),
    ("taker_fee", "taker_fee=300", "what a slot pays besides for units that it takes; continuous trading only"),
    ("tax", "tax=1", "ticks per unit that slots pay, and that built-in limit prices allow for"),
    ("collar", "collar=5", "no order is priced further than so many ticks from the last price"),
    ("tick_size", "tick_size=4", "prices are multiples of so many ticks of the grid"),
    ("quote_latency", "quote_latency=10", "a decision's quotes arrive so many events late; continuous trading only"),
    ("regimes", "regimes=[{}, {'noise_spread': 20}], regime_switch_prob=0.1", "a hidden state that changes parameters"),
)

WORDS = (  # word, what it is, field
    ("clock", "agents are drawn one after another, instead of each coming once per auction", '`arrivals="clock"`'),
    ("event", "one place of the clock: one agent is drawn, and submits one order", ""),
    ("interval", "so many events: the unit of market time", "`interval`"),
    (
        "beat",
        "what happens every so many events, whatever the interval: the fundamental price moves, orders are cancelled",
        "`beat`",
    ),
    (
        "call auction",
        "the orders of an interval wait, and are cleared together at one price at its end",
        '`mechanism="call"`',
    ),
    (
        "continuous trading",
        "an order is matched when it comes, at the price of what rests, oldest first; what is left of it rests",
        '`mechanism="continuous"`',
    ),
)

CHOICES = (  # for what, which rule
    ("the published market, the preset `trading`", 'the default of `MarketConfig`: `arrivals="each"`'),
    ("the default market of the environments", '[the preset `news`](presets.md#news), `MarketConfig.preset("news")`'),
    (
        "how long orders should be collected; auctions of less or more than one order per agent",
        'the clock with `mechanism="call"`',
    ),
    (
        "queues, latency, maker and taker fees, what most people mean by a limit order book",
        'the clock with `mechanism="continuous"`',
    ),
    (
        "learning to make a market under continuous trading",
        '[the preset `continuous`](presets.md#continuous), `MarketConfig.preset("continuous")`',
    ),
    (
        "what a rule does, with nothing else changed",
        'both, with `reference="fundamental"` and no momentum or fundamental agents',
    ),
)

BEFORE = """# One stream of orders, two mechanisms

A market's rules are not its orders. Here the same agents can send the same orders to a market that trades at once, and
to one that collects orders and clears them together, and the difference is what the rule does. This page shows how.
[The model](model.md#the-clock) has it to the bit, [the glossary](glossary.md) has the words.

## The words

WORDS_TABLE

`run(n)` runs n intervals, and a decision of a learner lasts `auctions` or `auctions_per_step` intervals, under either
mechanism. Rates of the fundamental price and of cancellation are per beat. So the interval changes how often a market
is cleared, and nothing else.

Without the clock (`arrivals="each"`, the default) every built-in agent comes once per auction; interval and beat are
that auction. This is the published market.

## Which one

CHOICES_TABLE

Engines and environments for each: [engines](engines.md), [kernels](kernels.md). What the model leaves out:
[limitations](limitations.md).

## The same orders under both

On the clock random words are hashes of seed, episode and event. So who comes at an event, and for how much, depends
on no rule. Prices do where agents look at the mid. With `reference="fundamental"` they do not: prices are around a
fundamental price that nobody's trades move. The side depends on the book for momentum and fundamental agents only, so
the stream here has none of them.

```python
import kineticsim_env as ks

stream = ks.MarketConfig(
    arrivals="clock",
    beat=20,
    reference="fundamental",
    num_agents=20,
    noise=0.9,
    momentum=0.0,
    maker=0.1,
    noise_spread=14,
    maker_half_spread=8,
    walk_prob=0.4,
    cancel_prob=0.4,
    window=16,
    tie="mid",
    residue="cancel",
)
rules = {
    "continuous trading": {"mechanism": "continuous", "interval": 20},
    "a call auction per 5 events": {"interval": 5},
    "a call auction per 100 events": {"interval": 100},
}
for name, rule in rules.items():
    sim = ks.Simulator(stream.replace(**rule), num_markets=64, seed=0)
    sim.run(2000 // rule["interval"])  # 2,000 events
    error = (sim.last_price - sim.fundamental_price).abs().double().mean().item()
    print(f"{name}: {sim.volume.double().mean().item():.0f} units traded, {error:.1f} ticks off")
```
"""

AFTER = """## Levers

Every lever is off by default, may differ from market to market (but for `regimes`), and works under both mechanisms and
with or without the clock unless said otherwise. Examples are arguments of `MarketConfig`. Their order, where several
act on one price, is in [the model](model.md#levers).

LEVERS_TABLE

## Regimes

A regime is a hidden state that replaces some parameters while it is in force: how far noise agents price from the mid,
order sizes, how often the fundamental price moves, how much is cancelled. Calm and hectic times make |returns|
correlated over as long as a regime lasts, without any agent that looks at the past.

```python
import kineticsim_env as ks
from kineticsim_env import statistics

calm, hectic = {"noise_spread": 6}, {"noise_spread": 20}
config = ks.MarketConfig.preset("trading", rounding="coin", regimes=[calm, hectic], regime_switch_prob=0.02)
for name, market in {"one regime": config.replace(regime_switch_prob=0.0), "two regimes": config}.items():
    sim = ks.Simulator(market, num_markets=256, seed=0)
    moves = abs(statistics.returns(sim.run(400, record=("last_price",))["last_price"]))
    print(name, [round(statistics.autocorrelation(moves, lag).mean(), 3) for lag in (5, 10, 20)])
```

With a switching probability of 0 each market keeps the regime that its episode drew. `sim.tensors["regime"]` says which
one is in force; no learner sees it.

## A change on the way, and what it does

`set_parameters` changes levers and other parameters of markets that run. A branch beside it goes on without the change.
Both have the same random words, so what differs is what the change caused.

```python
import kineticsim_env as ks

config = ks.MarketConfig.preset("trading", arrivals="clock", mechanism="continuous", interval=20)
sim = ks.Simulator(config, num_markets=256, seed=0)
sim.run(100)
without = sim.branch()
sim.set_parameters(collar=6)  # from now on
for market, name in ((sim, "with a collar"), (without, "without")):
    before = market.volume.clone()
    prices = market.run(100, record=("last_price",))["last_price"].double()
    traded = (market.volume - before).double().mean().item()
    print(f"{name}: deviation of the price {prices.std(1).mean().item():.2f} ticks, {traded:.0f} units traded")
```

The clock, the mechanism, the interval and the beat are fixed for an episode. More:
[markets](markets.md#parameters-that-change-on-the-way).

## Learned quotes and their queues

Under continuous trading a quote has a place in the queue at its price. `sim.queue`, int32 `[M, K, 2]`, is how many
built-in units are ahead of the standing bid and ask. The number falls as these trade or are cancelled; at 0 the quote
is next. What a place in a queue is worth to a maker was
[measured in the preset `continuous`](presets.md#a-place-in-a-queue).

```python
import torch
import kineticsim_env as ks
from kineticsim_env import statistics

config = ks.MarketConfig(arrivals="clock", mechanism="continuous", interval=16, cancel_prob=0.2)
sim = ks.Simulator(config, num_markets=1, seed=1, slots=1)
sim.run(40)
best_bid = statistics.best_prices(sim.bid, sim.ask)[0] + sim.price_origin
quotes = torch.zeros((1, 1, 4), dtype=torch.int32, device=sim.device)
quotes[0, 0, 0], quotes[0, 0, 1] = best_bid, 8  # join the best bid with 8 units
fills = sim.step(quotes)
for _ in range(5):
    standing = sim.tensors["quotes"][0, 0, 1].item()
    print(f"{standing} units stand, {sim.queue[0, 0, 0].item()} ahead of them, {fills[0, 0, 0].item()} bought")
    fills = sim.step()  # nothing new: what stands keeps its place
```

- A new quote that has the same price and is no larger than what stands keeps its place. A larger one, or one at
  another price, goes to the back. After a partial fill, the quantity of before is larger than what stands: ask for
  what is left, or give no new quotes (`step()`), to keep the place.
- A quote that crosses the book trades on arrival, at the prices of what rests, and pays `taker_fee` on these units.
- Cancellation takes its share of the units ahead too.
- Under call auctions nobody queues: at the clearing price all share, by [rationing](model.md#slots).

Environments take it too. Their observations end with two more features under continuous trading: the units ahead of the
bid and of the ask.

```python
import gymnasium as gym
import torch
import kineticsim_env

envs = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=64, preset="continuous", output="torch")
observation, info = envs.reset(seed=0)  # float32 [64, 39]
for _ in range(20):
    observation, reward, terminated, truncated, info = envs.step(torch.rand((64, 4), device=observation.device) * 2 - 1)
print("share of markets that wait behind others:", (observation[:, 37:] > 0).any(1).double().mean().item())
```

They show the units ahead in text, in pictures and in the game: [seeing a market](seeing.md#queues).

## Latency

`quote_latency` is how many events come between a decision and the arrival of its quotes, up to all events of the
decision. Until then the old quotes stand, and can be traded with. 0 is no latency: quotes arrive before the
decision's first event. What being late costs a maker was
[measured in the preset `continuous`](presets.md#being-late), too.

```python
import torch
import kineticsim_env as ks

config = ks.MarketConfig(arrivals="clock", mechanism="continuous", interval=20, cancel_prob=0.2)
for latency in (0, 10, 20):
    sim = ks.Simulator(config.replace(quote_latency=latency), num_markets=256, seed=0, slots=1)
    sim.run(20)
    quotes = torch.zeros((256, 1, 4), dtype=torch.int32, device=sim.device)
    quotes[:, 0, 0], quotes[:, 0, 1] = sim.mid2 // 2, 4  # bid for 4 units at the mid
    bought = sim.step(quotes)[:, 0, 0].double().mean().item()
    print(f"latency of {latency} events: {bought:.2f} of 4 units bought in the first interval")
```

A decision is one launch; quotes that are under way are not saved, and no run is cut while they are.
"""
