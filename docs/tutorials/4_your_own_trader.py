"""
Your own trader
===============

From a trader of five lines to a market of chartists and fundamentalists whose returns are calibrated. What may be
written, and what each name means: :doc:`/custom_trader`.
"""

# %%
# Five lines
# ----------
#
# A class of agents is a function of what a trader sees, has and draws, which returns an order. This one buys or sells
# as a coin falls, within three ticks of the mid. All numbers are whole numbers.

import matplotlib.pyplot as plt
import numpy as np

import kineticsim_env as ks
from kineticsim_env import statistics


@ks.agent()
def dice(market, own, draw):
    side = 1 if draw.coin() else -1
    return ks.order(side, market.near_mid(draw.offset(3)), 1 + draw.below(4))


# %%
# A market of thirty of them alone, and a hundred such markets. The function is compiled once; on a GPU it becomes a
# part of the kernel.

sim = ks.Simulator(ks.MarketConfig(num_agents=0, agents={dice: 30}), num_markets=100, seed=0)
price = sim.run(300, record=("last_price",))["last_price"].cpu().numpy()
print(f"deviation of returns: {statistics.arrays.volatility(statistics.arrays.returns(price)).mean():.2f} ticks")

# %%
# A parameter, and a memory
# -------------------------
#
# Arguments of ``ks.agent`` are parameters, which the function finds in ``own``. ``memory`` is what each agent keeps
# from decision to decision, and what that begins with. This trader remembers the mid when it last came, and how far the
# price is above its own moving average, in 64ths: in whole units ``//``, which rounds down, would leave the average
# below a constant price for ever.


@ks.agent(lookback=16, memory={"last": "mid2", "gap": 0})
def chartist(market, own, draw):
    own.gap += 64 * (market.mid2 - own.last) - own.gap // own.lookback
    own.last = market.mid2
    side = 1 if own.gap > 0 else -1
    return ks.order(side, market.near_mid(side), 1 + draw.below(4))


# %%
# Three of them, with lookbacks of their own, beside the twenty built-in agents of the preset ``trading``. These draw
# the same random numbers as without them, so that what differs is what chartists make of it.

alone = ks.MarketConfig.preset("trading")
mixed = alone.replace(agents={chartist: ks.mix(3, lookback=[4, 16, 64])})
figure, axes = plt.subplots(figsize=(8, 3.2))
for config, name, colour in ((alone, "twenty built-in agents", "#555555"), (mixed, "and three chartists", "#1f6fb4")):
    sim = ks.Simulator(config, num_markets=100, seed=0)
    series = sim.run(300, record=("last_price", "fundamental"))
    price = series["last_price"].cpu().numpy()
    found = statistics.mean_and_error(statistics.arrays.autocorrelation(statistics.arrays.returns(price)))
    print(f"{name}: autocorrelation of returns {found.mean:.2f} ± {found.interval():.2f}")
    axes.plot(price[0], lw=0.8, color=colour, label=name)
axes.plot(series["fundamental"][0].cpu().numpy(), lw=1.6, color="#d9912b", label="fundamental price")
axes.set(xlabel="auction", ylabel="ticks", title="Market 0")
axes.legend()
plt.show()

# %%
# A trader who forecasts
# ----------------------
#
# After Chiarella and Iori (2002): everyone expects something of the price, out of the way to its fundamental value, the
# trend, and luck, and buys below or sells above that, by a margin. ``informed=True`` shows the fundamental price. Each
# ``word`` of a draw is a random number of its own.


