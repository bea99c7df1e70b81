"""Which field has an effect when: what the table says, played. Dead ones change no bit, live ones change something."""

import random

import numpy as np
import pytest
from agent_classes import copied_noise, insider, trend_follower
from ensembles import KINDS, random_ensemble
from strategies import FURTHER, SERIES
from thorough import covering, examples

import kineticsim_env as ks
from kineticsim_env.config import PRESETS, checked_field
from kineticsim_env.engines.effects import effect_of
from kineticsim_env.runtime import build
from kineticsim_env.runtime.fields import CLASSES, REGIME_FIELDS
from kineticsim_env.sweeps.markets import FIELDS
from kineticsim_env.sweeps.plans import make_plan

ENGINE = "numpy" if build.cpu_unavailable() else "cpu"
RECORDED = tuple(name for name in (*SERIES, *FURTHER) if name != "fundamental")
FAR = {  # two values of each field, as far apart as all presets have them
    "num_levels": [128, 512], "num_agents": [10, 60], **dict.fromkeys(CLASSES, [0.1, 0.9]),
    "init_price": [40, 90], "init_depth": [0, 100], "max_order_qty": [1, 50], "noise_spread": [0, 40],
    "market_order_prob": [0.0, 1.0], "maker_half_spread": [0, 20], "walk_prob": [0.0, 1.0], "jump_prob": [0.01, 0.9],
    "jump_size": [1, 12], "cancel_prob": [0.0, 0.9], "window": [4, 62], "tie": ["lowest", "mid"],
    "residue": ["rest", "cancel"], "fundamental_price": [30, 90], "population": ["fixed", "multinomial"],
    "max_quote_qty": [0, 100], "inventory_limit": [0, 100], "fee": [0, 900], "rounding": ["even", "coin"],
    "reference": ["mid", "fundamental"], "taker_offset": [0, 20], "taker_fee": [0, 900], "tax": [0, 5],
    "collar": [0, 1], "tick_size": [1, 8], "arrivals": ["each", "clock"], "interval": [5, 60], "beat": [3, 200],
    "mechanism": ["call", "continuous"], "quote_latency": [0, 40], "orders_per_side": [1, 3],
    "regime_switch_prob": [0.0, 1.0],
    "regimes": [({"max_order_qty": 1},), ({"max_order_qty": 50},)], "agents": [{}, {copied_noise: 9}],
    "flow": ["btcusd", None], "interval_ms": [1.0, 2.0], "quote_latency_ms": [0.0, 2.0],
    "agent_prob": [0.0, 0.5],
}  # fmt: skip
OF_AGENTS = {"size": [1, 900], "largest": [1, 900], "parts": [1, 300], "most_parts": [1, 300], "reach": [0, 12],
             "count": [0, 12]}  # fmt: skip
NO_CLOCK = {"interval": "None where arrivals is 'each'", "beat": "None where arrivals is 'each'",
            "mechanism": "'call' where arrivals is 'each'", "taker_fee": "0 where mechanism is 'call'",
            "quote_latency": "0 where mechanism is 'call'", "orders_per_side": "1 where mechanism is 'call'",
            "regime_switch_prob": "0"}  # fmt: skip
NO_BEAT = {
    "regime_switch_prob": "0",
    "num_agents": "a number where num_agents differs",
    "arrivals": "'call' where arrivals is 'each'",
}
ON_BEATS = {"arrivals": "None where arrivals is 'each'|'call' where arrivals is 'each'"}
REFUSED = {  # what these presets refuse to be varied alone
    "paper": NO_CLOCK,
    "trading": NO_CLOCK,
    "continuous": NO_BEAT,
    "news": ON_BEATS,
    "realistic": ON_BEATS,
}
OF_FLOWS = {
    "flow": "None where arrivals is",
    "interval_ms": "None where arrivals",
    "quote_latency_ms": "0 where arrivals",
    "agent_prob": "0 where arrivals",
}
REFUSED = {preset: refused | OF_FLOWS for preset, refused in REFUSED.items()}


# The preset "paper" where few agents trade by the grid's end, so that what acts there is seen, and with a window.
NEAR_THE_END = {"preset": "paper", "num_agents": 12, "init_price": 126, "window": 63}


