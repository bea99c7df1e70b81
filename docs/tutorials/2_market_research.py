"""
Market research
===============

Markets without a learner: run thousands, measure them, hold them beside stylised facts, sweep a parameter, ask what an
order did to the price, add a class of traders, and read every order of a market.
"""

# %%
# A simulator
# -----------
#
# A market is a :class:`~kineticsim_env.MarketConfig`. The preset ``realistic`` has continuous trading: each order is
# matched when it comes. An interval is a number of orders. One call runs all markets, and records a tensor ``[markets,
# intervals]`` for each name that it is asked for.

import matplotlib.pyplot as plt
import numpy as np
import torch

import kineticsim_env as ks

config = ks.MarketConfig.preset("realistic")
sim = ks.Simulator(config, num_markets=256, seed=7)
series = sim.run(400, record=("last_price", "fundamental", "volume"))
price, fundamental, volume = (values.cpu().numpy() for values in series.values())
print("last_price:", price.shape, price.dtype)
print(f"{config.interval} orders in an interval, {volume.mean():.1f} units traded")

# %%
# The price follows the fundamental, which nobody is told but the informed: their orders carry it into the price.
# ``bid`` and ``ask`` are the resting quantities on each market's grid of prices, which follows the price: its first
# tick is at ``price_origin``.

bid, ask = sim.bid[0].cpu().numpy(), sim.ask[0].cpu().numpy()
ticks = np.arange(config.num_levels) + int(sim.price_origin[0])

figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.4), width_ratios=(1.6, 1))
left.step(range(1, 401), price[0], where="mid", lw=0.8, color="#8fb8de", label="last price")
left.plot(range(1, 401), fundamental[0], lw=1.6, color="#0d4377", label="fundamental")
left.set(xlabel="interval", ylabel="ticks", title="Market 0")
left.legend()
right.bar(ticks, bid, color="#1f6fb4", label="bids")
right.bar(ticks, ask, color="#c8452f", label="asks")
right.set(xlabel="price, ticks", ylabel="resting units", title="Its book", xlim=(price[0, -1] - 25, price[0, -1] + 25))
right.legend()
plt.show()

# %%
# The same seed gives the same markets, to the bit, on every engine, and market 3 of seed 7 is the market of seed 7 + 3
# alone. So one that is found among thousands can be looked at by itself.

alone = ks.Simulator(config, num_markets=1, seed=10).run(400, record=("last_price",))["last_price"]
print("the same prices:", np.array_equal(alone[0].cpu().numpy(), price[3]))

# %%
# Statistics
# ----------
#
# ``measure`` reduces a run as it goes, so that no series is kept. A text says which statistic, with which parameters.
# Each has a value per market, and so a mean and an error over markets: here 95% intervals.

names = ["volatility", "kurtosis", "autocorrelation(lag=[1, 20])", "abs_autocorrelation(lag=[1, 20])", "spread"]
print(ks.measure(config, 1000, names, markets=256, warm_up=100, group=None).table())

# %%
# A scorecard
# -----------
#
# A scorecard puts a market beside the stylised facts of real ones, and beside null models, which show some of the facts
# as well: the path of the fundamental alone, order flow without structure, a random walk. A fact that a null model
# shows says nothing for the market.

card = ks.scorecard(config, intervals=1000, markets=128, impact=False)
print(card)

# %%
# Volatility clusters: the size of returns has a memory, and so has that of the fundamental's moves. The memory comes
# with the news, and trading adds noise to it.

sizes = {"last price": "abs_autocorrelation", "fundamental": "abs_autocorrelation(price='fundamental')"}
found = ks.measure(config, 1000, sizes, markets=256, warm_up=100, group=None)

figure, axes = plt.subplots(figsize=(7, 3.4))
for (name, curve), colour in zip(found.items(), ("#1f6fb4", "#d9912b"), strict=True):
    middle, reach = curve.value[0], curve.half_width[0]
    axes.plot(curve.labels, middle, color=colour, lw=1.4, label=name)
    axes.fill_between(curve.labels, middle - reach, middle + reach, color=colour, alpha=0.2, lw=0)
axes.axhline(0, color="#999999", lw=0.8)
axes.set(xlabel="lag, intervals", ylabel="autocorrelation", title="Memory of the size of returns, 95% intervals")
axes.legend()
plt.show()

# %%
# A sweep
# -------
#
# ``order_splitter`` is a class of agents that comes with the package: each has a large order, and gives it piece by
# piece. More of them, against the spread of the noise agents' orders: each point is 32 markets, and all are played
# together. :doc:`/sweeps` has other designs, stores on disk, and clusters.

space = {"order_splitter.count": [1, 2, 4, 8], "noise_spread": [8, 16]}
statistics = {"memory": "sign_autocorrelation(lag=1)", "spread": "spread"}
table = ks.sweep(space, 500, statistics, market="realistic", replicates=32, warm_up=100).to_pandas()
print(table[[*space, "memory", "memory_half_width", "spread", "spread_half_width"]].round(3).to_string(index=False))

