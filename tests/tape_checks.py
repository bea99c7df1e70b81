"""Random markets on tape, and what must hold of every tape: written from docs/tapes.md alone, in plain Python."""

import random
from collections import defaultdict

import numpy as np
import pytest
import torch
from agent_classes import with_agents
from ensembles import bits_of, random_ensemble, random_flags
from reference.cases import random_quotes

import kineticsim_env as ks
from kineticsim_env.tapes.branches import OneMarket


def check_differences_are_seen(monkeypatch, sim, intervals, places, by):
    """Where the engine has a number of a tensor otherwise than the tape, that is an error; `places` in each tensor."""
    opened = OneMarket.open
    for name, place in places.items():

        def spoil(self, of, name=name, place=place):
            player = opened(self, of)
            self._tensors[name].view(-1)[place] += by
            return player

        with monkeypatch.context() as patch:
            patch.setattr(OneMarket, "open", spoil)
            with pytest.raises(RuntimeError, match="not what the C\\+\\+ engine has, so this tape is wrong"):
                len(sim.tape(0, intervals))


def random_case(seed, arrivals, mechanism, added=False):
    """Return a simulator that has run a while, numbers of some markets, intervals, and quotes, records or None."""
    rng = random.Random(seed)
    markets = rng.choice([1, 3])
    per_market = rng.random() < 0.4
    # One order per side: what is checked here of quotes is one price per side.
    fields, slots = random_ensemble(rng, arrivals, mechanism, markets, per_market, ladders=False)
    config = ks.MarketConfig(**fields)
    if added:
        config = with_agents(config, seed, markets)
    sim = ks.Simulator(config, markets, engine="cpu", seed=seed, slots=slots)
    sim.run(rng.choice([0, 1, 20]))
    for _ in range(rng.randint(0, 3) if slots else 0):
        sim.step(quotes_for(rng, sim), rng.choice([1, 2]))
    chosen = rng.sample(range(markets), rng.randint(1, markets))
    decisions, length = rng.choice([1, 4, 12]), rng.choice([1, 3])
    if not slots or rng.random() < 0.3:
        return sim, chosen, decisions * length, None
    quotes = torch.stack([quotes_for(rng, sim) for _ in range(decisions)])
    if sim.config.is_continuous and rng.random() < 0.6:
        flags = [bits_of(word) for _ in range(quotes.numel() // 4) for word in random_flags(rng)]
        sides = quotes.view(*quotes.shape[:-1], 1, 2, 2)
        quotes = torch.cat([sides, torch.tensor(flags, dtype=torch.int32).view(*sides.shape[:-1], 1)], -1)
    return sim, chosen, decisions * length, quotes


def quotes_for(rng, sim):
    """Return quotes [M, K, 4] that suit what markets look like now."""
    found = []
    for m in range(sim.num_markets):
        seen = {"mid2": int(sim.mid2[m]), "price_origin": int(sim.price_origin[m])}
        seen |= {"bid": [0] * sim.config.num_levels, "quotes": sim.quotes[m].tolist()}
        found.append(random_quotes(rng, seen, len(sim.slots)))
    return torch.tensor(found, dtype=torch.int32).clamp(-(2**30), 2**30)


def check_tape(sim, tape, quotes=None):
    """Hold a tape against what the simulator plays, and against the rules of orders."""
    columns, branch = tape.columns, sim.branch()
    record = ("last_price", "volume")
    if quotes is None:
        series = branch.run(tape.intervals, record=record)
    else:
        played = branch.rollout(quotes, tape.intervals // len(quotes), record=record).series
        series = {name: part.transpose(0, 1).reshape(sim.num_markets, -1) for name, part in played.items()}
    assert set(columns["market"]) <= set(tape.markets)
    for number, m in enumerate(tape.markets):
        mine = {name: values[columns["market"] == m] for name, values in columns.items()}
        orders = check_orders(mine, sim.config.is_continuous)
        trades, first = mine["type"] == "trade", int(tape.begins[number])
        volume = np.bincount(mine["interval"][trades] - first, mine["quantity"][trades], tape.intervals)
        assert volume.tolist() == series["volume"][m].tolist()
        last = int(sim.last_price[m])
        for i in range(tape.intervals):
            prices = mine["price"][trades & (mine["interval"] == first + i)]
            last = int(prices[-1]) if len(prices) else last
            assert last == series["last_price"][m, i]
        moved = set(mine["agent"][(mine["agent_class"] == "slot") & (mine["reason"] == "left the grid")].tolist())
        check_book(branch, m, orders, moved)


def check_orders(mine, continuous):
    """Follow the orders of one market; return those that are left: id -> [class, agent, side, price, units]."""
    orders, seen = {}, 0
    assert (np.diff(mine["interval"]) >= 0).all() and (np.diff(mine["event"]) >= 0).all()
    rows = zip(*(mine[name].tolist() for name in ROWS), strict=True)
    for kind, order, other, who, agent, side, price, quantity, remaining, reason, marketable in rows:
        assert quantity > 0 and (reason != "") == (kind == "cancel") and (other > 0) == (kind == "trade")
        if kind == "submit":
            seen += 1
            assert order == seen and remaining == quantity  # numbered in the order in which they come
            orders[order] = [who, agent, side, price, quantity, marketable]
            continue
        mine_now = orders[order]
        assert mine_now[:3] == [who, agent, side] and mine_now[5] == marketable
        if kind == "trade":
            them = orders[other]
            assert them[2] != side and not (who == "slot" == them[0] and agent == them[1])
            assert price <= mine_now[3] if side == "buy" else price >= mine_now[3]
            assert price >= them[3] if side == "buy" else price <= them[3]
            assert not continuous or price == mine_now[3] or mine_now[5]
            them[4] -= quantity
            assert them[4] >= 0
        else:
            assert price == mine_now[3]
        mine_now[4] -= quantity
        assert mine_now[4] == remaining >= 0
    return {order: found for order, found in orders.items() if found[4]}


ROWS = "type order_id counterparty_id agent_class agent side price quantity remaining reason marketable".split()


def check_book(branch, m, orders, moved):
    """Compare the orders that are left with a market's book, standing quotes and their places in queues.

    A slot of `moved` has had a quote that took the price of the grid's end, and so a place in the midst of a queue. Of
    an order flow lasting orders trade first, also those behind a quote.
    """
    left, quoted = defaultdict(int), {}
    for who, agent, side, price, units, _ in (found for _, found in sorted(orders.items())):
        tick = price - int(branch.price_origin[m])
        if who != "slot":
            left[side, tick] += units
            continue
        assert (agent, side) not in quoted
        quoted[agent, side] = (price, units)
        if branch.config.is_continuous and not branch.config.is_flow and agent not in moved:
            assert left.get((side, tick), 0) == int(branch.queue[m, agent, int(side == "sell")])
    for side, book in (("buy", branch.bid[m]), ("sell", branch.ask[m])):
        there = {(side, tick): int(book[tick]) for tick in torch.nonzero(book)[:, 0].tolist()}
        assert there == {place: units for place, units in left.items() if place[0] == side}
    for k, (bid, bid_qty, ask, ask_qty) in enumerate(branch.quotes[m].tolist()):
        for side, price, units in (("buy", bid, bid_qty), ("sell", ask, ask_qty)):
            assert quoted.get((k, side)) == ((price, units) if units else None)