def plan_of(market, name, values, watched=False, replicates=40):
    """Return a plan of a field's values, and whether somebody records the fundamental with it."""
    statistics = ["price_error" if watched else "volume"]
    return make_plan({name: list(values)}, 80, statistics, market=market, replicates=replicates, design="list")


def told(plan, name):
    """Return whether a plan's field has an effect in any of its points."""
    configs = [config for _, config in plan.configs(plan.design.rows(0, plan.points))]
    return any(effect_of(config, name, plan.series).there.any() for config in configs)


def played(plan, record):
    """Return what each point's markets record, `[points, replicates * intervals]` by series, and their books' depth."""
    found = {}
    for places, config in plan.configs(plan.design.rows(0, plan.points)):
        config = config.repeated(plan.replicates)
        sim = ks.Simulator(config, len(places) * plan.replicates, engine=ENGINE, seed=plan.seeds(places))
        series = sim.run(plan.intervals, record, progress=False)
        for i, place in enumerate(places):
            mine = slice(i * plan.replicates, (i + 1) * plan.replicates)
            found[int(place)] = [values[mine].numpy().tobytes() for values in series.values()]
    return [found[place] for place in sorted(found)]


def check(market, name, values, watched=False):
    plan = plan_of(market, name, values, watched)
    points = played(plan, (*RECORDED, "fundamental") if watched else RECORDED)
    has_effect = told(plan, name)
    assert has_effect == any(point != points[0] for point in points), (
        f"{name}: said to have {'an' if has_effect else 'no'} effect"
    )
    return has_effect


def names_of(preset):
    """Return all that can vary in a preset with two values of it."""
    regimes = len(PRESETS[preset].get("regimes", ()))
    names = {name: FAR[name] for name in FIELDS if name not in REFUSED[preset]}
    names |= {f"regimes[{i}].{field}": FAR[field] for i in range(regimes) for field in REGIME_FIELDS}
    if "agents" in PRESETS[preset]:
        names |= {f"order_splitter.{parameter}": values for parameter, values in OF_AGENTS.items()}
    return names


@covering
@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("preset", PRESETS)
def test_the_table_is_true_of_every_field_of_every_preset(preset, watched):
    assert set(FAR) == set(FIELDS)
    market = NEAR_THE_END if preset == "paper" else preset
    effects = {name: check(market, name, values, watched) for name, values in names_of(preset).items()}
    assert not any(effects.get(name) for name in ("fee", "taker_fee", "quote_latency", "inventory_limit"))
    assert effects["noise"] and effects["cancel_prob"]


@pytest.mark.parametrize("preset", PRESETS)
def test_what_a_preset_refuses_is_refused_by_its_config(preset):
    for name, allowed in REFUSED[preset].items():
        with pytest.raises(ValueError, match=rf"^\w+: expected ({allowed}).*got"):
            for _ in plan_of(preset, name, FAR[name]).configs({name: np.array(FAR[name])}):
                pass


