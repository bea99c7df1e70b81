"""
A first market
==============

Open a few hundred markets, let them trade, and look at one of them: its price, its book, its returns.
"""

# %%
# A market is a :class:`~kineticsim_env.MarketConfig`; the preset ``trading`` is one of call auctions, in which twenty
# agents trade. Some of them know the fundamental price, which walks and jumps; the others do not. (The environments'
# default is another preset, ``news``: :doc:`/studies/presets`.)

import matplotlib.pyplot as plt
import numpy as np

import kineticsim_env as ks

config = ks.MarketConfig.preset("trading")
sim = ks.Simulator(config, num_markets=256, seed=7)
print(sim)

# %%
# One call runs all markets, and records what it is asked for: a tensor ``[markets, auctions]`` for each name. They are
# torch tensors on the engine's device, so that on a GPU nothing is copied unless you do it.

series = sim.run(500, record=("last_price", "fundamental", "volume"))
price = series["last_price"].cpu().numpy()
fundamental = series["fundamental"].cpu().numpy()
volume = series["volume"].cpu().numpy()
print("last_price:", price.shape, price.dtype)
print(f"units traded in an auction: {volume.mean():.1f}")

# %%
# The price follows the fundamental, which nobody is told but the fundamental agents: their orders carry it into the
# price. A market maker whose quotes are behind it pays for that.

figure, (above, below) = plt.subplots(2, 1, figsize=(8, 5), sharex=True, height_ratios=(3, 1))
auctions = np.arange(1, 501)
above.step(auctions, price[0], where="mid", lw=0.8, color="#8fb8de", label="last price")
above.plot(auctions, fundamental[0], lw=1.6, color="#0d4377", label="fundamental")
above.set(ylabel="ticks", title="Market 0")
above.legend(loc="upper left", ncols=2)
below.bar(auctions, volume[0], width=1.0, color="#b9c4cf")
below.set(xlabel="auction", ylabel="units traded")
plt.show()

# %%
# ``bid`` and ``ask`` are the resting quantities on each market's price grid, live. The grid follows the price, so a
# tick's price is its place on the grid plus ``price_origin``.

bid, ask = sim.bid[0].cpu().numpy(), sim.ask[0].cpu().numpy()
ticks = np.arange(config.num_levels) + int(sim.price_origin[0])
shown = slice(np.flatnonzero(bid + ask)[0] - 2, np.flatnonzero(bid + ask)[-1] + 3)

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2))
left.bar(ticks[shown], bid[shown], color="#1f6fb4", label="bids")
left.bar(ticks[shown], ask[shown], color="#c8452f", label="asks")
left.set(xlabel="price, ticks", ylabel="resting units", title="Book of market 0")
left.legend()

changes = np.diff(price, axis=1)
values, counts = np.unique(changes, return_counts=True)
right.semilogy(values, counts / counts.sum(), "o", ms=3, color="#1f6fb4", label="all markets")
grid = np.linspace(values[0], values[-1], 300)
deviation = changes.std()
normal = np.exp(-0.5 * (grid / deviation) ** 2) / (deviation * np.sqrt(2 * np.pi))
right.semilogy(grid, normal, color="#555555", lw=1.2, label=f"normal, deviation {deviation:.1f}")
right.set(xlabel="change of the price, ticks", ylabel="share", title="Returns")
right.set_ylim(0.3 / counts.sum(), 20)  # room for the legend
right.legend()
plt.show()

# %%
# The same seed gives the same market on every engine, and market 3 of 256 is the market of seed 7 + 3 alone. So a
# market found interesting among thousands can be looked at by itself.

alone = ks.Simulator(config, seed=10)
again = alone.run(500, record=("last_price",))["last_price"].cpu().numpy()
print("the same prices:", np.array_equal(again[0], price[3]))
