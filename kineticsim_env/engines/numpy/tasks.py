"""The environment's part of the NumPy engine: docs/environment.md, for some markets at a time.

`launch` of engine.py calls `step` and `reset`. This file has what happens in which order; what actions mean, what is
paid and what is seen stand in actions.py, rewards.py and observations.py. Floats are float32, rounded
after every operation, in the order the document gives; rewards are double until the last rounding. Names as in
market.py.
"""

from typing import Any

import numpy as np

from kineticsim_env.engines.numpy import beats, info, lives, state
from kineticsim_env.engines.numpy.actions import (
    EXECUTOR,
    decode_actions,
    forced_quotes,
    priced_to_the_book,
    remaining,
    unwinding_slots,
)
from kineticsim_env.engines.numpy.agents import opening_memory
from kineticsim_env.engines.numpy.at_events import INTERVAL, play_to_event
from kineticsim_env.engines.numpy.market import decision
from kineticsim_env.engines.numpy.observations import observation
from kineticsim_env.engines.numpy.orders import apply_pre_trade_limits
from kineticsim_env.engines.numpy.rewards import mark2, marked_value, rewards
from kineticsim_env.engines.numpy.rules import bits
from kineticsim_env.engines.numpy.state import Markets

NEXT_STEP, SAME_STEP, DISABLED = 0, 1, 2
BANK_OF_MARKET, BANK_OF_SCENARIO = 1, 2
HISTORY = 4


def step(args: dict[str, Any], rows: np.ndarray) -> None:
    """Take one environment step of some markets."""
    task = args["task"]
    stopped = (args["error"][rows] & state.ERROR_STOPPED) != 0
    done = (args["done"][rows] != 0) & ~stopped

    resting = rows[stopped | done]
    args["reward"][resting] = 0
    if args["fills"] is not None:
        args["fills"][0, resting] = 0
    if args.get("idle") is not None:
        args["idle"][resting] = 1
    if args.get("decision_events") is not None:
        args["decision_events"][resting] = 0
    lowered = rows[stopped] if task["autoreset"] == DISABLED else resting
    args["terminated"][lowered] = args["truncated"][lowered] = 0
    if task["autoreset"] != DISABLED:
        restart(args, rows[done], explicit=False)
    if not (stopped | done).all():
        decide(args, rows[~stopped & ~done])
    flag_ends(args, rows)


def reset(args: dict[str, Any], rows: np.ndarray) -> None:
    """Reset those of some markets that are in `reset_mask`."""
    if args["reset_mask"] is not None:
        rows = rows[args["reset_mask"][rows] != 0]
    for name in ("reward", "terminated", "truncated", "decision_events"):
        if args.get(name) is not None:
            args[name][rows] = 0
    restart(args, rows, explicit=True)
    flag_ends(args, rows)


def restart_done(args: dict[str, Any], rows: np.ndarray) -> None:
    """Begin the next episodes of those of some markets whose episodes have ended; results stay as they are."""
    stopped = (args["error"][rows] & state.ERROR_STOPPED) != 0
    restart(args, rows[(args["done"][rows] != 0) & ~stopped], explicit=False)


def flag_ends(args: dict[str, Any], rows: np.ndarray) -> None:
    """Say where an episode ended one way or the other."""
    if args.get("over") is not None:
        args["over"][rows] = args["terminated"][rows] | args["truncated"][rows]


