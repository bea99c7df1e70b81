"""Scripted makers to beat: they quote both sides.

A maker is called with observations float32 `[M, F]` and returns continuous actions float32 `[M, 4]` (bid offset, ask
offset, bid size, ask size in [-1, 1], docs/environment.md). It sees what a learner sees, and the same limits hold for
it. Of a ladder all but `LadderMaker` and `GueantLehalleFernandezTapiaLadder` quote level 0 alone. All but
`RandomQuotes` are of one form, which quoting.py plays, also as a program inside the launch of a step.
"""

from __future__ import annotations

import dataclasses
import math

from kineticsim_env.policies.base import UniformActions, at_least, positive
from kineticsim_env.policies.quoting import Form, Quoting
from kineticsim_env.runtime.values import check_flag, check_number
from kineticsim_env.tasks import MarketMakingTask
from kineticsim_env.tasks.base import ForProfit


@dataclasses.dataclass(frozen=True)
class NoTrade(Quoting):
    """Quotes nothing: the zero that every PnL is measured from."""

    task: MarketMakingTask

    def _form(self) -> Form:
        return Form()


class RandomQuotes(UniformActions):
    """Draws every component of its action uniformly."""

    role = "maker"


@dataclasses.dataclass(frozen=True)
class FixedSpread(Quoting):
    """Quotes `qty` on both sides, `half_spread` ticks from the mid, whatever it holds."""

    task: MarketMakingTask
    half_spread: float = 4.0
    qty: int = 8

    _checks = {"half_spread": check_number, "qty": at_least(0)}

    def _form(self) -> Form:
        return Form(self.half_spread, qty=self.qty)


@dataclasses.dataclass(frozen=True)
class LadderMaker(Quoting):
    """Quotes `qty` at every level of its ladder, on both sides, `spacing` ticks from one level to the next.

    With the inventory q and levels n from 0,

        bid n at mid - half_spread - n * spacing - skew * q,  ask n at mid + half_spread + n * spacing - skew * q

    With `orders_per_side` of 1 it has the quotes of level 0. All levels share the room that the inventory limit leaves,
    the nearest first. What lies further than the task's `max_offset` is at it.

    Attributes:
        half_spread: Ticks from the mid to level 0.
        spacing: Ticks between levels.
        skew: Ticks per unit of inventory, by which all quotes are moved against it.
        qty: Units of each level, on each side.
    """

    task: MarketMakingTask
    half_spread: float = 2.0
    spacing: float = 1.0
    skew: float = 0.0
    qty: int = 4

    _reads = ForProfit
    _checks = {"half_spread": check_number, "spacing": at_least(0), "skew": at_least(0), "qty": at_least(0)}

    def _form(self) -> Form:
        levels = self.task.orders_per_side
        return Form(self.half_spread, self.skew, self.spacing, levels=levels, qty=self.qty)


@dataclasses.dataclass(frozen=True)
class QuietQuotes(Quoting):
    """Quotes while the price is quiet, and stays away after large moves: who trades then may know more.

    With the changes of the mid in the last four decisions, d1 to d4, in ticks, and the inventory q,

        bid at mid - half_spread - skew * q,  ask at mid + half_spread - skew * q,  `qty` units each,
        while the mean of `|d1|` to `|d4|` is below `limit`; else no quotes.

    In the preset `"news"` it earns 2.2 times what the best `FixedSpread` does.

    Attributes:
        half_spread: Ticks from the mid.
        limit: Ticks, of the mean move per decision.
        skew: Ticks per unit of inventory, by which both quotes are moved against it.
        qty: Units on each side.
    """

    task: MarketMakingTask
    half_spread: float = 2.0
    limit: float = 3.0
    skew: float = 0.0
    qty: int = 8

    _reads = ForProfit
    _checks = {"half_spread": check_number, "limit": at_least(0), "skew": at_least(0), "qty": at_least(0)}

    def _form(self) -> Form:
        return Form(self.half_spread, self.skew, qty=self.qty, limit=self.limit)


@dataclasses.dataclass(frozen=True)
class AvellanedaStoikov(Quoting):
    """The maker of Avellaneda and Stoikov (2008), "High-frequency trading in a limit order book", equations 29 and 30.

    It quotes around a reservation price that is moved against its inventory q, `mid - q * risk * tau`, at a half-spread
    of `risk * tau / 2 + ln(1 + gamma / kappa) / gamma`, where `risk` stands for their gamma * sigma^2 (ticks per unit
    and unit of time) and tau is the time left as a share of the episode. With `stationary` tau stays 1, as in their
    section on the infinite horizon, which does better in long episodes.
    """

    task: MarketMakingTask
    risk: float = 0.1
    kappa: float = 0.25
    gamma: float = 0.1
    qty: int = 8
    stationary: bool = True

    _reads = ForProfit
    _checks = {"risk": at_least(0), "kappa": positive, "gamma": positive, "qty": at_least(0), "stationary": check_flag}

    def _form(self) -> Form:
        spread, of_risk = math.log1p(self.gamma / self.kappa) / self.gamma, 0.5 * self.risk
        if self.stationary:
            return Form(spread + of_risk, self.risk, qty=self.qty)
        return Form(spread, self.risk, fading=of_risk, fades=True, qty=self.qty)


