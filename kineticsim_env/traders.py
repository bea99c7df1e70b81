"""Classes of agents that come with the package, written as users write theirs (docs/custom_trader.md)."""

from kineticsim_env.agents.classes import agent
from kineticsim_env.agents.vocabulary import no_order, order

__all__ = ["order_splitter"]

# The shape of both tails: `scale * 65536 // (1 + draw.below(65535))` is `scale` times a Pareto number of exponent 1.


@agent(size=20, largest=1000, parts=16, most_parts=400, reach=2, memory={"side": 0, "left": 0}, largest_order=4096)
def order_splitter(market, own, draw):
    """Trades large orders in many parts, all on one side, and pays at most `reach` ticks more.

    Of each order the number of parts has a Pareto tail, from `parts` up to `most_parts`, and so has the quantity of
    each part, from `size` up to `largest` units. F. Lillo, S. Mike and J. D. Farmer, Physical Review E 71 (2005)
    066122, derive the long memory of order signs from such orders.
    """
    if own.left <= 0:
        own.side = 1 if draw.coin(word=1) else -1
        own.left = min(own.most_parts, own.parts * 65536 // (1 + draw.below(65535, word=1)))
    own.left -= 1
    quantity = min(own.largest, own.size * 65536 // (1 + draw.below(65535)))
    if quantity <= 0:
        return no_order()
    return order(own.side, market.near_mid(own.side * own.reach), quantity)
