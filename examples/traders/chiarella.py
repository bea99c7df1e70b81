"""Fundamentalists, chartists and noise in one continuous market: which of the stylised facts need whom.

    python examples/traders/chiarella.py
    python examples/traders/chiarella.py --markets 256 --picture chiarella.png

After C. Chiarella and G. Iori, "A simulation analysis of the microstructure of double auction markets", Quantitative
Finance 2 (2002): 346-353, and C. Chiarella, G. Iori and J. Perello, "The impact of heterogeneous trading rules on the
limit order book and order flows", Journal of Economic Dynamics and Control 33 (2009): 525-537. Every trader forecasts
the price: part of the forecast is the way to the fundamental price, part follows the trend that it has seen, part is
luck; each weighs them in its own way. It buys if it expects more, sells if less, at a limit between the forecast and
some margin. The same markets are run without chartists and with more and more of them.
"""

import argparse

import numpy as np
from tqdm import tqdm

import kineticsim_env as ks
from kineticsim_env import plots, statistics

TRADERS = 50
WARMUP, LAGS = 100, 30
MEASURED = {
    "deviation": "volatility",
    "kurtosis": "kurtosis",
    "acf": f"autocorrelation(lag={[*range(1, LAGS + 1)]})",
    "acf_size": f"abs_autocorrelation(lag={[*range(1, LAGS + 1)]})",
    "with_volume": "volume_volatility",
}
# Mean weights of the fundamental price and of the trend, beside 8 of luck.
MARKETS = {"luck alone": (0, 0), "fundamentalists": (4, 0), "some chartists": (4, 4), "more chartists": (4, 8)}


@ks.agent(
    value=4, trend=4, luck=8, lookback=20, cap=10, news=16, margin=24, max_qty=4,
    informed=True, memory={"last": "mid2", "gap": 0},
)  # fmt: skip
def forecaster(market, own, draw):
    """Orders by what it expects of the price, in 128ths of a tick, each part by its weight."""
    own.gap += 64 * (market.mid2 - own.last) - own.gap // own.lookback  # how far the price is above its average
    own.last = market.mid2
    to_value = 64 * (2 * market.fundamental - market.mid2)
    along = max(min(own.gap, 128 * own.cap), -128 * own.cap)
    news = 128 * (draw.offset(own.news, word=1) + draw.offset(own.news, word=2))
    change = own.value * to_value + own.trend * along + own.luck * news
    change //= own.value + own.trend + own.luck
    forecast = (64 * market.mid2 + change) // 128
    side = 1 if change > 0 else -1
    return ks.order(side, forecast - side * draw.below(own.margin), 1 + draw.below(own.max_qty, word=3))


def ensemble(markets: int, seed: int = 0) -> ks.MarketConfig:
    """Return so many markets of each kind, whose traders draw their own weights, exponentially distributed."""
    rng = np.random.default_rng(seed)
    means = np.repeat(np.array(list(MARKETS.values())), markets, axis=0)  # [M, 2]
    spread = rng.exponential(size=(2, markets, TRADERS))  # the same traders in each kind
    value, trend = (np.rint(means[:, i, None] * np.tile(spread[i], (len(MARKETS), 1))).astype(int) for i in (0, 1))
    return ks.MarketConfig(
        num_agents=0,
        agents={forecaster: ks.mix(TRADERS, value=value, trend=trend)},
        arrivals="clock",
        mechanism="continuous",
        interval=2 * TRADERS,
        beat=TRADERS // 2,
        num_levels=1024,
        init_price=512,
        window=32,
        cancel_prob=0.02,
        walk_prob=0.5,
        jump_prob=1.0,  # steps of 3 at every beat, so nearly normal over an interval: fat tails are the traders' own
        jump_size=3,
    )


def measure(markets: int, intervals: int, engine: str = "auto") -> dict[str, dict[str, np.ndarray]]:
    """Play all kinds side by side; return the statistics of each kind, `[markets]` or `[markets, lags]`."""
    sim = ks.Simulator(ensemble(markets), engine=engine, seed=np.tile(np.arange(markets), len(MARKETS)))
    sim.run(WARMUP)
    parts = []
    for begin in tqdm(range(0, intervals, 100), desc="intervals", unit_scale=100, delay=2, leave=False):
        parts.append(sim.run(min(100, intervals - begin), record=("last_price", "volume", "fundamental")))
    series = {name: np.concatenate([part[name].cpu().numpy() for part in parts], axis=1) for name in parts[0]}
    found = {}
    for place, kind in enumerate(MARKETS):
        rows = slice(place * markets, (place + 1) * markets)
        price, volume = series["last_price"][rows], series["volume"][rows]
        measured = statistics.measure_series({"last_price": price, "volume": volume}, MEASURED)
        found[kind] = {
            "price": price,
            "change": statistics.arrays.returns(price),
            "long": statistics.arrays.excess_kurtosis(statistics.arrays.returns(price[:, ::16])),
            "distance": np.abs(price - series["fundamental"][rows]).mean(1),
            **{name: value.value for name, value in measured.items()},
        }
    return found