figure, panels = plt.subplots(1, 2, figsize=(8.4, 3.2))
for axes, name, title in zip(panels, statistics, ("Memory of the flow's sign, lag 1", "Spread, ticks"), strict=True):
    for reach, rows in table.groupby("noise_spread"):
        label = f"noise within {reach} ticks"
        axes.errorbar(
            rows["order_splitter.count"], rows[name], rows[f"{name}_half_width"], marker="o", ms=4, label=label
        )
    axes.set(xlabel="agents that split orders", title=title)
panels[0].legend()
plt.show()

# %%
# A counterfactual
# ----------------
#
# What does an order do to the price? One agent is added to each of 1,000 markets of the preset ``news``, and buys 20
# units in each of four intervals. The same markets, of the same seed, are played without it: all others draw the same
# random numbers in both, so what differs is what the order did.


def buy(decision, market):
    """Bid up to 8 ticks over the mid in every market: price and units of the bid, then of the offer."""
    order = torch.zeros((market.num_markets, 1, 4), dtype=torch.int32, device=market.device)
    order[:, 0, 0], order[:, 0, 1] = market.mid2 // 2 + 8, 20  # mid2 is twice the mid
    return order


news = ks.MarketConfig.preset("news")
both = ks.counterfactual(news, buy, num_markets=1000, decisions=4, after=16, warmup=100, seed=0)
impact, half_width = (twice / 2 for twice in both.mean_difference("mid2"))
print(f"units bought per market: {both.with_agent.fills[..., 0].sum(0).double().mean():.1f}")
print(f"impact after the fourth interval: {impact[3]:.2f} ± {half_width[3]:.2f} ticks; {impact[-1]:.2f} at the end")
print("variance of the difference by that of unpaired markets:", both.variance_ratio("mid2")[[0, 3, 19]].round(3))

figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.4))
for arm, label, colour in ((both.without_agent, "without", "#555555"), (both.with_agent, "with the order", "#1f6fb4")):
    path = torch.cat([both.arrival[7:8], arm.series["mid2"][7]]).cpu().numpy() / 2
    left.plot(path, color=colour, lw=1.2, label=label)
left.set(xlabel="interval", ylabel="mid, ticks", title="Market 7")
left.legend()
right.axhline(0, color="#999999", lw=0.8)
right.errorbar(range(1, 21), impact, half_width, fmt="o", ms=3, capsize=2, color="#1f6fb4")
right.set(xlabel="interval", ylabel="ticks", title="Impact on the mid, 95% intervals")
for axes in (left, right):
    axes.axvspan(0.5, 4.5, color="#f0bd7d", alpha=0.3, lw=0)
plt.show()

# %%
# Without the twin one would compare different markets: the last line says how much smaller the variance of the paired
# difference is. :doc:`/studies/price_impact` measures blocks of all sizes so, with ``ks.block_impact``.
#
# A custom trader
# ---------------
#
# A class of agents is a function of what a trader sees, has and draws, which returns an order. All numbers are whole
# numbers, and the function is compiled into the engine. This one buys after a rise and sells after a fall; an order at
# ``near_mid(2)`` is two ticks over the mid.


@ks.agent(memory={"last": "mid2"})
def trend_follower(market, own, draw):
    rose = market.mid2 - own.last
    own.last = market.mid2
    if rose == 0:
        return ks.no_order()
    side = 1 if rose > 0 else -1
    return ks.order(side, market.near_mid(side * 2), 1 + draw.below(4))


for count in (0, 10, 20):
    mixed = news.replace(agents={trend_follower: count} if count else {})
    found = ks.measure(mixed, 500, ["volatility", "price_error", "volume"], markets=128, warm_up=100, group=None)
    print(f"{count} trend followers beside {news.num_agents} others", found.table(), sep="\n")

# %%
# The fundamental walks as before: what the price moves more, and further away from it, is the trend followers' doing.
# A trader with parameters, memory and a calibration is the subject of the tutorial on your own trader.
#
# A tape
# ------
#
# An engine keeps units per price. A tape plays a market again, order by order, and has every order, cancellation and
# trade with the class of the agent, as columns or files. Here are the last trades, and who traded how much.

tape = ks.Simulator(config, num_markets=256, seed=7).tape(markets=[3], intervals=20).to_pandas()
trades = tape[tape.type == "trade"]
print(
    trades[["time", "order_id", "counterparty_id", "agent_class", "side", "price", "quantity"]]
    .tail()
    .to_string(index=False)
)
print(tape.groupby(["agent_class", "type"], observed=True).quantity.sum().unstack().to_string())

# %%
# Where to go on
# --------------
#
# - All statistics, with formulas and sources: :doc:`/statistics`. Tapes in LOBSTER's form, and data in: :doc:`/tapes`.
# - A posterior of parameters from data: :doc:`/studies/calibration`.
# - Questions that were answered so: :doc:`how often a market should clear </studies/clearing>`, and
#   :doc:`a policy change in mid-flight </studies/policy_change>`.
# - What the model is not: :doc:`/limitations`.