@ks.agent(value=4, trend=4, luck=8, lookback=20, news=16, margin=24, informed=True, memory={"last": "mid2", "gap": 0})
def forecaster(market, own, draw):
    own.gap += 64 * (market.mid2 - own.last) - own.gap // own.lookback
    own.last = market.mid2
    to_value = 64 * (2 * market.fundamental - market.mid2)  # in 128ths of a tick, like the next two
    along = max(min(own.gap, 1280), -1280)  # no trend is believed for more than ten ticks
    news = 128 * (draw.offset(own.news, word=1) + draw.offset(own.news, word=2))
    change = (own.value * to_value + own.trend * along + own.luck * news) // (own.value + own.trend + own.luck)
    side = 1 if change > 0 else -1
    price = (64 * market.mid2 + change) // 128 - side * draw.below(own.margin)
    return ks.order(side, price, 1 + draw.below(4, word=3))


def market(**parameters):
    """Return a continuous market of fifty forecasters and nobody else; an interval is a hundred orders."""
    return ks.MarketConfig(
        num_agents=0,
        agents={forecaster: ks.mix(50, **parameters)},
        arrivals="clock",
        mechanism="continuous",
        interval=100,
        beat=25,
        num_levels=1024,
        init_price=512,
        window=32,
        cancel_prob=0.02,
        walk_prob=0.5,
        jump_prob=1.0,
        jump_size=3,
    )


# %%
# A sweep in one ensemble
# -----------------------
#
# A parameter may be an array with one row per market. Five weights of the trend by five sizes of the news, twelve
# markets of each, all at once.

trends, sizes, each = [0, 2, 4, 6, 8], [12, 14, 16, 18, 20], 12
grid = np.array([(trend, news) for trend in trends for news in sizes]).repeat(each, axis=0)
sim = ks.Simulator(market(trend=grid[:, :1], news=grid[:, 1:]), seed=0)
sim.run(50)
price = sim.run(1000, record=("last_price",))["last_price"].cpu().numpy()
change = statistics.arrays.returns(price)
shape = (len(trends), len(sizes), each)
kurtosis = np.median(statistics.arrays.excess_kurtosis(change).reshape(shape), axis=2)
correlation = statistics.arrays.autocorrelation(change).reshape(shape).mean(2)

figure, panels = plt.subplots(1, 2, figsize=(8.4, 3.4))
for axes, values, title in zip(
    panels, (kurtosis, correlation), ("Excess kurtosis, median", "Autocorrelation, lag 1"), strict=True
):
    image = axes.imshow(values, origin="lower", cmap="Blues")
    axes.set(title=title, xlabel="size of the news, ticks", ylabel="weight of the trend")
    axes.set_xticks(range(len(sizes)), sizes)
    axes.set_yticks(range(len(trends)), trends)
    figure.colorbar(image, ax=axes)
plt.show()

# %%
# A calibrated market
# -------------------
#
# Say that returns should have an excess kurtosis of 4, in the median market, and no autocorrelation. The point that is
# nearest, each measured by how much it varies over the grid, is then played with seeds that have not been looked at.

off = np.abs(kurtosis - 4) / kurtosis.std() + np.abs(correlation) / correlation.std()
row, column = np.unravel_index(off.argmin(), off.shape)
chosen = {"trend": trends[row], "news": sizes[column]}
print("chosen:", chosen)

sim = ks.Simulator(market(**chosen), num_markets=100, seed=ks.run_seed(1))
sim.run(50)
change = statistics.arrays.returns(sim.run(1000, record=("last_price",))["last_price"])
tails = statistics.bootstrap_interval(statistics.arrays.excess_kurtosis(change), lambda drawn: np.median(drawn, axis=1))
print(f"excess kurtosis {tails.value:.1f}, 95% interval {tails.low:.1f} to {tails.high:.1f}")
for name, series in (("returns", change), ("their sizes", np.abs(change))):
    for lag in (1, 5):
        found = statistics.mean_and_error(statistics.arrays.autocorrelation(series, lag))
        print(f"autocorrelation of {name}, lag {lag}: {found.mean:.2f} ± {found.interval():.2f}")

# %%
# What fits and what does not, with error bars and beside the literature: :doc:`/studies/traders`. The class is one
# of agents like any other, so learners can trade against it, and take the place of one: :doc:`/custom_trader`.
