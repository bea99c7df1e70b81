"""Decisions that fills and moves of the touch end: known answers.

A simulator that is played one event at a time, with the same quotes, says when a decision has to end. That engines
agree in random environments: test_decisions_agree.py; resets, saved states and bad input: test_decision_states.py.
"""

import numpy as np
import pytest
import torch
from env_helpers import draw_actions, launch, make_cores
from reference.words import bits, episode_key, scaled, word
from strategies import every_engine
from test_keep_actions import ONLY_SLOTS

import kineticsim_env as ks
from kineticsim_env.envs.infos import info_of_one
from kineticsim_env.tasks import ManyLearnersTask
from kineticsim_env.tasks.base import ROLES

WORD_STAGGER = (1 << 30) + 3
OFFSETS = [0, 1, 2, 3, 4, 6, 8]  # of a maker's choices, 0 being none
both_rules = pytest.mark.parametrize("decide", ["fill", "touch"])
COLD = {"bank_size": 0, "warmup": 0}
SETTINGS = {
    "auctions_per_step",
    "autoreset_mode",
    "stagger",
    "account_info",
    "late",
}  # that `make` takes beside the task's


def make(engine, decide, roles=("maker",), markets=3, preset="continuous", interval=8, **settings):
    """An environment in which a decision has up to `interval` events, twice as many with two auctions per step."""
    kwargs = {name: settings.pop(name) for name in SETTINGS & settings.keys()} | {"slots": (None,) * len(roles)}
    task = ManyLearnersTask(decide=decide, **COLD | {"horizon": 5, "action_type": "discrete"} | settings)
    config = ks.MarketConfig.preset(preset, interval=interval, quote_latency=kwargs.pop("late", 0))
    (core,) = make_cores((config, markets, task, list(roles)), {"stagger": False} | kwargs, (engine,))
    return core


def hold(core):
    """Play a decision without quotes."""
    launch([core], {"choices": torch.zeros(core.simulator.num_markets, len(core.roles), dtype=torch.int64)})


def at_random(core, generator):
    launch([core], draw_actions(core, generator, 0.0))


def seen(core, name="observation"):
    """The column of the decision's events, [M]; alike in all slots."""
    column = core.tensors[name][..., -1].cpu()
    assert bool((column == column[:, :1]).all())
    return column[:, 0]


def events(core):
    return core.tensors["decision_events"].tolist()


# One event at a time --------------------------------------------------------------------------------------------------


def touch(sim):
    """Absolute best bid and best ask of the built-in book of a simulator's only market; None where there is none."""
    bid, ask = sim.bid[0].nonzero().flatten().tolist(), sim.ask[0].nonzero().flatten().tolist()
    origin = int(sim.tensors["price_origin"][0])
    return bid[-1] + origin if bid else None, ask[0] + origin if ask else None


def play_alone(sim, quotes, decide, most):
    """Play one market to the end of a decision of up to `most` events; return how many it took, and the fills."""
    before, fills = touch(sim), torch.zeros(1, 1, 2, dtype=torch.int64)
    for event in range(1, most + 1):
        fills += sim.step(quotes if event == 1 else None)
        if bool(fills.any()) if decide == "fill" else touch(sim) != before:
            break
    return event, fills


