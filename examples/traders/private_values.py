"""Zero intelligence with private values: what a call auction makes of traders who know nothing but their own value.

    python examples/traders/private_values.py
    python examples/traders/private_values.py --markets 1024 --picture private_values.png

After D. K. Gode and S. Sunder, "Allocative Efficiency of Markets with Zero-Intelligence Traders", Journal of Political
Economy 101 (1993): 119-137. Each buyer has a value for one unit, each seller a cost. Every auction is a period of its
own: each trader gives one order at a random price, and what does not trade is cancelled. Traders with a budget
constraint never bid above their value nor offer below their cost; those without one do.
"""

import argparse

import numpy as np
from tqdm import tqdm

import kineticsim_env as ks
from kineticsim_env import plots, statistics

LOW, HIGH = 1, 126  # prices that traders name
SIDE = 20  # buyers, and as many sellers


@ks.agent(value=64, buys=1, constrained=1, reach=1000, memory={"limit": 0})
def private_value(market, own, draw):
    """Gives an order for one unit within `reach` ticks of its value; remembers its price."""
    if own.constrained == 0:
        own.limit = 1 + draw.below(126)
    elif own.buys:
        own.limit = own.value - draw.below(1 + min(own.reach, own.value - 1))
    else:
        own.limit = own.value + draw.below(1 + min(own.reach, 126 - own.value))
    return ks.order(1 if own.buys else -1, own.limit, 1)


# Values of buyers and costs of sellers, by the shape of demand and supply.
VALUES = 110 - 4 * np.arange(SIDE)
CURVES = {"symmetric": (VALUES, 18 + 4 * np.arange(SIDE)), "flat supply": (VALUES, np.full(SIDE, 40))}
# What traders do: (constrained, reach).
RULES = {"no constraint": (0, 0), "constrained": (1, 1000), "within 20 ticks": (1, 20), "at their value": (1, 0)}


def equilibrium(values: np.ndarray, costs: np.ndarray) -> tuple[float, int, int]:
    """Return price, units and surplus where demand meets supply; the price is the middle of what clears."""
    bids, asks = np.sort(values)[::-1], np.sort(costs)
    units = int(np.sum(bids >= asks))
    above = [asks[units - 1], *bids[units : units + 1]]
    below = [bids[units - 1], *asks[units : units + 1]]
    return (max(above) + min(below)) / 2, units, int((bids - asks)[:units].sum())


def surplus(limit: np.ndarray, worth: np.ndarray, volume: np.ndarray) -> np.ndarray:
    """Return what one auction's trades were worth, float64 `[M]`.

    Who traded follows from the orders: on each side those at the best prices. Of those at the last price that trades
    nobody is preferred, so each counts by its share.

    Args:
        limit: Prices of the orders, int `[M, 2 * SIDE]`, buyers first.
        worth: Values and costs, likewise.
        volume: Units traded, `[M]`.
    """
    total = np.zeros(len(limit))
    for side, sign in ((slice(0, SIDE), 1), (slice(SIDE, None), -1)):
        offered = sign * limit[:, side]  # the best is the largest
        last = np.take_along_axis(-np.sort(-offered, axis=1), np.maximum(volume - 1, 0)[:, None], axis=1)
        better, at = offered > last, offered == last
        share = (volume - better.sum(1)) / at.sum(1)
        total += sign * (worth[:, side] * (better + at * share[:, None])).sum(1) * (volume > 0)
    return total


