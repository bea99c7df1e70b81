"""Ladders: known answers. `ensembles.py` holds engines against references."""

import pytest
from ladder_markets import EVERY_ENGINE, NOTHING, ask, asks, bid, bids, market, submit, topped_up

# Top-ups --------------------------------------------------------------------------------------------------------------


@EVERY_ENGINE
def test_a_top_up_stands_behind(engine):
    sim = topped_up(engine)
    assert bids(sim) == [[(7, 4, 8), (7, 2, 8)], [], []] and bids(sim, 1)[0] == [(7, 3, 8)]
    fills, _ = submit(sim, None, None, [ask(7, 13, "ioc")])
    assert fills == [[4, 0], [1, 0], [0, 13]]
    fills, _ = submit(sim, None, None, [ask(7, 3, "ioc")])
    assert fills == [[1, 0], [2, 0], [0, 3]] and bids(sim)[0] == [(7, 1, 0)]


@EVERY_ENGINE
def test_a_further_top_up_takes_the_second_place_to_the_back(engine):
    sim = topped_up(engine)
    submit(sim, None, [bid(7, 3), bid(7, 1)], None)  # slot 1 comes behind the top-up,
    submit(sim, [bid(7, 7)], None, None)  # and slot 0 with 3, 2 of which stood before it
    assert bids(sim) == [[(7, 4, 8), (7, 3, 8)], [], []]
    fills, _ = submit(sim, None, None, [ask(7, 17, "ioc")])
    assert fills == [[5, 0], [4, 0], [0, 17]] and bids(sim)[0] == [(7, 2, 0)]


@EVERY_ENGINE
@pytest.mark.parametrize(("quantity", "left"), [(6, [4, 2]), (5, [4, 1]), (4, [4]), (3, [3])])
def test_a_reduction_takes_the_newest_first(engine, quantity, left):
    sim = topped_up(engine)
    moments = sim.tensors["moments"][0, 0, 0, :, 0].clone()
    submit(sim, [bid(7, quantity)], None, None)
    assert bids(sim)[0] == [(7, units, 8) for units in left]
    assert sim.tensors["moments"][0, 0, 0, :, 0].tolist() == [*moments[: len(left)].tolist(), 0, 0][:2]


@EVERY_ENGINE
def test_the_second_place_becomes_the_first_and_there_is_room_for_a_top_up(engine):
    sim = topped_up(engine)
    submit(sim, None, None, [ask(7, 13, "ioc")])
    assert sim.quotes[0, 0, 0].tolist() == [[7, 0, 0, 0], [7, 2, 0, 0]]
    moment = int(sim.tensors["moments"][0, 0, 0, 1, 0])
    submit(sim, None, None, [ask(7, 1, "ioc")])  # the turn of a slot that keeps all
    assert sim.quotes[0, 0, 0].tolist() == [[7, 2, 0, 0], [7, 0, 0, 0]]
    assert sim.tensors["moments"][0, 0, 0, :, 0].tolist() == [moment, 0]
    submit(sim, [bid(7, 5)], None, None)
    assert bids(sim)[0] == [(7, 2, 0), (7, 3, 0)]


@EVERY_ENGINE
def test_a_top_up_that_trades_or_is_refused_leaves_what_stands(engine):
    """A bid of 4 at 8 stands; asks come down to 8 behind no one, as the slot's own bid would be met by none of them."""
    sim = market(engine, 2)
    submit(sim, [bid(8, 4)], None)
    assert submit(sim, [bid(8, 9, "post-only")], None) == ([[0, 0]] * 2, {})  # nobody sells at 8
    assert bids(sim)[0] == [(8, 4, 0), (8, 5, 0)]
    submit(sim, [bid(8, 9, "ioc")], None)  # never keeps its place
    assert bids(sim) == [[], [], []]


@EVERY_ENGINE
def test_another_price_brings_all_of_a_level(engine):
    sim = topped_up(engine)
    submit(sim, [bid(6, 6)], None, None)
    assert bids(sim) == [[(6, 6, 0)], [], []] and sim.quotes[0, 0, 0, :, 0].tolist() == [6, 6]


# Levels ---------------------------------------------------------------------------------------------------------------


@EVERY_ENGINE
def test_the_inventory_limit_cuts_the_farthest_first(engine):
    sim = market(engine, inventory_limit=10)
    submit(sim, [bid(5, 6), bid(7, 6), bid(6, 6)])
    assert bids(sim) == [[], [(7, 6, 8)], [(6, 4, 0)]]
    sim = market(engine, inventory_limit=10)
    submit(sim, [ask(12, 9), ask(11, 6), ask(11, 6)])  # of equal prices the lower level is nearer
    assert asks(sim) == [[], [(11, 6, 0)], [(11, 4, 0)]]
    sim = market(engine, inventory_limit=10)
    assert submit(sim, [bid(8, 9), bid(0, 3, "market")])[0] == [[3, 0]]  # a market order is the nearest of all
    assert bids(sim)[0] == [(8, 7, 0)]


@EVERY_ENGINE
def test_the_inventory_limit_cuts_what_is_kept_from_the_back(engine):
    sim = market(engine, inventory_limit=10)
    submit(sim, [bid(7, 4), bid(6, 5)])
    submit(sim, [bid(7, 5), bid(6, 5)])
    sim.inventory[:] = 2
    submit(sim, None)
    assert bids(sim) == [[(7, 4, 8), (7, 1, 8)], [(6, 3, 0)], []]
    sim.inventory[:] = 6
    submit(sim, None)
    assert bids(sim) == [[(7, 4, 8)], [], []]


