"""The words of docs/calibration.md, around what `scripts/pages/calibration.py` found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scipy.stats import kstwo

from scripts.pages.markdown import table, wrapped

_WHOLE = "ks.calibrate"  # of the seconds, the last

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
print(found)  # a table: the posterior, the target beside what the posterior predicts, and the checks
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
- `found.predicted`: what markets of the posterior show; `found.reach`: how near simulations come to the target.
- `found.draw("posterior.png")`, `found.draw_check("check.png")` and `found.draw_predicted("predicted.png")`: the
pictures of this page.

## Does the market then show the target?

Every calibration ends with a posterior predictive check (Gelman, Meng and Stern 1996): 200 draws from the posterior
are simulated, with seeds of their own, and their statistics stand beside the target, as a table and as a picture. p
is the share of them as far out as the target, on both sides. Where a p is small the posterior misses that statistic,
whatever its width.

```python
import kineticsim_env as ks

series = ks.Simulator(ks.MarketConfig.preset("trading"), 1, seed=1000).run(300, ("last_price", "volume"))
statistics = ["volatility", "volume"]
space = {{"noise_spread": (2, 20), "market_order_prob": {{"low": 0.05, "high": 0.5, "scale": "log"}}}}
found = ks.calibrate(series, space, statistics=statistics, market="trading", simulations=400, held_out=0)
for name, (low, high) in found.predicted.interval(0.9).items():
    print(name, found.target[name], low, high, found.predicted.p_values[name])
points = {{name: values[:100] for name, values in found.samples.items()}}  # or a sweep of your own
again = ks.sweep(points, 300, statistics, market="trading", design="list").to_pandas()
```

## Targets out of reach

No point of a space may show a target: what a network says of it is a guess, and often a narrow one. So each target is
compared with the simulations first, by two measures: its distance to the nearest simulation (Euclidean, of
standardised statistics without correlations), and how far a statistic is beyond all of them. Both are compared with
the same measures of the simulations themselves, each beside all others. The shares of simulations as far out are
conformal p-values (Bates et al. 2023): whatever the distributions, a target that the model made has one of 0.01 or
less at most once in a hundred calibrations, for each measure. A target that has is **out of reach**. Then there is a
warning, and neither an interval nor a best point: `samples` and `best` are empty, and what asks for them is refused.

```python
import warnings

import kineticsim_env as ks

target = {{"volatility": 5.0, "traded": 0.029}}  # these markets trade in every interval
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it says so, too
    found = ks.calibrate(target, {{"noise_spread": (2, 20)}}, 200, market="trading", simulations=400, held_out=50)
assert not found.reach.within and found.reach.missed == ("traded",)
print(found.reach)  # the distance, and which statistics are out of reach
near = found.config(found.reach.nearest)  # the market of the nearest simulation
back = found.of({{**target, "traded": 1.0}})  # another target, by the same network
print(back.best)
```

`reach.missed` are the statistics beyond all simulations; or, if each is seen but not all together, those that differ
from the nearest simulation by more than the others let expect. A wider space, another preset, or fewer statistics may
help.

This page said before that a target outside 98% of the simulations is warned of. That was all: the posterior came with
a narrow interval and a best point even where nothing in the space was like the target.

## What is assumed

- Statistics are standardised: asinh((value - median) / spread), the spread from quantiles of the simulations, so that a
few markets with heavy tails do not set the scale.
- A point whose market does not define a statistic (NaN), or stops, is left out, and `left_out` counts it. The target
defines all of them, and p(parameters | statistics) at values that are defined does not depend on points that have none.
With fewer than half of the points left, the call is refused with the statistics that are to blame.
- Beyond what the simulations show the network knows nothing: see above, of targets out of reach.
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

{predicted}

![the target, beside what the posterior predicts and what all simulations show](images/calibration_predicted.png)

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
    names = dict.fromkeys(name for each in records for name in each["seconds"])
    seconds = [
        (name, *(f"{each['seconds'][name]:.1f}" if name in each["seconds"] else "-" for each in records))
        for name in (*(name for name in names if name != _WHOLE), _WHOLE)
    ]
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
        predicted=_predicted(next(each for each in records if each.get("predicted90"))),
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
    out = record.get("out_of_reach")
    reached = "" if out is None else f" As targets, {out:.1%} of them would be called out of reach."
    return (
        f"Of {record['held_out']:,} held-out points{learned}, coverage was {covered}. The shares of ranks depart from "
        f"uniform ones by at most: {errors}.{reached}"
    )


def _predicted(record: Mapping[str, Any]) -> str:
    """Return the posterior predictive check as a table, and what was found of a market that the space has not."""
    rows = []
    for name, (low, high) in record["predicted90"].items():
        least, most = record["simulated"][name]
        p_value = f"{record['predicted_p_values'][name]:.2f}"
        rows.append(
            (
                f"`{name}`",
                f"{record['target'][name]:.3g}",
                f"{low:.3g} to {high:.3g}",
                p_value,
                f"{least:.3g} to {most:.3g}",
            )
        )
    heads = ("statistic", "target", "posterior predicts, 5% to 95%", "p", "simulated, 1% to 99%")
    other = record["other"]
    missed = ", ".join(f"`{name}`" for name in other["missed"])
    why = "beyond all simulations" if other["beyond"] else "not together in any simulation"
    found = (
        f"it is out of reach: {missed} ({why})"
        if not other["within"]
        else "it is within reach, as the page did not expect"
    )
    return (
        f"What the posterior of the {record['simulations']:,} simulations predicts, in 200 markets:\n\n"
        f"{table(heads, rows, [False] + [True] * 4)}\n\n"
        f"A market of `{other['preset']}`, which no point of this space is, was asked of the same network: {found}. "
        f"The nearest simulation is {other['distance']:.3g} away, where 99% of simulations are within "
        f"{other['usual']:.3g} of another."
    )


def _broken(part: str) -> str:
    """Break lines of text; of a list, whose items may have several lines, each item's."""
    if part.startswith("- "):
        items = part.replace("\n- ", "\0- ").split("\0")
        return "\n".join(wrapped(" ".join(item.split())) for item in items)
    code = part.startswith(("|", "```", "low, ", "found = ", "space", "    ")) or "\n```" in part or "= ks." in part
    return part if code else wrapped(part)