CASES = [  # a market, a name, and whether it has an effect
    ("news", "jump_size", False),
    ("news", "jump_prob", False),
    ("news", "regimes[2].jump_size", True),
    ("news", "regimes[2].jump_prob", True),
    ("news", "regimes[0].jump_size", False),  # as it never jumps there
    ("realistic", "jump_size", False),
    ("realistic", "regimes[7].jump_size", True),
    ("realistic", "rounding", False),
    ("realistic", "taker_offset", False),
    ("realistic", "order_splitter.reach", True),
    ({"preset": "realistic", "agents": {"kineticsim_env.traders:order_splitter": 0}}, "order_splitter.reach", False),
    ({"preset": "trading", "fundamental": 0.0, "noise": 0.75}, "jump_size", False),
    ({"preset": "trading", "fundamental": 0.0, "noise": 0.75, "agents": {insider: 3}}, "jump_size", True),
    ({"preset": "trading", "jump_prob": 0.0}, "jump_size", False),
    ({"preset": "trading", "jump_prob": 1e-6}, "jump_size", False),  # rounded to 0 of 65536
    ({"preset": "trading", "market_order_prob": 1.0}, "noise_spread", False),
    ({"preset": "trading", "market_order_prob": 1.0, "maker": 0.0, "noise": 0.55}, "tax", False),
    ({"preset": "trading", "market_order_prob": 0.0}, "residue", False),
    ({"preset": "trading", "maker": 0.0, "noise": 0.55}, "maker_half_spread", False),
    ({"noise": 1.0, "momentum": 0.0, "maker": 0.0}, "population", False),
    ({"noise": 1.0, "momentum": 0.0, "maker": 0.0}, "noise", False),
    (
        {"noise": 1.0, "momentum": 0.0, "maker": 0.0, "arrivals": "clock", "interval": 30, "beat": 10},
        "num_agents",
        False,
    ),
    ({"preset": "trading", "num_agents": 0, "agents": {trend_follower: 9}}, "noise_spread", False),
    ({"preset": "trading", "num_agents": 0, "agents": {copied_noise: 9}}, "noise_spread", True),
    ({"preset": "trading", "num_agents": 0, "agents": {copied_noise: 9}}, "noise", False),
    (  # nobody sees the fundamental price in regimes[0], and all do where regimes[1] goes on with it
        {
            "noise": 1.0,
            "momentum": 0.0,
            "maker": 0.0,
            "reference": "fundamental",
            "market_order_prob": 1.0,
            "window": 9,
            "regimes": [{}, {"market_order_prob": 0.5}],
            "regime_switch_prob": 0.2,
        },
        "regimes[0].walk_prob",
        True,
    ),
    ({"regimes": [{"noise_spread": 3}], "regime_switch_prob": 0.5}, "regime_switch_prob", False),
    ({"regimes": [{"noise_spread": 3}, {}]}, "regime_switch_prob", False),  # which is the same, as it is 3 besides
    ({"regimes": [{"noise_spread": 9}, {}]}, "regime_switch_prob", True),
    ({"regimes": [{"noise_spread": 9}, {}]}, "noise_spread", True),
    ({"regimes": [{"noise_spread": 9}, {"noise_spread": 3}]}, "noise_spread", False),
]


@pytest.mark.parametrize(("market", "name", "wanted"), CASES)
def test_what_is_overridden_absent_or_off_has_no_effect(market, name, wanted):
    values = FAR.get(name.rpartition(".")[2], OF_AGENTS.get(name.rpartition(".")[2]))
    assert check(market, name, values) == wanted


@pytest.mark.parametrize("kind", KINDS, ids=" ".join)
def test_what_is_said_to_have_no_effect_changes_no_bit_of_random_markets(kind):
    dead = 0
    for seed in range(examples(120)):
        rng = random.Random(f"{kind} {seed}")
        fields, _ = random_ensemble(rng, *kind, markets=1, per_market=False)
        if rng.random() < 0.4:
            fields["agents"] = {rng.choice([copied_noise, trend_follower, insider]): rng.choice([0, 2])}
        if not fields.get("num_agents", 256) and not fields.get("agents"):
            continue
        names = {name: FAR[name] for name in FIELDS if name not in ("regimes", "agents", "flow")}
        names |= {
            f"regimes[{i}].{name}": FAR[name] for i in range(len(fields.get("regimes") or ())) for name in REGIME_FIELDS
        }
        for name, values in names.items():
            plan = plan_of(fields, name, values, replicates=3)
            try:
                if told(plan, name):
                    continue
                first, *others = played(plan, RECORDED)
            except (ValueError, ks.MarketError):  # what these fields refuse together, and books that overflow
                continue
            assert all(other == first for other in others), f"{name} of {fields}"
            dead += 1
    assert dead > examples(120) * 5


def test_the_words_of_an_effect():
    config = ks.MarketConfig.preset("news")
    found = effect_of(config, "jump_size")
    assert found.why_not == "regimes[2] has its own, and else jump_prob is 0"
    assert found.instead == "'regimes[2].jump_size'"
    found = effect_of(ks.MarketConfig.preset("realistic"), "jump_prob")
    assert found.why_not == "every regime has its own" and found.instead.startswith(
        "'regimes[0].jump_prob', 'regimes[1]."
    )
    assert effect_of(config, "tie")[1:] == ("continuous trading holds no auctions", "mechanism='call'")
    assert effect_of(config, "fee")[1:] == (
        "only slots of learners feel it, and here are none",
        "a field that built-in agents feel",
    )
    each = effect_of(ks.MarketConfig.preset("trading", jump_prob=[0.0, 0.1]), "jump_size")
    assert np.array_equal(each.there, [False, True])  # per market
    assert checked_field("regimes", PRESETS["news"]["regimes"]) == config.regimes