@EVERY_ENGINE
def test_sizes_are_cut_and_crossed_sides_lost_level_by_level(engine):
    sim = market(engine, max_quote_qty=5)
    submit(sim, [((6, 9, ""), (6, 3, "")), ((5, 9, ""), (10, 9, ""))])
    assert bids(sim) == [[(6, 5, 0)], [(5, 5, 0)], []] and asks(sim) == [[], [(10, 5, 0)], []]


@EVERY_ENGINE
def test_levels_are_kept_one_by_one(engine):
    sim = market(engine, 2)
    submit(sim, [bid(7, 4), bid(6, 5)], [ask(7, 2, "ioc")])
    before = sim.tensors["moments"].clone()
    submit(sim, [((50, 9, "keep"), NOTHING), ((5, 5, ""), NOTHING)], None)
    assert bids(sim) == [[(7, 4, 6)], [(5, 5, 0)], []]
    assert sim.tensors["moments"][0, 0, 0, 0, 0] == before[0, 0, 0, 0, 0]
    assert sim.tensors["moments"][0, 0, 1, 0, 0] > before[0, 0, 1, 0, 0]


@EVERY_ENGINE
def test_a_level_stops_at_another_of_the_slot(engine):
    """Slot 1's 2 at 8 stand before slot 0's; the ask takes these, and then comes upon the slot's own bid."""
    sim = market(engine, 2)
    submit(sim, [bid(8, 3), ask(8, 2)], None)
    assert bids(sim)[0] == [(8, 3, 0)] and asks(sim) == [[], [], []]
    sim = market(engine, 2)
    submit(sim, None, [bid(8, 2)])
    fills, rejects = submit(sim, [bid(8, 3), ask(8, 7)], None)
    assert fills == [[0, 2], [2, 0]] and rejects == {(0, 1, 1): 2}
    assert bids(sim)[0] == [(8, 3, 0)] and asks(sim) == [[], [], []]


@EVERY_ENGINE
def test_post_only_is_of_a_level(engine):
    sim = market(engine)
    _, rejects = submit(sim, [bid(9, 1, "post-only"), bid(8, 1, "post-only"), ask(8, 1, "post-only")])
    assert rejects == {(0, 0, 0): 1, (0, 2, 1): 1}
    assert bids(sim) == [[], [(8, 1, 0)], []] and asks(sim) == [[], [], []]


@EVERY_ENGINE
def test_of_levels_at_one_price_the_lower_one_goes_first(engine):
    sim = market(engine, 2)
    submit(sim, [bid(7, 2), bid(7, 2)], None)
    submit(sim, None, [ask(7, 9, "ioc")])
    assert bids(sim) == [[(7, 1, 0)], [(7, 2, 0)], []]


@EVERY_ENGINE
def test_of_levels_at_one_price_the_earlier_one_goes_before(engine):
    sim = market(engine, 2)
    submit(sim, [bid(5, 1), bid(7, 2)], None)
    submit(sim, [bid(7, 2), bid(7, 2)], None)
    submit(sim, None, [ask(7, 9, "ioc")])
    assert bids(sim) == [[(7, 2, 0)], [(7, 1, 0)], []]


@EVERY_ENGINE
def test_levels_off_the_grid_follow_it(engine):
    """Slot 1 takes all asks, and quotes around 14: the grid moves by 6, and what was beyond its end is on it."""
    sim = market(engine, 2, window=2, beat=1)
    submit(sim, [((-3, 2, ""), (20, 3, "")), ((7, 1, ""), (15, 0, ""))], None)
    assert bids(sim) == [[(-3, 2, 0)], [(7, 1, 8)], []] and asks(sim)[0] == [(20, 3, 0)]
    submit(sim, [((-3, 4, ""), (20, 4, "")), ((7, 1, ""), NOTHING)], [bid(9, 8, "ioc")])
    submit(sim, None, [((13, 1, ""), (15, 1, ""))])
    submit(sim, None, None)
    assert sim.price_origin.tolist() == [6]
    assert bids(sim) == [[(-3, 2, 0), (-3, 2, 0)], [(7, 1, 8)], []] and asks(sim)[0] == [(20, 3, 0), (20, 1, 0)]
    fills, _ = submit(sim, None, [((13, 1, "keep"), NOTHING), bid(20, 4, "ioc")])
    assert fills == [[0, 4], [4, 0]] and asks(sim)[0] == []


@EVERY_ENGINE
def test_a_level_beyond_the_far_end_takes_its_price_for_good(engine):
    sim = market(engine)
    submit(sim, [bid(40, 10), bid(-1, 2)])
    assert bids(sim) == [[(15, 2, 0)], [(-1, 2, 0)], []] and int(sim.inventory[0, 0]) == 8
    submit(sim, [bid(40, 3), bid(-1, 2)])  # the price that stands, so that there is a top-up
    assert bids(sim)[0] == [(15, 2, 0), (15, 1, 0)]


@EVERY_ENGINE
def test_accounts_are_of_all_levels(engine):
    sim = market(engine, 2, fee=10, taker_fee=100)
    submit(sim, [bid(7, 1), bid(6, 2), ((0, 0, ""), (10, 1, ""))], None)
    fills, _ = submit(sim, None, [ask(0, 11, "market")])
    assert fills == [[3, 0], [0, 11]] and sim.inventory.tolist() == [[3, -11]]
    assert sim.cash.tolist() == [[-19, 8 * 7 + 19]] and sim.fees.tolist() == [[30, 11 * 110]]
