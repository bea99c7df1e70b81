"""`python -m scripts.pages.continuous_preset --markets 4096` measures what the preset `"continuous"` was chosen by.

It writes docs/continuous_preset.md and its pictures. What it shares with the page of `"trading"` is in
`trading_preset.py`; here is what only continuous trading asks: latency, queues, and makers that quote at random.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from kineticsim_env.config import MarketConfig
from kineticsim_env.runtime.options import exit_code
from kineticsim_env.statistics import mean_and_error
from kineticsim_env.studies import plots
from kineticsim_env.studies.continuous_preset import PATIENCE, REACH, play_late, play_patient, play_random
from kineticsim_env.studies.trading_preset import Game, play
from scripts.pages import trading_preset
from scripts.pages.continuous_preset_text import page
from scripts.pages.markdown import write_page
from scripts.pages.preset_text import best_of
from scripts.pages.trading_preset import Measured, measure, take_options
from scripts.pages.trading_preset_figures import curves

SKEWS = (0.0, 0.02, 0.04, 0.08, 0.12)
SKEW = 0.04  # of the candidates' second row
IN_TRADING = (0.04, 5)  # skew and half-spread of the best maker on docs/trading_preset.md

CANDIDATES: dict[str, dict[str, Any]] = {
    "the agents of `trading`": dict(
        num_agents=20, noise=0.45, momentum=0.15, maker=0.10, fundamental=0.30, noise_spread=14, maker_half_spread=8,
        taker_offset=1, market_order_prob=0.4, walk_prob=0.4, jump_prob=0.02, jump_size=4, cancel_prob=0.4,
    ),
    "takers one tick from the mid": dict(taker_offset=1),
    "jumps of 7 ticks": dict(jump_size=7),
    "twice the noise": dict(noise=0.40, fundamental=0.35),
}  # fmt: skip
VERDICTS = {
    "the agents of `trading`": "market orders sweep a book of which little rests. The spread is wide, the price swings "
    "and comes back, and quotes far from the mid earn most: a maker earns ten times as much, at little risk.",
    "takers one tick from the mid": "who knows the fundamental rests inside the spread, which is below 3 ticks.",
    "jumps of 7 ticks": "random quotes earn nothing, but no maker earns much, and risk is several times the profit.",
    "twice the noise": "there is more to earn, but random quotes earn a larger share of it.",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, draw, and write the page."""
    options = take_options(arguments, __doc__)
    preset = MarketConfig.preset("continuous")
    others = {name: preset.replace(**changes) for name, changes in CANDIDATES.items()}
    found = measure("continuous", others, SKEWS, SKEW, options)
    skew, _ = best_of(found.games, [skew for skew in SKEWS if skew])
    markets, engine, halves = options.markets, options.engine, trading_preset.HALF_SPREADS
    bar = tqdm(total=4 * len(halves) + len(others) + 3, unit="maker")

    def counted(game: Game) -> Game:
        bar.update()
        return game

    interval = int(preset.interval or 0)
    late = {(0, half): found.games[skew, half] for half in halves}
    for latency in (interval // 2, interval):
        for half in halves:
            late[latency, half] = counted(play_late(preset, half, skew, latency, markets, engine))
    patient = {
        (keeps, half): counted(play_patient(preset, half, skew, keeps, markets, engine))
        for keeps in (True, False)
        for half in halves
    }
    few = found.setting["rival_markets"]
    random = {"continuous": counted(play_random(preset, markets, engine))}
    random |= {name: counted(play_random(config, few, engine)) for name, config in others.items()}
    trading = MarketConfig.preset("trading")
    in_trading = (
        counted(play_random(trading, markets, engine)),
        counted(play(trading, IN_TRADING[1], IN_TRADING[0], markets, engine)),
    )
    bar.close()
    draw(options.output / "images", found, late, patient)
    setting = {**found.setting, "verdicts": VERDICTS, "interval": interval, "patience": PATIENCE, "reach": REACH}
    text = page(found, late, patient, random, in_trading, setting)
    write_page(options.output, "continuous_preset", text)


def draw(
    folder: Path,
    found: Measured,
    late: Mapping[tuple[int, int], Game],
    patient: Mapping[tuple[bool, int], Game],
) -> None:
    """Write the page's third picture: what latency costs, and what a place in a queue is worth."""
    halves = sorted({half for _, half in found.games})

    def line(games: Mapping[Any, Game], which: Any, name: str = "pnl") -> tuple[list[float], list[float]]:
        values = [getattr(games[which, half], name) for half in halves]
        means = [mean_and_error(value) for value in values]
        return [mean.mean for mean in means], [mean.interval() for mean in means]

    latencies = {f"{events} events late": line(late, events) for events in sorted({events for events, _ in late})}
    places = {"keeps its place": line(patient, True), "loses it": line(patient, False)}
    gained = [mean_and_error(patient[True, half].pnl - patient[False, half].pnl) for half in halves]
    fills = [
        mean_and_error(
            patient[True, half].bought
            + patient[True, half].sold
            - patient[False, half].bought
            - patient[False, half].sold
        )
        for half in halves
    ]
    differences = {"liquidated PnL": ([mean.mean for mean in gained], [mean.interval() for mean in gained])}
    units = {"fills": ([mean.mean for mean in fills], [mean.interval() for mean in fills])}
    half, pnl = "half-spread, ticks", "mean, ticks x units"
    plots.save_panels(
        folder / "continuous_time.png",
        [
            lambda axes: curves(axes, halves, latencies, "Quotes that arrive late", half, pnl),
            lambda axes: curves(axes, halves, places, "Patient quotes", half, pnl, (plots.BUY, plots.SELL)),
            lambda axes: curves(
                axes, halves, differences, "What a place is worth: PnL", half, "kept less lost, paired"
            ),
            lambda axes: curves(
                axes, halves, units, "What a place is worth: fills", half, "kept less lost, units per interval"
            ),
        ],
    )


if __name__ == "__main__":
    sys.exit(exit_code(main))