def decide(args: dict[str, Any], rows: np.ndarray) -> None:
    """Take one decision and what follows from it: auctions, reward, end of the episode, observation."""
    task, m = args["task"], Markets(args, rows)
    before = m.cash.copy(), m.inventory.copy(), m.fees.copy()
    mark2_before = mark2(m, task)

    volume, fills = np.zeros(len(rows), np.int64), np.zeros((*m.cash.shape, 2), np.int64)
    quotes, flags = decode_actions(args, m)
    if task["decide"] == INTERVAL:
        quotes = quotes if m.continuous else quotes[:, :, 0]
        for volume_of_auction, filled in decision(m, args["auctions"], quotes, flags):
            volume += volume_of_auction
            fills += filled
        events, m.elapsed = np.zeros_like(volume), m.elapsed + 1
    else:
        m, events = play_to_event(args, m, quotes, flags, volume, fills)
        args["decision_events"][rows] = events
        m.elapsed = m.elapsed + events
    rejects = np.bitwise_or.reduce(m.rejects, axis=2)  # of all levels; forced orders have none
    m = force_blocks(args, m, volume, fills)
    m.decision_events = events
    if args["fills"] is not None:
        args["fills"][0, rows] = fills
    m.mid_history = np.column_stack([m.marked_mid2, m.mid_history[:, :-1]])
    m.volume_history = np.column_stack([np.minimum(volume, 2**31 - 1), m.volume_history[:, :-1]])

    was_ended, value = m.ended != 0, marked_value(m, task)
    terminated, truncated = ends(m, task, value)
    reward = rewards(m, task, before, value, mark2_before, fills, terminated | truncated)
    args["reward"][rows] = np.where(was_ended, 0, reward / task["reward_scale"]).astype(np.float32)
    args["terminated"][rows], args["truncated"][rows] = terminated, truncated
    if args.get("info") is not None:
        args["idle"][rows] = was_ended
        info.note_decision(args, m, value, fills, rejects)

    m.prev_value, m.ended = value, was_ended | terminated | truncated
    learners = task.get("learners", 0) or m.ended.shape[1]  # with whose episodes the market's ends
    m.done = m.ended[:, :learners].all(axis=1)
    m.ended |= m.done[:, None]
    seen = observation(m, task)
    args["final_observation"][rows] = args["observation"][rows] = seen
    over = rows[m.done]
    m.store(args)
    if task["autoreset"] == SAME_STEP:
        restart(args, over, explicit=False, played=True)


def force_blocks(args: dict[str, Any], m: Markets, volume: np.ndarray, fills: np.ndarray) -> Markets:
    """After the last decision, trade what is left of blocks, and unwind; add to volume [m] and fills [m, K, 2].

    Returns:
        The markets after it: those at their deadline went on, the others are as they were.
    """
    task = args["task"]
    of_market = m.task_of(task, 0)
    most = np.broadcast_to(of_market["forced_auctions"], m.elapsed.shape)
    late = np.flatnonzero((m.elapsed >= of_market["horizon"]) & (most > 0))
    if not late.size:
        return m
    m.store(args)
    for auction in range(task["forced_auctions"]):
        late = late[most[late] > auction]
        some = Markets(args, m.rows[late])
        asked = forced_quotes(some, task)
        admitted = apply_pre_trade_limits(some, asked)
        goes_on = (admitted[..., 1::2] > 0).any(axis=(1, 2))
        if some.continuous:
            admitted = priced_to_the_book(some, task, asked, admitted)
        late = late[goes_on]
        if not late.size:
            break
        some = Markets(args, m.rows[late])
        for volume_of_auction, filled in decision(some, 1, at_first_level(some, admitted[goes_on]), at_deadline=True):
            volume[late] += volume_of_auction
            fills[late] += filled
        some.store(args)
    return Markets(args, m.rows)


def at_first_level(m: Markets, quotes: np.ndarray) -> np.ndarray:
    """Return quotes [m, K, 4] as `decision` takes them: of ladders level 0, [m, K, N, 4], the others being empty."""
    if m.orders == 1:
        return quotes
    ladders = np.zeros((*m.cash.shape, m.orders, 4), np.int64)
    ladders[:, :, 0] = quotes
    return ladders


