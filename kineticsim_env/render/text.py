"""The `ansi` picture of a market: a ladder of prices in plain text, at most 80 columns by 24 lines."""

from __future__ import annotations

from kineticsim_env.render.recorder import MarketRecorder, Moment

WIDTH, HEIGHT = 80, 24
_HEAD = 5  # lines above the ladder
_BAR = 14


def ticks_text(value: float) -> str:
    """Return a price or an amount in ticks with a half tick where it has one, e.g. `312` or `312.5`."""
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}"


def headline(recorder: MarketRecorder, moment: Moment) -> tuple[str, str]:
    """Return the head of every picture: the market, its time, and the learner's account."""
    time = f"{recorder.unit} {moment.elapsed} of {recorder.horizon}"
    learner = f" | learner {recorder.slot}" if len(recorder.core.roles) > 1 else ""
    scenario = f" | scenario {moment.scenario}" if recorder.core.live_task.scenarios is not None else ""
    place = f"market {recorder.market}{learner} | seed {moment.seed} | episode {moment.episode}{scenario} | {time}"
    amount = recorder.money_path()[-1]
    name = "against arrival" if recorder.spec.has_block else "PnL"
    account = f"inventory {moment.inventory:+d} | {name} {amount:+.1f} ticks"
    if recorder.block:
        word = "buy" if moment.left > 0 else "sell"
        account = f"{f'{abs(moment.left)} left to {word}' if moment.left else 'nothing left'} | {account}"
    return place, account


def text_picture(recorder: MarketRecorder, height: int = HEIGHT) -> str:
    """Return the ladder around the mid with the learner's orders and fills, in so many lines, from 9."""
    moment = recorder.moment
    assert moment is not None
    place, account = headline(recorder, moment)
    prices = f"mid {ticks_text(moment.mid2 / 2)} | last {moment.last_price}"
    if recorder.show_fundamental:
        prices += f" | fundamental {moment.fundamental}"
    if recorder.spec.has_block:
        prices += f" | arrival {ticks_text(moment.arrival2 / 2)}"
    lines = [
        f"{recorder.spec.title} | {place}",
        account + f" | bought {moment.bought} sold {moment.sold}",
        f"{prices} | traded {moment.volume}",
        "",
        f"{'own bid':>8} {'bids':>{_BAR + 5}} {'price':>8}  {'asks':<{_BAR + 5}} {'own ask':<8} fills",
    ]
    return "\n".join(line[:WIDTH].rstrip() for line in lines + _ladder(moment, height - _HEAD))


def _ladder(moment: Moment, rows: int) -> list[str]:
    """Return the ladder's lines, highest price first; a mid on a half tick has a line of its own."""
    half = moment.mid2 % 2
    above = (rows - 1) // 2
    top = (moment.mid2 + 1) // 2 + above - half
    prices = list(range(top, top - rows + half, -1))
    lines = [_row(moment, price) for price in prices]
    if half:
        lines.insert(prices.index(moment.mid2 // 2 + 1) + 1, f"{'':28} {'- mid -':>8}")
    return lines


def _row(moment: Moment, price: int) -> str:
    bid, ask = moment.depth(price, "bid"), moment.depth(price, "ask")
    (bid_qty, bid_ahead), (ask_qty, ask_ahead) = (moment.own(side).get(price, (0, None)) for side in ("bid", "ask"))
    own_bid = _own(bid_qty, bid_ahead) if bid_qty else ""
    own_ask = _own(ask_qty, ask_ahead) if ask_qty else ""
    bids = f"{_bar(bid, bid_ahead)[::-1]:>{_BAR}} {bid or '':>4}"
    asks = f"{ask or '':<4} {_bar(ask, ask_ahead):<{_BAR}}"
    notes = []
    bought_at, sold_at = moment.filled_rows()
    if price == bought_at and moment.bought:
        notes.append(f"+{moment.bought}")
    if price == sold_at and moment.sold:
        notes.append(f"-{moment.sold}")
    mark = "<" if price == moment.last_price else " "
    middle = "=" if 2 * price == moment.mid2 else " "
    return f"{own_bid:>8} {bids} {middle}{price:>7}{mark} {asks} {own_ask:<8} {' '.join(notes)}"


def _own(qty: int, ahead: int | None) -> str:
    """Return an own quote: its quantity, and in brackets the units ahead of it where it queues."""
    return str(qty) if ahead is None else f"{qty} ({ahead})" if qty < 100 and ahead < 1000 else f"{qty}({ahead})"


def _bar(resting: int, ahead: int | None) -> str:
    """Return a bar from the price outwards; units behind the own quote are colons."""
    length = min(resting, _BAR)
    first = length if ahead is None else min(ahead, length)
    return "#" * first + ":" * (length - first)