def measure(markets: int, auctions: int, engine: str = "auto") -> dict[tuple[str, str], dict[str, np.ndarray]]:
    """Play every rule under every curve side by side in one ensemble; return statistics `[M]` of each pair."""
    pairs = [(curve, rule) for curve in CURVES for rule in RULES]
    worth = np.repeat([np.concatenate(CURVES[curve]) for curve, _ in pairs], markets, axis=0)
    rules = np.repeat([RULES[rule] for _, rule in pairs], markets, axis=0)
    mixture = ks.mix(2 * SIDE, value=worth, buys=[1] * SIDE + [0] * SIDE, constrained=rules[:, :1], reach=rules[:, 1:])
    config = ks.MarketConfig(
        num_agents=0, agents={private_value: mixture}, init_depth=0, cancel_prob=1.0, tie="mid", rounding="coin"
    )
    sim = ks.Simulator(config, engine=engine, seed=1)
    price, volume, gained = [], [], []
    for _ in tqdm(range(auctions), unit="auction", desc="private values", delay=2, leave=False):
        series = sim.run(1, record=("last_price", "volume"))
        price.append(series["last_price"][:, 0].cpu().numpy())
        volume.append(series["volume"][:, 0].cpu().numpy())
        limit = sim.memory["private_value"]["limit"].cpu().numpy()  # [M, agents]
        gained.append(surplus(limit, worth, volume[-1]))
    found = {}
    for place, (curve, rule) in enumerate(pairs):
        rows = slice(place * markets, (place + 1) * markets)
        at, units, most = equilibrium(*CURVES[curve])
        prices = np.array(price)[:, rows].T
        found[curve, rule] = {
            "price": prices.mean(1) - at,
            "alpha": 100 * np.sqrt(((prices - at) ** 2).mean(1)) / at,
            "volume": 100 * np.array(volume)[:, rows].mean(0) / units,
            "efficiency": 100 * np.array(gained)[:, rows].mean(0) / most,
        }
    return found


def table(found: dict[tuple[str, str], dict[str, np.ndarray]]) -> str:
    """Return the statistics of every rule under every curve, in Markdown."""
    heads = ("curves", "orders", "price less equilibrium, ticks", "Smith's alpha, %", "units, % of equilibrium",
             "efficiency, %")  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "| --- | --- |" + " ---: |" * 4]
    for (curve, rule), values in found.items():
        means = [statistics.mean_and_error(values[name]) for name in ("price", "alpha", "volume", "efficiency")]
        shown = " | ".join(f"{mean.mean:.2f} ± {mean.interval():.2f}" for mean in means)
        lines.append(f"| {curve} | {rule} | {shown} |")
    return "\n".join(lines)


def draw_picture(path: str, found: dict[tuple[str, str], dict[str, np.ndarray]]) -> None:
    """Draw efficiency and price under each rule."""
    colours = dict(zip(CURVES, (plots.BUY, plots.SELL), strict=True))

    def panel(name: str, title: str, label: str):
        def draw(axes) -> None:
            for curve in CURVES:
                values = [statistics.mean_and_error(found[curve, rule][name]) for rule in RULES]
                plots.means(axes, range(len(RULES)), values, colours[curve], curve, lw=1)
            axes.set(title=title, ylabel=label)
            axes.set_xticks(range(len(RULES)), RULES)
            axes.axhline(100 if name == "efficiency" else 0, color="#999999", lw=0.6)
            axes.legend()

        return draw

    plots.save_panels(
        path,
        (
            panel("efficiency", "Allocative efficiency", "surplus, % of the largest"),
            panel("price", "Price", "mean price less equilibrium, ticks"),
        ),
    )


def main(arguments: list[str] | None = None) -> dict[tuple[str, str], dict[str, np.ndarray]]:
    """Play the markets, print a table and draw a picture if one is asked for."""
    parser = argparse.ArgumentParser(description="Zero intelligence with private values, after Gode and Sunder (1993).")
    parser.add_argument("--markets", type=int, default=128, help="per rule and curve")
    parser.add_argument("--auctions", type=int, default=500, help="each a period of its own")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--picture", help="where a picture goes; needs matplotlib")
    options = parser.parse_args(arguments)
    if options.picture:
        plots.check_picture("--picture", options.picture)

    found = measure(options.markets, options.auctions, options.engine)
    print(
        f"{options.markets} markets of each kind, {options.auctions} auctions; ± is half of a 95% interval over markets"
    )
    print(table(found))
    if options.picture:
        draw_picture(options.picture, found)
    return found


if __name__ == "__main__":
    main()
