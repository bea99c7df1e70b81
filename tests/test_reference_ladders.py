"""Ladders of several orders per side on the plain reference: known answers by hand, and laws over random markets."""

import random
from collections import Counter

import pytest
from ensembles import KINDS, Ensemble, random_ensemble, with_flags
from pencil_markets import NEVER, NONE, ask, bid, inactive, lone_maker
from reference import Reference
from reference.cases import random_fields, random_ladders, standing_level
from reference.orders import BUY, SELL
from thorough import examples

MARKETS = examples(300)
KEEP = [*NONE, "keep", "keep"]


def ladders(added=0, levels=2, **fields):
    """A market in which only slots act, slot 0 and those added: 8 units rest at 7 and at 9."""
    return inactive(added, orders_per_side=levels, **{"interval": 1, "beat": NEVER} | fields)


def places(seen, slot, level, side):
    """Price, quantity and `ahead` of both places."""
    column = 0 if side == BUY else 2
    stands = zip(seen["quotes"][slot][level], seen["ahead"][slot][level], strict=True)
    return [(*quote[column : column + 2], ahead[side == SELL]) for quote, ahead in stands]


# Two places -----------------------------------------------------------------------------------------------------------


def test_a_top_up_stands_behind_and_goes_first_when_less_is_asked_for():
    """One built-in unit joins at 7 in every interval, after the quotes."""
    market = lone_maker(orders_per_side=2, interval=2, beat=NEVER)
    stood = []
    for quantity in (3, 5, 5, 6, 4, 2, 4):
        seen = market.interval([[bid(7, quantity), NONE]])
        stood.append([(units, ahead) for _, units, ahead in places(seen, 0, 0, BUY)])
    assert stood == [
        [(3, 8), (0, 0)],
        [(3, 8), (2, 9)],
        [(3, 8), (2, 9)],  # no more than stands: nothing comes
        [(3, 8), (3, 11)],  # what stood at the second place goes to the back with what joins it
        [(3, 8), (1, 11)],
        [(2, 8), (0, 0)],
        [(2, 8), (2, 14)],
    ]


def test_the_second_place_becomes_the_first_at_the_next_turn():
    market = lone_maker(2, orders_per_side=2, interval=2, beat=NEVER)
    market.interval([[bid(7, 2), NONE], [NONE, NONE]])
    market.interval([[bid(7, 4), NONE], [NONE, NONE]])
    seen = market.interval([[KEEP, KEEP], [ask(7, 10), NONE]])  # slot 0's turn is before slot 1's
    assert seen["fills"] == [[2, 0], [0, 10]] and places(seen, 0, 0, BUY) == [(7, 0, 0), (7, 2, 1)]
    seen = market.interval()  # no turn without fresh quotes
    assert places(seen, 0, 0, BUY) == [(7, 0, 0), (7, 2, 1)]
    moment = market.quotes[0][0][BUY][1].moment
    seen = market.interval([[bid(7, 5), NONE], [NONE, NONE]])
    assert places(seen, 0, 0, BUY) == [(7, 2, 1), (7, 3, 4)]  # three built-in units have come after it
    assert market.quotes[0][0][BUY][0].moment == moment


def test_one_order_per_side_has_no_top_ups():
    market = lone_maker(interval=2, beat=NEVER)
    market.interval([bid(7, 3)])
    seen = market.interval([bid(7, 5)])
    assert seen["quotes"] == [[7, 5, 0, 0]] and seen["ahead"] == [[9, 0]]


def test_another_price_or_a_flag_withdraws_both_places():
    for level, left in (
        (bid(6, 5), [(6, 5, 0), (6, 0, 0)]),
        ([7, 5, 0, 0, "ioc", ""], [(7, 0, 0), (7, 0, 0)]),
        ([7, 5, 0, 0, "market", ""], [(15, 0, 0), (15, 0, 0)]),  # buys 5 at 9; the far end's price stays
        (bid(6, 0), [(6, 0, 0), (6, 0, 0)]),
        (bid(7, 0), [(7, 0, 0), (7, 0, 0)]),
        ([99, 99, 0, 0, "keep ioc", ""], [(7, 2, 8), (7, 3, 8)]),
    ):
        market = ladders()
        market.interval([[bid(7, 2), NONE]])
        market.interval([[bid(7, 5), NONE]])
        assert places(market.interval([[level, NONE]]), 0, 0, BUY) == left


