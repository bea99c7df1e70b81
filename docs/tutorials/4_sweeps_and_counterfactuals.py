"""
Sweeps and counterfactuals
==========================

Fields of a market may differ from market to market, so that a parameter sweep is one call. And the same market can be
played twice, with an order and without it: what differs is what the order did.
"""

# %%
# A sweep
# -------
#
# Five shares of fundamental agents, 400 markets each, in one ensemble of 2,000. What fundamental agents gain in
# share, noise agents lose.

import matplotlib.pyplot as plt
import numpy as np
import torch

import kineticsim_env as ks

shares = np.array([0.0, 0.1, 0.2, 0.3, 0.4])
fundamental = np.repeat(shares, 400)
config = ks.MarketConfig.preset("trading", fundamental=fundamental, noise=0.75 - fundamental)
sim = ks.Simulator(config, seed=0)
print(sim)

series = sim.run(400, record=("last_price", "fundamental", "volume"))
price, value = (series[name].double().view(5, 400, 400) for name in ("last_price", "fundamental"))
gap = (price - value)[:, :, 100:].abs().mean(2).cpu().numpy()  # [share, market]
mean, half_width = gap.mean(1), ks.statistics.half_width(gap.std(1, ddof=1) / 400**0.5, 400)  # 95% intervals
for share, middle, half in zip(shares, mean, half_width, strict=True):
    print(f"fundamental share {share:.1f}: price is off by {middle:6.2f} ± {half:.2f} ticks")

# %%
# Where nobody knows the fundamental, the price ignores it.

figure, axes = plt.subplots(figsize=(6, 3.4))
axes.errorbar(shares, mean, yerr=half_width, fmt="o-", capsize=3, color="#1f6fb4")
axes.set(xlabel="share of fundamental agents", ylabel="mean distance, ticks")
axes.set_title("How far the price is from the fundamental")
axes.set_yscale("log")
axes.set_xticks(shares)
plt.show()

# %%
# A counterfactual
# ----------------
#
# One agent is added to each of 1,000 markets, and buys 10 units in each of 4 auctions, at any price.
# ``counterfactual`` plays that, and the same markets in which it does nothing. All other agents draw the same
# random numbers in both, so that the two are the same market but for the order and for what it set off.

orders = torch.zeros((4, 1, 1, 4), dtype=torch.int32)  # [decision, 1: all markets alike, trader, 4]
orders[..., 0] = 2**30  # the bid's price: any
orders[..., 1] = 10  # its units; the last two of an order are the offer's
config = ks.MarketConfig.preset("trading")
both = ks.counterfactual(config, orders, num_markets=1000, seed=0, warmup=100, after=36)
print(f"units bought per market: {both.with_agent.fills[..., 0].sum(0).double().mean():.1f}")

mean, half_width = (half_ticks / 2 for half_ticks in both.mean_difference("mid2"))
print(f"impact after the fourth: {mean[3]:.1f} ± {half_width[3]:.1f} ticks; at the end {mean[-1]:.1f}")

# %%
# On the left one market with its clone. On the right the mean over all of them: the impact builds up while the trader
# buys, and is gone some auctions later, as the fundamental agents know that nothing happened to the value.

# sphinx_gallery_thumbnail_number = 2
figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.5))
auctions = np.arange(1, 41)
for arm, name, colour in (
    (both.with_agent, "with the order", "#1f6fb4"),
    (both.without_agent, "without", "#555555"),
):
    path = [both.arrival[7].item(), *arm.series["mid2"][7].tolist()]  # twice the mid of market 7
    left.plot([0, *auctions], np.array(path) / 2, color=colour, lw=1.2, label=name)
left.axvspan(0.5, 4.5, color="#f0bd7d", alpha=0.3, lw=0)
left.set(xlabel="auction", ylabel="mid price, ticks", title="Market 7")
left.legend()
right.axhline(0, color="#999999", lw=0.8)
right.errorbar(auctions, mean, yerr=half_width, fmt="o", ms=3, capsize=2, color="#1f6fb4")
right.axvspan(0.5, 4.5, color="#f0bd7d", alpha=0.3, lw=0)
right.set(xlabel="auction", ylabel="ticks", title="Impact on the mid, 95% intervals")
plt.show()

# %%
# What the clone is good for: without it one would compare with other markets, and the noise of both would be in the
# difference. What is left against the clone is what the order set off, as the others draw the same numbers around
# another mid. The ratio of the two variances, after one auction, four and forty:

ratio = both.variance_ratio("mid2")
print([f"{ratio[auction - 1]:.2f}" for auction in (1, 4, 40)])

# %%
# :doc:`/studies/price_impact` measures blocks of all sizes like this, with ``kineticsim_env.block_impact``.