@dataclasses.dataclass(frozen=True)
class GueantLehalleFernandezTapia(Quoting):
    """The maker of Gueant, Lehalle and Fernandez-Tapia (2013), "Dealing with the inventory risk".

    Orders come at the rate `A exp(-k d)` at a distance of d ticks; the optimal quotes far from the end of the day have
    the closed-form approximation (of the asymptotic quotes in arXiv:1105.3115; equations 4.6 and 4.7 with xi = gamma of
    Gueant 2017, "Optimal market making"), with the inventory q in lots of `qty` units:

        bid at mid - c1 - (2 q + 1) / 2 * c2,  ask at mid + c1 - (2 q - 1) / 2 * c2,
        c1 = ln(1 + gamma / k) / gamma,  c2 = sqrt(sigma^2 gamma / (2 k A) * (1 + gamma / k)^(1 + k / gamma))

    Unlike the maker of Avellaneda and Stoikov it has no end of the day in it, and it knows how often it will be filled.
    The defaults of `kappa` and `arrivals` are a fit to the fills of `FixedSpread` in the preset `"trading"`.

    Attributes:
        gamma: Risk aversion, per tick and lot.
        kappa: Their k: how fast fills thin out with the distance, per tick.
        arrivals: Their A: lots filled per decision and side by a quote at the mid.
        sigma: Deviation of the price's change in a decision, ticks.
        qty: Units on each side, a lot.
    """

    task: MarketMakingTask
    gamma: float = 0.01
    kappa: float = 0.25
    arrivals: float = 0.3
    sigma: float = 0.85
    qty: int = 8

    _reads = ForProfit
    _checks = {"gamma": positive, "kappa": positive, "arrivals": positive, "sigma": at_least(0), "qty": positive}

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            finite = all(map(math.isfinite, self._spread_and_skew()))
        except ArithmeticError:
            finite = False
        if not finite:
            given = f"gamma {self.gamma!r}, kappa {self.kappa!r}, arrivals {self.arrivals!r}, sigma {self.sigma!r}"
            raise ValueError(f"gamma: expected numbers that give finite quotes, got {given}")

    def _spread_and_skew(self) -> tuple[float, float]:
        """Return c1, and c2 with sigma."""
        ratio, power = self.gamma / self.kappa, 1 + self.kappa / self.gamma
        root = math.sqrt(self.gamma / (2 * self.kappa * self.arrivals) * (1 + ratio) ** power)
        return math.log1p(ratio) / self.gamma, self.sigma * root

    def _form(self) -> Form:
        spread, skew = self._spread_and_skew()
        return Form(spread + 0.5 * skew, skew / self.qty, qty=self.qty)


@dataclasses.dataclass(frozen=True)
class GueantLehalleFernandezTapiaLadder(GueantLehalleFernandezTapia):
    """Quotes at every level what `GueantLehalleFernandezTapia` would once the levels before it were filled.

    In that model a lot stands on each side, and a fill moves the inventory by it, upon which the quotes are the optimal
    ones there. A ladder has them stand beforehand: level n of the bids is the bid at q + n lots, level n of the asks
    the ask at q - n, so with c1, c2 and q as there, and levels n from 0,

        bid n at mid - c1 - (2 (q + n) + 1) / 2 * c2,  ask n at mid + c1 - (2 (q - n) - 1) / 2 * c2,  a lot each

    Levels are c2 apart. Where that is less than a tick several may round to one, which is what the model asks for:
    more lots at that price. All share the room that the inventory limit leaves, the nearest first, so that none is
    quoted beyond it. With `orders_per_side` of 1 it is `GueantLehalleFernandezTapia`. Choices have all levels a tick
    apart, so that tasks with discrete actions are refused with more.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.task.orders_per_side > 1 and self.task.action_type != "continuous":
            asked = "action_type='continuous' with orders_per_side above 1, as choices have levels a tick apart"
            raise ValueError(f"task: expected {asked}, got {self.task.action_type!r}")

    def _form(self) -> Form:
        form = super()._form()
        return dataclasses.replace(form, spacing=form.skew * self.qty, levels=self.task.orders_per_side)
