"""Trend followers, with a memory of their own, in a market that follows a fundamental price.

    python examples/traders/trend_follower.py
    python examples/traders/trend_follower.py --counts 0 4 8 --picture trend_follower.png

The same markets are played with more and more trend followers. Built-in agents draw the same random words in all of
them, and the fundamental price takes the same path, so that differences are what trend followers make of it.
"""

import argparse

import numpy as np
from tqdm import tqdm

import kineticsim_env as ks
from kineticsim_env import plots, statistics

LAGS = 20


@ks.agent(lookback=16, threshold=4, max_qty=4, memory={"last": "mid2", "gap": 0})
def trend_follower(market, own, draw):
    """Buys what has risen above its own moving average, and sells what has fallen below it."""
    # How far the price is above the average, in 64ths of mid2: in whole units the average would stop short of the
    # price by what // rounds down.
    own.gap += 64 * (market.mid2 - own.last) - own.gap // own.lookback
    own.last = market.mid2
    if abs(own.gap) <= 64 * own.threshold:
        return ks.no_order()
    side = 1 if own.gap > 0 else -1
    return ks.order(side, market.near_mid(side), 1 + draw.below(own.max_qty), marketable=draw.chance(0.1))


def market_with(count: int) -> ks.MarketConfig:
    """Return the preset `trading` with so many trend followers, each of which looks back a time of its own."""
    lookback = np.linspace(4, 33, count).round().astype(int)
    return ks.MarketConfig.preset("trading", agents={trend_follower: ks.mix(count, lookback=lookback)})


def measure(count: int, markets: int, auctions: int, engine: str = "auto") -> dict[str, np.ndarray]:
    """Play markets with so many trend followers; return paths `[M, auctions]` and statistics `[M]` or `[M, lags]`."""
    sim = ks.Simulator(market_with(count), markets, engine=engine, seed=1)
    series = sim.run(auctions, record=("last_price", "fundamental", "volume"), progress=False)
    price, fundamental, volume = (series[name].cpu().numpy() for name in ("last_price", "fundamental", "volume"))
    late = slice(auctions // 5, None)  # the opening is left out
    names = {"deviation": "volatility", "acf": f"autocorrelation(lag={[*range(1, LAGS + 1)]})"}
    measured = statistics.measure_series({"last_price": price[:, late]}, names)
    return {
        "price": price,
        "fundamental": fundamental,
        **{name: value.value for name, value in measured.items()},
        "distance": np.abs(price - fundamental)[:, late].mean(1),
        "volume": volume[:, late].mean(1),
    }


def table(found: dict[int, dict[str, np.ndarray]]) -> str:
    """Return the statistics by the number of trend followers, in Markdown."""
    heads = ("trend followers", "deviation of returns, ticks", "distance from the fundamental, ticks",
             "units per auction", "autocorrelation of returns, lag 1", "lag 2", "lag 5")  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|" + " ---: |" * len(heads)]
    for count, values in found.items():
        columns = [values["deviation"], values["distance"], values["volume"]]
        columns += [values["acf"][:, lag - 1] for lag in (1, 2, 5)]
        means = [statistics.mean_and_error(column) for column in columns]
        shown = " | ".join(f"{mean.mean:.2f} ± {mean.interval():.2f}" for mean in means)
        lines.append(f"| {count} | {shown} |")
    return "\n".join(lines)


def draw_picture(path: str, found: dict[int, dict[str, np.ndarray]]) -> None:
    """Draw one market without and with the most trend followers, and autocorrelations for every count."""
    most = max(found)
    shades = {count: str(0.75 - 0.75 * place / max(1, len(found) - 1)) for place, count in enumerate(found)}

    def paths(axes) -> None:
        shown = slice(0, 200)
        axes.plot(found[most]["fundamental"][0, shown], color="#d9912b", lw=1.6, label="fundamental")
        for count, colour in ((min(found), plots.GREY), (most, plots.BUY)):
            axes.plot(found[count]["price"][0, shown], color=colour, lw=0.9, label=f"price, {count} trend followers")
        axes.set(xlabel="auction", ylabel="ticks", title="One market")
        axes.legend()

    def correlations(axes) -> None:
        for count, values in found.items():
            means = [statistics.mean_and_error(values["acf"][:, lag]) for lag in range(LAGS)]
            plots.means(axes, np.arange(1, LAGS + 1), means, shades[count], f"{count}", lw=1)
        axes.axhline(0, color="#999999", lw=0.6)
        axes.set(xlabel="lag, auctions", ylabel="autocorrelation of returns", title="By the number of trend followers")
        axes.set_xticks(range(0, LAGS + 1, 5))
        axes.legend()

    plots.save_panels(path, (paths, correlations))


def main(arguments: list[str] | None = None) -> dict[int, dict[str, np.ndarray]]:
    """Play the markets, print a table and draw a picture if one is asked for."""
    parser = argparse.ArgumentParser(description="Trend followers in a market that follows a fundamental price.")
    parser.add_argument("--counts", type=int, nargs="+", default=[0, 2, 4, 6], help="of trend followers per market")
    parser.add_argument("--markets", type=int, default=256)
    parser.add_argument("--auctions", type=int, default=1000)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--picture", help="where a picture goes; needs matplotlib")
    options = parser.parse_args(arguments)
    if options.picture:
        plots.check_picture("--picture", options.picture)

    found = {
        count: measure(count, options.markets, options.auctions, options.engine)
        for count in tqdm(options.counts, desc="counts", delay=2, leave=False)
    }
    print(f"{options.markets} markets, {options.auctions} auctions; ± is half of a 95% interval over markets")
    print(table(found))
    if options.picture:
        draw_picture(options.picture, found)
    return found


if __name__ == "__main__":
    main()