def ends(m: Markets, task: dict[str, Any], value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which slots terminate and which are truncated by this decision, bool [m, K] each."""
    terminated = (task["max_loss"] > 0) & (value / 2000.0 <= -task["max_loss"])
    late = np.repeat((m.elapsed >= m.task_of(task, 0)["horizon"])[:, None], value.shape[1], axis=1)
    for k in range(value.shape[1]):
        if task["role"][k] == EXECUTOR:
            terminated[:, k] |= late[:, k] | (remaining(m, m.task_of(task, k), k) == 0)
    for k in unwinding_slots(task):
        terminated[:, k] |= late[:, k]
    goes_on = m.ended == 0
    return goes_on & terminated, goes_on & late & ~terminated


def restart(args: dict[str, Any], rows: np.ndarray, explicit: bool, played: bool = False) -> None:
    """Begin the next episode of some markets and write their observation; `played`: after a decision of this launch."""
    if not rows.size:
        return
    m = Markets(args, rows)
    task = args["task"]
    m.episode = m.episode + 1
    m.t = np.zeros_like(m.t)
    if task["scenarios"] > 0:
        draw_scenarios(args, m)
    beats.draw_first_regime(m)
    if task["bank_size"] > 0:
        open_warm(args, m)
    else:
        open_cold(m)
    m.beat_price = m.last_price
    zero = {"volume", "trades", "ret", "prev_value", "ended", *state.SLOT_STATE}
    for name in zero.intersection(m.names):
        setattr(m, name, np.zeros_like(getattr(m, name)))
    if "agent_memory" in m.names and task["bank_size"] == 0:
        m.agent_memory = opening_memory(m)
    if m.task_values is not None:
        m.inventory = m.task_values[:, :, state.TASK_VALUES.index("initial_inventory")].astype(np.int64)
        m.opening_value = marked_value(m, task, since_opening=False)
    m.elapsed = np.zeros_like(m.elapsed)
    m.done = np.zeros_like(m.done)
    m.arrival2 = m.marked_mid2
    m.mid_history = np.repeat(m.marked_mid2[:, None], HISTORY + 1, axis=1)
    m.volume_history = np.zeros_like(m.volume_history)
    if explicit:
        m.error = np.zeros_like(m.error)
        if task["stagger"]:
            begun = bits(m.word(state.WORD_STAGGER), 32, 32) * m.task_of(task, 0)["horizon"] >> 32
            m.elapsed = np.where(m.episode == 0, begun, 0)
    args["observation"][rows] = observation(m, task)
    if args.get("info") is not None:
        info.note_opening(args, m, played)
    m.store(args)


def draw_scenarios(args: dict[str, Any], m: Markets) -> None:
    """Give every market the parameters, and settings of the task, of the scenario that its new episode plays."""
    word, thresholds = bits(m.word(state.WORD_SCENARIO), 32, 32), args["scenario_thresholds"]
    if thresholds[-1] == 0:
        m.scenario = word * args["task"]["scenarios"] >> 32
    else:
        m.scenario = np.searchsorted(thresholds[:-1], word, side="right")
    if args.get("reset_scenario") is not None:
        asked = args["reset_scenario"][m.rows]
        m.scenario = np.where(asked >= 0, asked, m.scenario)
    for name, values in args["scenario_params"].items():
        args["params"][name][m.rows] = m.params[name] = values[m.scenario]
    if args.get("scenario_values") is not None:
        drawn = args["scenario_values"][m.scenario]
        args["task_values"][m.rows] = m.task_values = np.where(np.isnan(drawn), m.task_values, drawn)
    if args.get("scenario_agent_parameters") is not None:
        args["agent_parameters"][m.rows] = m.agent_parameters = args["scenario_agent_parameters"][m.scenario]


def open_warm(args: dict[str, Any], m: Markets) -> None:
    task = args["task"]
    snapshot = bits(m.word(state.WORD_WARM_START), 32, 32) * task["bank_size"] >> 32
    if task["bank_owner"] == BANK_OF_MARKET:
        snapshot = snapshot + m.rows * task["bank_size"]
    elif task["bank_owner"] == BANK_OF_SCENARIO:
        snapshot = snapshot + m.scenario * task["bank_size"]
    m.bid = args["bank_bid"][snapshot].astype(np.int64)
    m.ask = args["bank_ask"][snapshot].astype(np.int64)
    scalars = args["bank_scalars"][snapshot].astype(np.int64)
    m.prev_mid2, m.last_tick, m.price_origin, m.fundamental_price = scalars.T.copy()
    if args.get("bank_regime") is not None:
        m.regime = args["bank_regime"][snapshot].astype(np.int64)
    if args.get("bank_memory") is not None:
        m.agent_memory = args["bank_memory"][snapshot].astype(np.int64)
    for name in state.FLOW_STATE if m.plays_flow else ():
        setattr(m, name, args[f"bank_{name}"][snapshot].astype(np.int64))


def open_cold(m: Markets) -> None:
    price, depth, book = m.params["init_price"], m.params["init_depth"], np.arange(len(m.rows))
    m.fundamental_price = m.params["fundamental_price"].copy()
    if m.plays_flow:
        lives.open_book(m, price)
        return
    m.bid, m.ask = np.zeros_like(m.bid), np.zeros_like(m.ask)
    m.bid[book, price - 1] = depth
    m.ask[book, price + 1] = depth
    m.prev_mid2, m.last_tick, m.price_origin = 2 * price, price.copy(), np.zeros_like(m.price_origin)
