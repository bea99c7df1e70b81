"""The words of docs/calibration.md, around what `scripts/pages/calibration.py` found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scipy.stats import kstwo

from scripts.pages.markdown import table, wrapped

_PAGE = """# Calibration

<!-- Written by `{command}`; edit scripts/pages/calibration_text.py instead. -->

Which parameters make a market behave like this? `ks.calibrate` takes statistics, or a series of prices, and a space of
parameters, and returns a posterior distribution: how probable each point of the space is, given what was seen. It
simulates points of the space as a [sweep](sweeps.md), and [sbi](https://sbi.readthedocs.io) trains a network on them
that turns statistics into parameters (neural posterior estimation, Greenberg et al. 2019).

```python
import kineticsim_env as ks

space = {{"noise_spread": (2, 20)}}
hidden = ks.MarketConfig.preset("trading", noise_spread=14)
target = ks.measure(hidden, 200, ["volatility", "volume"], markets=1, seed=1000)

found = ks.calibrate(target, space, market="trading", simulations=400, held_out=50)
low, high = found.interval(0.99)["noise_spread"]
assert low <= 14 <= high
print(found)  # a table: the posterior, the target beside the simulations, and the check
market = found.config()  # a MarketConfig, of the best point
```

`pip install "kineticsim-env[calibrate]"` brings sbi and what it needs. From the command line:

```bash
python -m kineticsim_env calibrate examples/calibrate.toml --output posterior.json --plot posterior.png
```

## The target

| given | what is fitted |
| --- | --- |
| `{{"volatility": 2.9, "autocorrelation(lag=[1, 5])": [-0.1, 0.0]}}` | these [statistics](statistics.md) |
| what `ks.measure` returned, of one group | the same, with its length and its number of markets |
| prices in whole ticks, `[S]` or `[M, S]` | statistics of the series, by the same formulas; `statistics` chooses them |
| `{{"last_price": ..., "volume": ...}}` | the same of several series |

A table such as pandas' is its columns, `last_price` and `volume` by name. Prices are whole ticks: divide them by the
tick, and round. What `ks.measure` returned knows its texts; where it measured functions of yours, hand them over as
`statistics` again. In a file, `target` is a table of statistics, or the name of a CSV file whose columns are series.

Statistics are named as for `ks.measure`. A posterior is as wide as the target is uncertain: a market of 200 intervals
says less than one of 20,000. So simulated markets have as many `intervals` as the target was measured over, and, if
it is a mean over M markets, `replicates=M`.

## The space

A name is a field of `MarketConfig`, or `"class.parameter"` of a class that you have written, with a range; before
anything is seen each value in it is equally likely, with `"scale": "log"` each logarithm, and of whole numbers each
number. `market` is what is known.

## The result

- `found.samples`: draws from the posterior by parameter; `found.to_pandas()`; `found.interval(0.9)`.
- `found.best`: the draw where the posterior is densest (its mode, not its mean), in the scales of the space.
- `found.config()`: the market of the best point; `found.config(17)` of a draw; `found.config({{...}})` of any.
- `found.of(target)`: the posterior of another target, by the same network, in a second.
- `found.draw("posterior.png")` and `found.draw_check("check.png")`: the pictures of this page.

Does the market then show the target? Draws are a space of a sweep:

```python
import kineticsim_env as ks

series = ks.Simulator(ks.MarketConfig.preset("trading"), 1, seed=1000).run(300, ("last_price", "volume"))
statistics = ["volatility", "volume"]
space = {{"noise_spread": (2, 20), "market_order_prob": {{"low": 0.05, "high": 0.5, "scale": "log"}}}}
found = ks.calibrate(series, space, statistics=statistics, market="trading", simulations=400, held_out=0)
points = {{name: values[:100] for name, values in found.samples.items()}}
again = ks.sweep(points, 300, statistics, market="trading", design="list").to_pandas()
print(found.target["volatility"], again["volatility"].quantile([0.05, 0.95]).tolist())
```

## What is assumed

- Statistics are standardised: asinh((value - median) / spread), the spread from quantiles of the simulations, so that a
few markets with heavy tails do not set the scale.
- A point whose market does not define a statistic (NaN), or stops, is left out, and `left_out` counts it. The target
defines all of them, and p(parameters | statistics) at values that are defined does not depend on points that have none.
With fewer than half of the points left, the call is refused with the statistics that are to blame.
- Beyond what the simulations show the network knows nothing: a target outside 98% of them is warned of.
- The posterior is of markets of this model. No parameter makes it real ([limitations](limitations.md)).
- With one seed, the CPU gives the same result every time; a GPU nearly so.

## The check

Of `held_out` points, which the network has not seen, parameters are known. **Recovered** is the share of a parameter's
variance that posterior means explain. **Ranks**: among draws from a posterior, the true parameter is as likely at any
place (simulation-based calibration, Talts et al. 2018). **Coverage**: the densest region that holds 80% of a posterior
has the true parameters in 80% of the points (Hermans et al. 2022). A network that has learned too little or too much by
heart fails here; more simulations help.

## Measured

{measured}

{phases}

{found}

![the posterior: marginals, and pairs](images/calibration.png)

{checked}

![parameters found again, ranks and coverage](images/calibration_check.png)
"""


def page(record: Mapping[str, Any]) -> str:
    """Return the page."""
    records = [record, *record.get("also", ())]
    measured = " ".join(
        ("With" if each is record else "And with") + f" `{each['command']}`, {each['engine']} engine, "
        f"{each['machine']}: a market of `{each['preset']}` whose parameters are known, {each['intervals']:,} "
        f"intervals, from {each['simulations']:,} simulations."
        for each in records
    )
    heads = ("seconds", *(f"{each['simulations']:,}, {each['machine'].partition(',')[0]}" for each in records))
    seconds = [(name, *(f"{each['seconds'][name]:.1f}" for each in records)) for name in record["seconds"]]
    phases = table(heads, seconds, [False] + [True] * len(records))
    rows = []
    for name, (low, high) in record["interval90"].items():
        values = (record["truth"][name], record["best"][name], record["mean"][name])
        shown = (f"{value:.4g}" for value in values)
        rows.append((f"`{name}`", *shown, f"{low:.4g} to {high:.4g}", f"{record['recovered'][name]:.2f}"))
    heads = ("parameter", "true", "best", "mean", "90% within", "recovered")
    paragraphs = _PAGE.format(
        command=record["command"],
        measured=measured,
        phases=phases,
        found=table(heads, rows, [False] + [True] * 5),
        checked=" ".join(_checked(each, len(records) > 1) for each in records),
    ).split("\n\n")
    return "\n\n".join(_broken(part) for part in paragraphs)


def _checked(record: Mapping[str, Any], several: bool) -> str:
    """Say what a check found: of ranks Kolmogorov and Smirnov's distance, that of which `p_values` has the p value."""
    errors = ", ".join(
        f"`{name}` {kstwo.isf(value, record['held_out']):.3f} (p = {value:.2g})"
        for name, value in record["p_values"].items()
    )
    covered = ", ".join(f"{value:.1%} of {float(level):.0%}" for level, value in record["coverage"].items())
    learned = f" with {record['simulations']:,} simulations" if several else ""
    return (
        f"Of {record['held_out']:,} held-out points{learned}, coverage was {covered}. The shares of ranks depart from "
        f"uniform ones by at most: {errors}."
    )


def _broken(part: str) -> str:
    """Break lines of text; of a list, whose items may have several lines, each item's."""
    if part.startswith("- "):
        items = part.replace("\n- ", "\0- ").split("\0")
        return "\n".join(wrapped(" ".join(item.split())) for item in items)
    code = part.startswith(("|", "```", "low, ", "found = ", "space", "    ")) or "\n```" in part or "= ks." in part
    return part if code else wrapped(part)