def test_what_is_larger_than_allowed_is_cut_before_it_tops_up():
    market = ladders(max_quote_qty=4)
    market.interval([[bid(7, 3), NONE]])
    assert places(market.interval([[bid(7, 9), NONE]]), 0, 0, BUY) == [(7, 3, 8), (7, 1, 8)]


def test_the_levers_decide_what_the_same_price_is():
    """Ticks of 4: bids at 7 and at 5 are bids at 4."""
    market = ladders(tick_size=4)
    market.interval([[bid(7, 2), NONE]])
    assert places(market.interval([[bid(5, 3), NONE]]), 0, 0, BUY) == [(4, 2, 0), (4, 1, 0)]


def test_a_top_up_off_the_grid():
    market = ladders()
    market.interval([[bid(-3, 2), NONE]])
    assert places(market.interval([[bid(-3, 3), NONE]]), 0, 0, BUY) == [(-3, 2, 0), (-3, 1, 0)]


def test_levels_at_one_price_and_top_ups_among_them():
    """At the same moment the lower level goes first; a top-up is behind both."""
    for sold, left in ((1, [(1, 2), (2, 0)]), (3, [(0, 2), (1, 0)]), (5, [(0, 1), (0, 0)])):
        market = ladders(1)
        market.interval([[bid(8, 2), bid(8, 2)], [NONE, NONE]])
        market.interval()
        seen = market.interval([[bid(8, 4), bid(8, 2)], [ask(8, sold), NONE]])  # t = 2: slot 0's turn is first
        assert [tuple(units for _, units, _ in places(seen, 0, level, BUY)) for level in (0, 1)] == left


# The grid's end -------------------------------------------------------------------------------------------------------


def test_the_grids_end_takes_along_only_what_stands():
    """One unit trades at 3 in an empty book, then 13 is bid; at the next beat the grid has its middle at 3."""
    market = ladders(1, init_depth=0, window=2, beat=2)
    nothing = [NONE, NONE]
    assert market.interval([[bid(3, 1), NONE], [ask(3, 1), NONE]])["last_price"] == 3
    market.interval([[NONE, bid(13, 2)], nothing])
    seen = market.interval()
    assert seen["price_origin"] == -5 and places(seen, 0, 1, BUY) == [(10, 2, 0), (13, 0, 0)]
    for level, left in ((bid(11, 5), [(10, 2, 0), (10, 3, 0)]), (KEEP, [(10, 2, 0), (10, 0, 0)])):
        other = Reference(market.rules.fields, market.rules.slots)
        other.interval([[bid(3, 1), NONE], [ask(3, 1), NONE]])
        other.interval([[NONE, bid(13, 2)], nothing])
        other.interval()
        assert places(other.interval([[NONE, level], nothing]), 0, 1, BUY) == left
    # Slot 1, whose turn is first at t = 3, sells both: the empty second place becomes the first, with its price.
    seen = market.interval([[NONE, KEEP], [ask(10, 2), NONE]])
    assert seen["fills"] == [[2, 0], [0, 2]] and places(seen, 0, 1, BUY) == [(13, 0, 0), (13, 0, 0)]


# Limits ---------------------------------------------------------------------------------------------------------------


def test_the_inventory_limit_leaves_room_for_the_nearest_levels():
    market = ladders(levels=3, inventory_limit=10)
    seen = market.interval([[[5, 4, 12, 6], [7, 4, 10, 6], [6, 4, 11, 6]]])
    assert [level[0] for level in seen["quotes"][0]] == [[5, 2, 12, 0], [7, 4, 10, 6], [6, 4, 11, 4]]
    market.accounts[0]["inventory"] = 5
    seen = market.interval([[[5, 4, 10, 9], [5, 4, 10, 9], NONE]])  # of equal prices the lower level
    assert [level[0] for level in seen["quotes"][0]] == [[5, 2, 10, 9], [5, 1, 10, 6], [0, 0, 0, 0]]
    assert [place[1] for place in places(seen, 0, 0, BUY)] == [2, 2]  # a top-up counts as the first place does


