"""Why the preset `"trading"` is as it is; `python -m kineticsim_env.studies.trading_preset` writes the page in docs/.

A scripted maker quotes 8 units on each side of the mid, the quotes moved against its inventory by `skew` ticks a unit;
after 300 auctions what it holds is unwound through the market. All runs share their seeds, so differences are paired.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from kineticsim_env import statistics
from kineticsim_env.config import MarketConfig
from kineticsim_env.evaluation import liquidate
from kineticsim_env.runtime.files import check_folder
from kineticsim_env.runtime.options import Parser, exit_code, whole
from kineticsim_env.simulator import Simulator
from kineticsim_env.studies import plots
from kineticsim_env.studies.trading_preset_page import page

HALF_SPREADS = (1, 2, 3, 4, 5, 6, 8)
SKEWS = (0.0, 0.04, 0.08, 0.12, 0.2)
SKEW = 0.08  # of the candidates' second row
SIZE, INVENTORY_LIMIT, WARMUP, AUCTIONS = 8, 40, 100, 300
DEPTH_TIMES = (100, 300, 1000, 3000)
SEED = 7 << 32

# The design's candidates and two that lead from them to the preset. All share the options of the preset.
CANDIDATES: dict[str, dict[str, Any]] = {
    "16 agents": dict(
        num_agents=16, noise=0.65, momentum=0.0, maker=0.05, noise_spread=12, walk_prob=0.2, jump_prob=0.01
    ),
    "32 agents": dict(
        num_agents=32, noise=0.65, momentum=0.0, maker=0.05, noise_spread=12, jump_prob=0.01, market_order_prob=0.2
    ),
    "20 agents, one momentum": dict(noise=0.55, momentum=0.05),
    "64 agents, close to the mid": dict(num_agents=64, noise_spread=3, maker_half_spread=1, market_order_prob=0.1),
}
VERDICTS = {
    "16 agents": "a maker earns somewhat more, but there is one built-in maker and no momentum agent: learners in "
    "these roles would have nobody to replace, or would leave the role empty.",
    "32 agents": "the spread is below 3 ticks, and a maker earns less than half.",
    "20 agents, one momentum": "close to the preset, but a learner that takes the place of the one momentum agent "
    "leaves no other; with three of them the herd is there whoever learns.",
    "64 agents, close to the mid": "what one would try first: a spread of hardly more than one tick leaves nothing to "
    "earn and nothing to learn.",
}


class Game(NamedTuple):
    """What one maker did, one value per market."""

    pnl: np.ndarray  # liquidated, ticks x units
    bought: np.ndarray  # units an auction
    sold: np.ndarray
    held: np.ndarray  # mean |inventory|


class Market(NamedTuple):
    """A market without learners."""

    counts: tuple[int, ...]  # agents by class
    spread: statistics.Mean
    two_sided: statistics.Mean
    volatility: statistics.Mean
    depth: dict[int, statistics.Mean]  # resting units of both sides after so many auctions
    deepest: int  # of any market at any of those times


def play(config: MarketConfig, half_spread: int, skew: float, markets: int, engine: str = "auto") -> Game:
    """Let the scripted maker trade, unwind it, and count its money."""
    config = config.replace(inventory_limit=INVENTORY_LIMIT, max_quote_qty=max(SIZE, 4))
    simulator = Simulator(config, markets, engine=engine, seed=SEED, slots=1)
    simulator.run(WARMUP, progress=False)
    quotes = torch.full((markets, 1, 4), SIZE, dtype=torch.int32, device=simulator.device)
    total = torch.zeros((markets, 2), dtype=torch.int64, device=simulator.device)
    held = torch.zeros(markets, dtype=torch.int64, device=simulator.device)
    for _ in range(AUCTIONS):
        mid2, inventory = simulator.mid2, simulator.inventory[:, 0]
        offset = torch.round(skew * inventory.double()).int()
        quotes[:, 0, 0] = (mid2 >> 1) - half_spread - offset
        quotes[:, 0, 2] = ((mid2 + 1) >> 1) + half_spread - offset
        total += simulator.step(quotes)[:, 0]
        held += simulator.inventory[:, 0].abs()
    cash = liquidate(simulator)[:, 0].double() - simulator.fees[:, 0].double() / 1000
    bought, sold = (total.double() / AUCTIONS).T.cpu().numpy()
    return Game(cash.cpu().numpy(), bought, sold, (held.double() / AUCTIONS).cpu().numpy())


def without_learners(config: MarketConfig, markets: int, engine: str = "auto") -> Market:
    """Watch the market itself: books every 10 auctions of the episode, and how deep they grow."""
    simulator = Simulator(config, markets, engine=engine, seed=SEED)
    counts = tuple(int(simulator.rows[f"num_{name}"][0]) for name in ("noise", "momentum", "maker", "fundamental"))
    simulator.run(WARMUP, progress=False)
    spreads, prices = [], []
    for _ in range(AUCTIONS // 10):
        prices.append(simulator.run(10, ("last_price",), progress=False)["last_price"])
        spreads.append(statistics.spread(simulator.bid, simulator.ask))
    stacked = np.stack(spreads)
    return Market(
        counts,
        statistics.mean_and_error(np.nanmean(stacked, axis=0)),
        statistics.mean_and_error((~np.isnan(stacked)).mean(0)),
        statistics.mean_and_error(statistics.volatility(statistics.returns(torch.cat(prices, dim=1)))),
        *_depths(config, min(markets, 1024), engine),
    )


def _depths(config: MarketConfig, markets: int, engine: str) -> tuple[dict[int, statistics.Mean], int]:
    simulator = Simulator(config, markets, engine=engine, seed=SEED)
    depth, deepest, done = {}, 0, 0
    for auctions in DEPTH_TIMES:
        simulator.run(auctions - done, progress=False)
        done = auctions
        resting = simulator.bid.sum(1) + simulator.ask.sum(1)
        depth[auctions] = statistics.mean_and_error(resting)
        deepest = max(deepest, int(resting.max()))
    return depth, deepest


def _draw(folder: Path, config: MarketConfig, games: dict[tuple[float, int], Game], engine: str) -> None:
    """Write the two pictures of the page."""
    simulator = Simulator(config, 512, engine=engine, seed=SEED)
    simulator.run(WARMUP, progress=False)
    series = simulator.run(AUCTIONS, ("last_price", "fundamental", "volume"), progress=False)
    host = {name: values.cpu().numpy() for name, values in series.items()}
    bid, ask, origin = (value.cpu().numpy() for value in (simulator.bid, simulator.ask, simulator.price_origin))
    books = [
        lambda axes, m=market: plots.book(axes, bid[m], ask[m], int(origin[m]), f"Book at the end, market {m}")
        for market in (0, 1)
    ]
    plots.save_panels(
        folder / "trading_market.png",
        [
            lambda axes: plots.price_paths(axes, host["last_price"], host["fundamental"], markets=2),
            lambda axes: plots.traded_volume(axes, host["volume"]),
            *books,
            lambda axes: plots.return_histogram(axes, statistics.returns(host["last_price"])),
            lambda axes: plots.mean_book(axes, bid, ask, simulator.mid2.cpu().numpy() - 2 * origin),
        ],
    )

    def lines(measure: Any, skews: Any = SKEWS) -> dict[str, tuple[list[float], list[float]]]:
        found = {skew: [measure(games[skew, half]) for half in HALF_SPREADS] for skew in skews}
        return {
            f"skew {skew:g}": ([value.mean for value in values], [value.interval() for value in values])
            for skew, values in found.items()
        }

    fills = {
        "bought": lines(lambda game: statistics.mean_and_error(game.bought), (0.0,))["skew 0"],
        "sold": lines(lambda game: statistics.mean_and_error(game.sold), (0.0,))["skew 0"],
    }
    half = "half-spread, ticks"
    pnl = lines(lambda game: statistics.mean_and_error(game.pnl))
    risk = lines(lambda game: statistics.deviation_and_error(game.pnl))
    held = lines(lambda game: statistics.mean_and_error(game.held))
    plots.save_panels(
        folder / "trading_maker.png",
        [
            lambda axes: plots.curves(
                axes, HALF_SPREADS, fills, "Fills without skew", half, "units an auction", ("#b04a35", "#8fb8de")
            ),
            lambda axes: plots.curves(axes, HALF_SPREADS, pnl, "Liquidated PnL", half, "mean, ticks x units"),
            lambda axes: plots.curves(axes, HALF_SPREADS, risk, "Risk", half, "sd over markets, ticks x units"),
            lambda axes: plots.curves(axes, HALF_SPREADS, held, "Inventory", half, "mean of |inventory|, units"),
        ],
    )


def main() -> None:
    """Measure, draw, and write the page."""
    parser = Parser(description=__doc__)
    parser.add_argument(
        "--markets", type=whole(2, 1 << 20), default=4096, help="markets of each maker; candidates get a quarter"
    )
    parser.add_argument("--engine", default="auto", help="as in Simulator")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="folder of the page")
    options = parser.parse_args()
    plots.require_matplotlib()
    check_folder("--docs", options.docs / "images")
    (options.docs / "images").mkdir(parents=True, exist_ok=True)
    preset = MarketConfig.preset("trading")
    others = {name: preset.replace(**changes) for name, changes in CANDIDATES.items()}
    few = max(2, options.markets // 4)
    todo = [(skew, half) for skew in SKEWS for half in HALF_SPREADS]
    bar = tqdm(total=len(todo) + len(others) * 2 * len(HALF_SPREADS), unit="maker")

    def played(config: MarketConfig, half: int, skew: float, markets: int) -> Game:
        bar.update()
        return play(config, half, skew, markets, options.engine)

    games = {(skew, half): played(preset, half, skew, options.markets) for skew, half in todo}
    rivals = {
        name: {(skew, half): played(config, half, skew, few) for skew in (0.0, SKEW) for half in HALF_SPREADS}
        for name, config in others.items()
    }
    bar.close()
    watched = {
        name: without_learners(config, options.markets, options.engine)
        for name, config in {"trading": preset, **others}.items()
    }
    _draw(options.docs / "images", preset, games, options.engine)
    setting = {
        "engine": Simulator(preset, 2, engine=options.engine).engine_name,
        "command": f"python -m kineticsim_env.studies.trading_preset --markets {options.markets}",
        "markets": options.markets,
        "rival_markets": few,
        "seed": "7 * 2^32",
        "size": SIZE,
        "limit": INVENTORY_LIMIT,
        "warmup": WARMUP,
        "auctions": AUCTIONS,
        "skew": SKEW,
        "verdicts": VERDICTS,
    }
    text = page(games, rivals, watched, preset, setting)
    (options.docs / "trading_preset.md").write_text(text)
    print(f"wrote {options.docs / 'trading_preset.md'}")


if __name__ == "__main__":
    sys.exit(exit_code(main))
