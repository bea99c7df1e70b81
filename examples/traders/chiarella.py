"""Chartists and fundamentalists."""
import kineticsim_env as ks
import numpy as np


@ks.agent(value=8, trend=8, noise=8, lookback=20, news=12, margin=16, max_qty=4, informed=True, memory={"last": "mid2", "gap": 0})
def forecaster(market, own, draw):
    own.gap += 64 * (market.mid2 - own.last) - own.gap // own.lookback
    own.last = market.mid2
    misprice = 64 * (2 * market.fundamental - market.mid2)
    luck = 128 * (draw.offset(own.news, word=1) + draw.offset(own.news, word=2))
    change = (own.value * misprice // 4 + own.trend * own.gap + own.noise * luck) // (own.value + own.trend + own.noise)
    price = (64 * market.mid2 + change) // 128
    margin = draw.below(own.margin)
    if change > 0:
        return ks.order(1, price - margin, 1 + draw.below(own.max_qty, word=3))
    return ks.order(-1, price + margin, 1 + draw.below(own.max_qty, word=3))
