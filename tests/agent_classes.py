"""Classes of agents that tests add to markets, and `with_agents`, which adds some of them to a config at random.

Together they use all that agents see, own, draw and return, numbers that wrap, and orders beyond every bound.
"""

import numpy as np

import kineticsim_env as ks


@ks.agent(lookback=16, threshold=4, max_qty=4, memory={"average": "mid2"})
def trend_follower(market, own, draw):
    own.average += (market.mid2 - own.average) // own.lookback
    gap = market.mid2 - own.average
    if abs(gap) <= own.threshold:
        return ks.no_order()
    side = 1 if gap > 0 else -1
    return ks.order(side, market.near_mid(side), 1 + draw.below(own.max_qty), marketable=draw.chance(0.1))


@ks.agent(largest_order=4)
def copied_noise(market, own, draw):
    """The built-in class, without memory or parameters."""
    side = 1 if draw.coin() else -1
    quantity = 1 + draw.below(market.max_order_qty)
    price = market.near_mid(draw.offset(market.noise_spread))
    return ks.order(side, price, quantity, marketable=draw.chance(market.market_order_prob))


@ks.agent(depth=0, largest_order=3)
def at_the_best(market, own, draw):
    """Joins the larger of the best queues, where there are some."""
    if market.best_bid_qty == 0 and market.best_ask_qty == 0:
        return ks.order(1 if own.index % 2 else -1, market.last_price, 2)
    if market.best_bid_qty > market.best_ask_qty:
        return ks.order(1, market.best_bid - own.depth, 1 + market.best_bid_qty % 5)
    return ks.order(-1, market.best_ask + own.depth, 1 + market.best_ask_qty % 5)


@ks.agent(patience=3, informed=True, memory={"seen": "fundamental", "since": 0, "bought": -1})
def insider(market, own, draw):
    """Trades on news some times after it came, in a regime of its own even more."""
    if market.fundamental != own.seen:
        own.seen = market.fundamental
        own.since = 0
    own.since += 1
    if own.since % max(own.patience, 1) or market.ret * 2 > market.t % 3:
        return None
    above = 2 * (market.fundamental - (market.mid2 >> 1)) - (market.mid2 & 1)
    own.bought += 1 if above > 0 else -1
    return ks.order(above, market.near_mid(above // 2), 1 + market.regime + (own.bought & 3), own.bought % 4 == 0)


@ks.agent(scale=1, memory={"state": 12345, "best": "best_ask", "volume": "best_bid_qty"})
def extreme(market, own, draw):
    """Orders of any price and quantity, out of numbers that wrap; what it remembers wraps, too."""
    for i in range(3):
        own.state = own.state * 1664525 + 1013904223 + i + draw.below(2147483647, word=1)
    kind = own.state >> 28 & 7
    own.best = min(own.best, market.best_ask) - own.state % 3
    own.volume ^= market.best_bid_qty << (kind + 30)
    price = market.near_mid(own.state // own.scale) if kind < 4 else (own.best if kind < 5 else own.state)
    quantity = draw.offset(9, word=7) if kind != 3 else own.state
    return ks.order(draw.offset(1, word=200), price, quantity, kind == 6)


CLASSES = (trend_follower, copied_noise, at_the_best, insider, extreme)


@ks.agent(spread=40, shift=0, side=0, quantity=40, memory={"orders": 7, "before": "mid2"}, largest_order=40)
def anywhere(market, own, draw):
    """Orders of both sides at any tick, in the other side's best price too and off the grid; some where the mid was."""
    own.orders += 1
    price = market.near_mid(own.shift + draw.offset(own.spread))
    price = own.before // 2 if own.orders % 5 == 0 else price
    own.before = market.mid2
    side = own.side if own.side else draw.offset(1, word=2)
    return ks.order(side, price, own.quantity - draw.below(own.quantity // 2), draw.chance(0.05, word=3))


@ks.agent(patience=3, informed=True, largest_order=9)
def careful(market, own, draw):
    """Orders far from the mid that get nearer with time, on the fundamental price's side."""
    side = 1 if 2 * market.fundamental > market.mid2 else -1
    near = market.t % max(own.patience, 1)
    return ks.order(side, market.last_price - side * (30 - near) // (1 + draw.below(30)), 1 + draw.below(9, word=1))


SMALL_CLASSES = (anywhere, copied_noise, at_the_best, careful)  # which say how large their orders can be


def with_agents(config, seed, markets, kinds=CLASSES):
    """Return a config with some of `kinds`, a few agents of each; parameters may differ by agent and by market."""
    rng = np.random.default_rng(seed)
    chosen = [kind for kind in kinds if rng.random() < 0.5] or [kinds[rng.integers(len(kinds))]]
    rng.shuffle(chosen)
    agents = {}
    for kind in chosen:
        count = int(rng.choice([0, 1, 2, 5]))
        shapes = [(), (count,), (markets, 1), (markets, count)]
        values = {}
        for name in kind.parameters:
            if rng.random() < 0.5:
                values[name] = rng.choice([-(2**31), -3, 0, 1, 2, 7, 2**31 - 1], shapes[rng.integers(len(shapes))])
        agents[kind] = ks.mix(count, **values)
    room = 2**30 - np.max(np.asarray(config.num_agents) * np.asarray(config.max_order_qty))
    if sum(made.count for made in agents.values()) * 65535 > room:
        config = config.replace(max_order_qty=4)
    return config.replace(agents=agents)