def test_what_is_kept_has_its_own_price_in_the_limit_and_loses_the_second_place_first():
    market = ladders(inventory_limit=9)
    market.interval([[bid(6, 2), bid(5, 2)]])
    market.interval([[bid(6, 4), bid(5, 4)]])
    market.accounts[0]["inventory"] = 4
    seen = market.interval([[[0, 0, 0, 0, "keep", ""], [8, 9, 0, 0, "keep", ""]]])
    assert places(seen, 0, 0, BUY) == [(6, 2, 0), (6, 2, 0)] and places(seen, 0, 1, BUY) == [(5, 1, 0), (5, 0, 0)]


def test_a_market_order_is_the_nearest_level():
    market = ladders(inventory_limit=3)
    seen = market.interval([[bid(8, 3), [0, 2, 0, 0, "market", ""]]])
    assert seen["fills"] == [[2, 0]] and places(seen, 0, 0, BUY)[0] == (8, 1, 0) and seen["inventory"] == [2]


def test_a_side_that_a_level_loses_as_it_crosses_itself_had_its_room():
    market = ladders(inventory_limit=5)
    seen = market.interval([[[8, 4, 8, 5], bid(7, 4)]])
    assert [level[0] for level in seen["quotes"][0]] == [[8, 0, 8, 5], [7, 1, 0, 0]]


# Levels beside each other ---------------------------------------------------------------------------------------------


def test_each_level_keeps_or_comes_by_itself():
    market = ladders()
    market.interval([[[7, 2, 9, 2], [6, 2, 10, 2]]])
    seen = market.interval([[[7, 2, 11, 1], [5, 3, 0, 0, "", "keep"]]])
    assert places(seen, 0, 0, BUY)[0] == (7, 2, 8) and places(seen, 0, 0, SELL)[0] == (11, 1, 0)
    assert places(seen, 0, 1, BUY)[0] == (5, 3, 0) and places(seen, 0, 1, SELL)[0] == (10, 2, 0)


def test_a_level_does_not_keep_the_place_of_another():
    """One built-in unit joins at 7 between the two."""
    market = lone_maker(orders_per_side=2, interval=2, beat=NEVER)
    assert places(market.interval([[bid(6, 2), bid(7, 2)]]), 0, 1, BUY)[0] == (7, 2, 8)
    assert places(market.interval([[bid(7, 2), bid(6, 2)]]), 0, 0, BUY)[0] == (7, 2, 9)


def test_levels_that_cross_stop_before_each_other():
    for ladder, left, fills, rejects in (
        ([bid(8, 3), ask(8, 2)], [[8, 3, 0, 0], [0, 0, 8, 0]], [0, 0], [[None, None], [None, "own order"]]),
        ([ask(8, 3), bid(8, 2)], [[0, 0, 8, 3], [8, 0, 0, 0]], [0, 0], [[None, None], ["own order", None]]),
        # 8 built-in units are before its own bid, which are sold to.
        ([bid(7, 3), ask(7, 10)], [[7, 3, 0, 0], [0, 0, 7, 0]], [0, 8], [[None, None], [None, "own order"]]),
        ([bid(7, 3), ask(8, 2)], [[7, 3, 0, 0], [0, 0, 8, 2]], [0, 0], [[None, None], [None, None]]),
    ):
        market = ladders()
        seen = market.interval([ladder])
        assert [level[0] for level in seen["quotes"][0]] == left and seen["fills"] == [fills]
        assert market.rejects == [rejects]


def test_what_stands_of_another_level_is_gone_before_anything_comes():
    market = ladders()
    market.interval([[bid(6, 1), ask(8, 2)]])
    seen = market.interval([[bid(8, 3), ask(9, 2)]])
    assert market.rejects == [[[None, None], [None, None]]]
    assert [level[0] for level in seen["quotes"][0]] == [[8, 3, 0, 0], [0, 0, 9, 2]]