@every_engine
@both_rules
@pytest.mark.parametrize("late", [0, 5, 40])
def test_a_decision_is_some_events_of_a_simulator(engine, decide, late):
    """Each market to its own end: 3 decisions of up to 16 events in an episode, or more that are shorter."""
    core = make(engine, decide, horizon=3, auctions_per_step=2, late=late, autoreset_mode="disabled")
    core.reset(8)
    alone = [ks.Simulator(core.config, 1, engine="numpy", seed=8 + m, slots=1) for m in range(3)]
    generator, taken, lengths = np.random.default_rng(3), [0, 0, 0], set()
    while not bool(core.tensors["done"].any()):
        choices = generator.integers(1, 49, (3, 1))
        mids, volumes = core.tensors["mid_history"][:, 0].tolist(), core.simulator.tensors["volume"].cpu().clone()
        core.step(choices=torch.from_numpy(choices).to(core.device))
        for m, sim in enumerate(alone):
            (bid, ask), mid2 = divmod(int(choices[m, 0]), 7), mids[m]
            quote = [mid2 // 2 - OFFSETS[bid], 8 * (bid > 0), (mid2 + 1) // 2 + OFFSETS[ask], 8 * (ask > 0)]
            quote = [quote[0] * (bid > 0), quote[1], quote[2] * (ask > 0), quote[3]]
            count, fills = play_alone(sim, torch.tensor([[quote]], dtype=torch.int32), decide, min(16, 48 - taken[m]))
            taken[m] += count
            assert events(core)[m] == count and core.fills[m].tolist() == fills[0].tolist()
            assert core.tensors["volume_history"][m, 0] == sim.tensors["volume"][0] - volumes[m]
            assert core.tensors["mid_history"][m, 0] == sim.mid2[0] and core.tensors["mid_history"][m, 1] == mid2
            for name, tensor in sim.tensors.items():
                assert torch.equal(tensor[0], core.simulator.tensors[name][m].cpu()), (m, name)
            lengths.add(count)
        assert core.tensors["elapsed"].tolist() == core.simulator.tensors["t"].tolist() == taken
        assert seen(core).tolist() == [count / 16 for count in events(core)]
    assert (late == 40 or len(lengths) > 4) and (max(taken) == 48) == bool(core.tensors["truncated"].any())


# By hand --------------------------------------------------------------------------------------------------------------


def pencil(engine, decide, qty=8, roles=("maker", "trader"), fields=None, **given):
    """8 units rest at 7 and at 9, and only slots act: a trader's choice 5 buys at up to 9. Decisions have 5 events."""
    config = ks.MarketConfig(**ONLY_SLOTS | {"interval": 5} | (fields or {}))
    given = COLD | {"horizon": 4, "action_type": "discrete", "max_qty": qty} | given
    kwargs = {"slots": ("noise", *[None] * (len(roles) - 1)), "stagger": False, "autoreset_mode": "disabled"}
    arguments = (config, 1, ManyLearnersTask(decide=decide, **given), list(roles))
    (core,) = make_cores(arguments, kwargs | {"account_info": True}, (engine,))
    core.reset(1)
    return core


@every_engine
@pytest.mark.parametrize(
    ("decide", "qty", "latency", "lengths"),
    [
        ("fill", 4, 0, [1, 5, 5]),
        ("fill", 4, 3, [4, 5, 5]),
        ("fill", 4, 4, [5, 5, 5]),
        ("fill", 4, 12, [5, 5, 3]),  # it comes at event 12, in the third decision
        ("touch", 4, 0, [5, 5, 5]),  # 4 units are left at 9
        ("touch", 8, 0, [1, 5, 5]),  # nothing is left, and so it stays
        ("touch", 8, 12, [5, 5, 3]),
    ],
)
def test_an_order_ends_the_decision_in_which_it_trades(engine, decide, qty, latency, lengths):
    core, told = pencil(engine, decide, qty, fields={"quote_latency": latency}), []
    for choice in (5, 0, 0):
        launch([core], {"choices": torch.tensor([[0, choice]])})
        told += events(core)
    assert told == lengths and core.tensors["elapsed"].tolist() == [sum(lengths)]
    assert core.simulator.tensors["inventory"].tolist() == [[0, qty]]


@every_engine
@pytest.mark.parametrize(("decide", "lengths"), [("touch", [1, 5, 5, 5, 4]), ("fill", [5, 5, 5, 5])])
def test_the_beat_of_an_event_counts(engine, decide, lengths):
    """Before event 0 all that rests is cancelled; the last decision ends with the episode's 20 events."""
    core, told = pencil(engine, decide, fields={"cancel_prob": 1.0, "beat": 4}), []
    while not bool(core.tensors["done"]):
        hold(core)
        told += events(core)
    assert told == lengths and core.simulator.tensors["t"].tolist() == core.tensors["elapsed"].tolist() == [20]
    assert core.tensors["truncated"].tolist() == [[True, True]]


@every_engine
@pytest.mark.parametrize(("decide", "lengths"), [("fill", [5, 1, 1]), ("touch", [5, 1, 5])])
def test_quotes_of_slots_are_not_the_touch(engine, decide, lengths):
    """The maker's bid is behind 8 units at 7, which a sale takes, then alone at 6, where the next sale fills it."""
    core, told = pencil(engine, decide), []
    for trade in (0, 12, 12):
        launch([core], {"choices": torch.tensor([[7 * 1, trade]])})
        told += events(core)
    assert told == lengths and core.simulator.tensors["inventory"].tolist() == [[8, -16]]


@every_engine
def test_a_grid_that_moves_is_not_the_touch(engine):
    """Before event 0 the window brings the mid, 4, to the middle of the grid's 16 ticks; no price is another one."""
    core = pencil(engine, "touch", fields={"init_price": 4, "window": 1})
    hold(core)
    assert events(core) == [5] and core.simulator.tensors["price_origin"].tolist() == [-4]


@every_engine
def test_what_arrives_early_is_noted_at_the_end(engine):
    """The built-in ask is gone. Before the first of 5 events a bid at the last price, 9, meets the ask kept there."""
    core = pencil(engine, "touch", keep=True, max_offset=8, action_type="continuous")
    ask_at_9, buy_at_9 = [-1.0, -0.75, -1.0, 1.0, -1.0, -1.0], [1.0, 0.125, -1.0, 0.0, 0.0, 0.0]
    bid_at_9, nothing = [-1.0, -1.0, 1.0, -1.0, -1.0, 1.0], [0.0, 0.0, -1.0, 0.0, 0.0, 0.0]
    for rows, told in (([ask_at_9, buy_at_9], ([1], 0)), ([bid_at_9, nothing], ([5], ks.Reject.OWN_ORDER))):
        launch([core], {"actions": torch.tensor([rows])})
        assert (events(core), int(info_of_one(core.tensors["info"].cpu(), 2)["rejected_bid"])) == told
    assert core.simulator.quotes[0, 0].tolist()[2:] == [9, 8]


@every_engine
@both_rules
def test_forced_auctions_are_no_events_of_the_decision(engine, decide):
    """At the end of 2 decisions of 5 events the block of 6 is bought, 2 units in each of 3 events more."""
    core = pencil(engine, decide, horizon=2, roles=("executor",), side="buy", block_qty=6, forced_qty=2)
    hold(core)
    assert events(core) == [5] and core.tensors["elapsed"].tolist() == [5] and not bool(core.tensors["done"])
    hold(core)
    assert events(core) == [5] and seen(core).tolist() == [1.0]
    assert core.tensors["elapsed"].tolist() == [10] and core.simulator.tensors["t"].tolist() == [13]
    assert core.fills.tolist() == [[[6, 0]]] and core.tensors["terminated"].tolist() == [[True]]


# Episodes -------------------------------------------------------------------------------------------------------------


@every_engine
@both_rules
@pytest.mark.parametrize("stagger", [False, True])
def test_each_market_plays_all_events_of_its_episode(engine, decide, stagger):
    """1, 2 or 3 decisions of 16 events, which an observation shows as given; staggered ones lack the first events."""
    given = {"auctions_per_step": 2, "autoreset_mode": "disabled", "stagger": stagger}
    core = make(engine, decide, ("maker", "trader"), horizon=np.array([[1], [2], [3]]), **given)
    core.reset(21)
    whole = np.array([16, 32, 48])
    drawn = [bits(word(episode_key(21 + m, 0), 0, WORD_STAGGER), 32, 32) for m in range(3)]
    begun = [scaled(u, int(n), 32) if stagger else 0 for u, n in zip(drawn, whole, strict=True)]
    assert core.tensors["elapsed"].tolist() == begun and events(core) == [0, 0, 0]
    generator, played = np.random.default_rng(2), np.array(begun)
    while not bool(core.tensors["done"].all()):
        over, before = core.tensors["done"].tolist(), core.tensors["observation"].clone()
        at_random(core, generator)
        now, rows = core.tensors["decision_events"].cpu().numpy(), core.tensors["observation"].cpu()
        played += now
        assert core.tensors["elapsed"].tolist() == played.tolist()
        assert core.tensors["truncated"].all(1).tolist() == core.tensors["done"].tolist() == (played == whole).tolist()
        assert torch.equal(rows[..., -1], torch.tensor([[1.0], [2.0], [3.0]]).expand(3, 2) / 3)
        left = (whole - played).astype(np.float32) / whole.astype(np.float32)
        assert rows[:, 0, 32].tolist() == rows[:, 1, 32].tolist() == left.tolist()
        for m in range(3):  # one that has ended repeats what it showed
            assert now[m] == 0 if over[m] else now[m] > 0
            assert torch.equal(rows[m], before[m].cpu()) if over[m] else bool((rows[m, :, -2] == now[m] / 16).all())


@every_engine
def test_without_quotes_fills_end_nothing(engine):
    """Then decisions are those of `"interval"`, from the same warm starts on; a market's column says that all are."""
    warm = {"bank_size": 6, "warmup": 5, "preset": "news", "auctions_per_step": 2, "horizon": 3}
    one, two = (make(engine, decide, ("maker", "trader"), **warm) for decide in ("interval", "fill"))
    for core in (one, two):
        core.reset(4)
    for step in range(8):
        for core in (one, two):
            hold(core)
        assert events(two) == [16, 16, 16]
        for name in one.simulator.tensors.keys() - {"t", "trades"}:
            assert torch.equal(one.simulator.tensors[name], two.simulator.tensors[name]), name
        assert torch.equal(8 * one.simulator.tensors["t"], two.simulator.tensors["t"])
        assert torch.equal(16 * one.tensors["elapsed"], two.tensors["elapsed"])
        for name in one.tensors.keys() - {"elapsed", "observation", "final_observation"}:
            assert torch.equal(one.tensors[name], two.tensors[name]), name
        for name in ("observation", "final_observation"):
            assert torch.equal(one.tensors[name], two.tensors[name][..., :-1]), name
        assert bool((seen(two, "final_observation") == 1).all())
        assert bool((seen(two) == (0 if step % 3 == 2 else 1)).all())


@every_engine
def test_without_quotes_the_path_is_the_market_s_own(engine):
    """After so many events the market is where it is with nobody in it, wherever its decisions end."""
    core = make(engine, "touch", preset="news", horizon=8, autoreset_mode="disabled")
    core.reset(4)
    plain, names = ks.Simulator(core.config, 3, engine="numpy", seed=4, slots=1), set()
    path = [{name: tensor.clone() for name, tensor in plain.tensors.items()}]
    for _ in range(64):
        plain.run(1)
        path.append({name: tensor.clone() for name, tensor in plain.tensors.items()})
    while not bool(core.tensors["done"].any()):
        hold(core)
        names |= {*events(core)}
        for m, t in enumerate(core.simulator.tensors["t"].tolist()):
            for name, tensor in core.simulator.tensors.items():
                assert torch.equal(tensor[m].cpu(), path[t][name][m]), (m, t, name)
    assert len(names) > 3


# Boundaries -----------------------------------------------------------------------------------------------------------


@every_engine
@both_rules
@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_decisions_of_one_event_at_most_are_intervals(engine, decide, mode):
    """Of one market in intervals of one event, with episodes of one decision or seven."""
    for horizon in (1, 7):
        given = {"autoreset_mode": mode, "stagger": True, "account_info": True, "late": 3, "bank_size": 2, "warmup": 9}
        given |= {"interval": 1, "markets": 1, "horizon": horizon, "keep": True, "action_type": "continuous"}
        one, two = (make(engine, rule, ROLES, block_qty=8, **given) for rule in ("interval", decide))
        for core in (one, two):
            core.reset(6)
        generator = np.random.default_rng(1)
        for _ in range(10):
            began = bool(one.tensors["done"])
            launch([one, two], draw_actions(one, generator, 0.0))
            for name in one.simulator.tensors:
                assert torch.equal(one.simulator.tensors[name], two.simulator.tensors[name]), name
            for name in one.tensors:
                theirs = two.tensors[name][..., :-1] if "observation" in name else two.tensors[name]
                assert torch.equal(one.tensors[name].nan_to_num(), theirs.nan_to_num()), name
            assert events(two) == [0 if began else 1]
