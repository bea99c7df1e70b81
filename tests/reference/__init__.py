"""One market of the second model, event by event, in Python ints: what the engines are compared with.

It is written from the model's description alone, to be read beside it, and not from any engine. Read `words`, `rules`,
`orders`, then the two books, `auction` and `queues`, then `market` (the state and its beats) and `clock` (events,
intervals, decisions). What slots do in environments: `records`, `programs`, and `environment`, which has the episodes.

What does not depend on how engines count: prices are absolute everywhere, so that a shift of the grid moves nothing;
the continuous book is queues of explicit orders, so that `ahead`, best prices and depth are looked up and never kept;
volumes of the auction are sums per tick. What it shares with engines, because the rules say so: cancellation is from a
tick's sum of built-in units, and how many of those stood before a quote is a formula of that sum and of `ahead`.
"""

from .clock import Reference

__all__ = ["Reference"]