def test_post_only_is_of_a_level_and_sees_the_other_levels():
    market = ladders(levels=3)
    levels = [[9, 2, 0, 0, "post-only", ""], [8, 2, 0, 0, "post-only", ""], [0, 0, 8, 1, "", "post-only"]]
    seen = market.interval([levels])
    assert market.rejects == [[["post-only", None], [None, None], [None, "post-only"]]]
    assert [level[0] for level in seen["quotes"][0]] == [[9, 0, 0, 0], [8, 2, 0, 0], [0, 0, 8, 0]]
    seen = market.interval([[NONE, [8, 5, 0, 0, "post-only", ""], NONE]])
    assert places(seen, 0, 1, BUY) == [(8, 2, 0), (8, 3, 0)] and not any(map(any, market.rejects[0]))


# Laws -----------------------------------------------------------------------------------------------------------------


def random_ladder_market(seed):
    rng = random.Random(f"ladders {seed}")
    fields = random_fields(rng, "continuous")
    levels, slots = rng.choice([2, 2, 3, 5]), rng.randint(1, 4)
    return Reference({**fields, "orders_per_side": levels}, slots, seed), fields, rng


@pytest.mark.parametrize("seed", range(MARKETS))
def test_laws(seed):
    """Limits hold, own sides never cross, two places at one price, the first before the second, all is accounted for.

    Built-in units are those submitted, less traded, cancelled, dropped and pruned; cash and units only change hands.
    """
    market, fields, rng = random_ladder_market(seed)
    levels, slots, limit = market.rules.orders_per_side, len(market.accounts), fields["inventory_limit"]
    cash, held, volume = Counter(), Counter(), 0
    for _ in range(40):
        seen = market.observe()
        quotes = random_ladders(rng, seen, slots, levels)
        quotes = rng.choice([quotes, with_flags(rng, quotes, levels), None])
        seen = market.interval(quotes)
        for note in market.log:
            if note[0] == "trade":
                _, side, price, units, taker, maker = note
                assert taker is None or taker != maker
                volume += units
                for who, bought in ((taker, side), (maker, -side)):
                    cash[who] -= bought * price * units
                    held[who] += bought * units
        assert seen["volume"] == volume and sum(cash.values()) == sum(held.values()) == 0
        for slot, ladder in enumerate(market.quotes):
            assert (seen["cash"][slot], seen["inventory"][slot]) == (cash[slot], held[slot])
            assert limit is None or abs(seen["inventory"][slot]) <= limit
            stand = {side: [o for level in ladder for o in level[side] if o.quantity] for side in (BUY, SELL)}
            if stand[BUY] and stand[SELL]:
                assert max(order.price for order in stand[BUY]) < min(order.price for order in stand[SELL])
            for side in (BUY, SELL):
                total = sum(order.quantity for order in stand[side])
                assert limit is None or total <= max(0, limit - side * seen["inventory"][slot])
            for number, level in enumerate(ladder):
                for side in (BUY, SELL):
                    first, second = level[side]
                    assert 0 <= first.quantity + second.quantity <= fields["max_quote_qty"]
                    there = seen["bid" if side == BUY else "ask"]
                    for order, (_, _, ahead) in zip((first, second), places(seen, slot, number, side), strict=True):
                        tick = order.price - seen["price_origin"]
                        here = there[tick] if order.quantity and 0 <= tick < len(there) else 0
                        assert 0 <= ahead <= here
                    if first.quantity and second.quantity:
                        assert first.price == second.price and first.moment < second.moment
                        assert market.book.ahead(first) <= market.book.ahead(second)
        resting = [order for queues in market.book.sides.values() for queue in queues.values() for order in queue]
        learned = {id(order) for order in resting if order.slot is not None}
        assert learned == {id(order) for order in market._standing() if order.quantity}