ROWS = (  # what it is called, where it is found, and of which lag
    ("deviation of returns, ticks", "deviation", None),
    ("distance from the fundamental, ticks", "distance", None),
    ("excess kurtosis of returns", "kurtosis", None),
    ("excess kurtosis of returns over 16 intervals", "long", None),
    ("autocorrelation of returns, lag 1", "acf", 1),
    ("autocorrelation of returns, lag 5", "acf", 5),
    ("autocorrelation of \\|returns\\|, lag 1", "acf_size", 1),
    ("autocorrelation of \\|returns\\|, lag 5", "acf_size", 5),
    ("autocorrelation of \\|returns\\|, lag 20", "acf_size", 20),
    ("correlation of \\|returns\\| with volume", "with_volume", None),
)


def mean(found: dict[str, np.ndarray], name: str, lag: int | None = None) -> statistics.Mean:
    """Return a statistic's mean over markets, with its error."""
    return statistics.mean_and_error(found[name] if lag is None else found[name][:, lag - 1])


def shown(found: dict[str, np.ndarray], name: str, lag: int | None) -> str:
    """Return a statistic's mean with its 95% interval: of kurtosis, whose tail is heavy, a bootstrap's."""
    if name in ("kurtosis", "long"):
        bounds = statistics.bootstrap_interval(found[name])
        return f"{bounds.value:.1f} ({bounds.low:.1f} to {bounds.high:.1f})"
    value = mean(found, name, lag)
    return f"{value.mean:.2f} ± {value.interval():.2f}"


def table(found: dict[str, dict[str, np.ndarray]]) -> str:
    """Return the statistics of every kind of market, in Markdown."""
    lines = [f"|  | {' | '.join(found)} |", "| --- |" + " ---: |" * len(found)]
    for title, name, lag in ROWS:
        lines.append(f"| {title} | {' | '.join(shown(kind, name, lag) for kind in found.values())} |")
    return "\n".join(lines)


def draw_picture(path: str, found: dict[str, dict[str, np.ndarray]]) -> None:
    """Draw one market, the distribution of returns, and autocorrelations of returns and of their sizes."""
    colours = dict(zip(found, (plots.GREY, "#d9912b", plots.BUY, plots.SELL), strict=True))

    def paths(axes) -> None:
        for kind in list(found)[1:]:
            axes.plot(found[kind]["price"][0, :400], lw=0.8, color=colours[kind], label=kind)
        axes.set(xlabel="interval", ylabel="last price, ticks", title="One market")
        axes.legend()

    def tails(axes) -> None:
        grid = np.arange(0.0, 8.0, 0.25)
        for kind, values in found.items():
            change = values["change"] / values["change"].std(1, keepdims=True)
            axes.semilogy(grid, [(np.abs(change) > x).mean() for x in grid], color=colours[kind], label=kind)
        axes.set(xlabel="size of a return, deviations", ylabel="share of larger ones", title="Tails")
        axes.set_ylim(1e-6, 1)
        axes.legend()

    def correlations(name: str, title: str):
        def draw(axes) -> None:
            lags = range(1, LAGS + 1)
            for kind, values in found.items():
                plots.means(axes, lags, [mean(values, name, lag) for lag in lags], colours[kind], kind, lw=1)
            axes.axhline(0, color="#999999", lw=0.6)
            axes.set(xlabel="lag, intervals", ylabel="autocorrelation", title=title)
            axes.legend()

        return draw

    plots.save_panels(
        path, (paths, tails, correlations("acf", "Returns"), correlations("acf_size", "Sizes of returns"))
    )


def main(arguments: list[str] | None = None) -> dict[str, dict[str, np.ndarray]]:
    """Play the markets, print a table and draw a picture if one is asked for."""
    parser = argparse.ArgumentParser(description="Fundamentalists, chartists and noise in one continuous market.")
    parser.add_argument("--markets", type=int, default=64, help="of each kind")
    parser.add_argument("--intervals", type=int, default=2000, help="of 100 orders each")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--picture", help="where a picture goes; needs matplotlib")
    options = parser.parse_args(arguments)
    if options.picture:
        plots.check_picture("--picture", options.picture)

    found = measure(options.markets, options.intervals, options.engine)
    print(f"{options.markets} markets of each kind, {options.intervals} intervals; intervals are 95%, over markets")
    print(table(found))
    if options.picture:
        draw_picture(options.picture, found)
    return found


if __name__ == "__main__":
    main()