@pytest.mark.parametrize("ten", range(MARKETS // 30))
def test_a_ladder_is_as_many_slots_as_it_has_places(ten):
    assert sum(top_ups_beside_slots(10 * ten + number) for number in range(10)) > 20


def top_ups_beside_slots(seed):
    """Slots with one order per side can do what a ladder's places do, if they know which place they have.

    For that no level meets another, nothing but the ladder's own rules may change a price, and the turn begins with
    slot 0. What one place would not keep, as more is asked for, comes from the other slot. Returned is how often.
    """
    rng = random.Random(f"as slots {seed}")
    fields = random_fields(rng, "continuous")
    fields |= {"inventory_limit": None, "max_quote_qty": 1 << 20, "window": 0, "collar": 0, "tick_size": 1}
    levels, end = rng.choice([2, 3]), fields["num_levels"]
    fields |= {"quote_latency": 0, "interval": rng.choice([1, 2, 5])}
    ladder = Reference({**fields, "orders_per_side": levels}, 1, seed)
    alone = Reference(fields, 2 * levels, seed)
    middle = fields["init_price"]
    who = {(level, side): [2 * level, 2 * level + 1] for level in range(levels) for side in (0, 2)}
    top_ups = 0
    for _ in range(20):
        stands = [standing_level(places) for places in ladder.observe()["quotes"][0]]
        one = alone.observe()["quotes"]
        asked, apart = [], [[*NONE, "", ""] for _ in range(2 * levels)]
        for level in range(levels):
            numbers = [*NONE, "", ""]
            for side in (0, 2):
                price, quantity = stands[level][side : side + 2]
                if not quantity or rng.random() < 0.4:
                    near = rng.randint(0, 3)
                    price = middle + near if side else middle - 1 - near
                    price = min(max(price, middle), end - 1) if side else max(price, 0)
                quantity = max(0, quantity + rng.choice([-3, -1, 0, 0, 2, 5, 40]))
                flags = rng.choice(["", "", "", "keep", "ioc", "post-only"])
                numbers[side : side + 2], numbers[4 + side // 2] = [price, quantity], flags
                roles = who[level, side]
                if not one[roles[0]][side + 1]:
                    roles.reverse()
                first, second = (one[slot][side : side + 2] for slot in roles)
                same = flags in ("", "post-only") and first[1] and price == first[0] and quantity
                parts = [min(quantity, first[1]), max(0, quantity - first[1])] if same else [quantity, 0]
                top_ups += bool(same and quantity > first[1] + second[1])
                for slot, part in zip(roles, parts, strict=True):
                    apart[slot][side : side + 2], apart[slot][4 + side // 2] = [price, part], flags
            asked.append(numbers)
        seen, wanted = ladder.decision([asked], 2 * levels)[-1], alone.decision(apart, 2 * levels)[-1]
        for name in "mid2 last_price volume trades bid ask signed_volume".split():
            assert seen[name] == wanted[name], name
        for name in ("cash", "inventory", "fees"):
            assert seen[name] == [sum(wanted[name])], name
        for level, side in who:
            roles, column = who[level, side], side // 2
            for place, slot in enumerate(roles):
                quote = seen["quotes"][0][level][place][side : side + 2]
                assert quote[1] == wanted["quotes"][slot][side + 1]
                assert not quote[1] or quote[0] == wanted["quotes"][slot][side]
                assert seen["ahead"][0][level][place][column] == wanted["ahead"][slot][column]
            reasons = [alone.rejects[slot][column] for slot in roles]
            assert ladder.rejects[0][level][column] == (reasons[0] or reasons[1])
    return top_ups


# What tests of engines draw -------------------------------------------------------------------------------------------


def test_ensembles_of_ladders():
    """Of continuous ensembles some have ladders, as many levels as a launch can have; records have one row a level."""
    rng, drawn = random.Random(1), Counter()
    for _ in range(60):
        fields, slots = random_ensemble(rng, "clock", "continuous", 2, rng.random() < 0.5, ladders=True)
        levels = fields["orders_per_side"]
        drawn[levels] += 1
        assert levels * len(slots) <= 32
        both = Ensemble(fields, slots, 2, 1)
        plain, record = (both.tensor(both.quotes(rng, flags)) for flags in (False, True))
        assert plain.shape == ((2, len(slots), 4) if levels == 1 else (2, len(slots), levels, 4))
        assert not slots or record.shape == (2, len(slots), levels, 2, 3)
        both.assert_same()
    assert len(drawn) > 4 and drawn[1] > 15 and "orders_per_side" not in random_ensemble(rng, *KINDS[0], 1, False)[0]
