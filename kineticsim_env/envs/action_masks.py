"""`ActionMasks`: which discrete actions are void: choices with an order that the pre-trade limits cut to nothing.

Such a choice does what another one without that order does, so nothing is lost by never taking it. A maker's side that
is kept counts as an order: where none is allowed, none stands. To keep both sides is void where no order is allowed on
either, and for who has ended. Made by the environments that are asked for `action_mask`; docs/environment.md has the
rule.
"""

from __future__ import annotations

import torch

from kineticsim_env.envs.core import EnvCore
from kineticsim_env.runtime import layout
from kineticsim_env.runtime.roles import SPECS
from kineticsim_env.tasks.base import MARKET_FEATURES

_PARAMETERS = tuple(layout.PARAMS_FIELDS)
_REMAINING, _SIDE = MARKET_FEATURES, MARKET_FEATURES + 3  # places in the observation of who has a block, a side


class ActionMasks:
    """The masks of the learners of one role.

    Attributes:
        mask: bool `[M, n, C]`, False where a choice is void, of the markets as they were at the last `update`.
    """

    @torch.inference_mode(False)  # tensors made in inference mode cannot be written to outside of it
    def __init__(self, core: EnvCore, role: str, slots: slice) -> None:
        """Know which choices buy and which sell."""
        choices = torch.arange(core.task.num_choices(role), device=core.device)
        per_side, spec, form = int(len(choices) ** 0.5), SPECS[role], core.task.action_form(role)
        self._sided = form.name == "order"  # whose side is given
        self._keeps_both = form.keeps == 1  # by the last choice
        if form.name == "quotes":
            buys, sells = choices // per_side > 0, choices % per_side > 0
        elif form.name == "trade":
            most = (len(choices) - 1) // 2
            buys, sells = (choices > 0) & (choices <= most), choices > most
        else:
            buys = sells = choices > 0
        # Rows for who can neither buy nor sell, can sell, can buy, can do both.
        self._table = torch.stack([(buy | ~buys) & (sell | ~sells) for buy in (False, True) for sell in (False, True)])
        self._core, self._slots, self._has_target = core, slots, not spec.for_profit
        shape = (*core.simulator.inventory[:, slots].shape, len(choices))
        self.mask = torch.ones(shape, dtype=torch.bool, device=core.device)

    @torch.no_grad()
    def update(self) -> torch.Tensor:
        """Write and return the masks for the next decision. Waits for nothing on a GPU."""
        core, slots = self._core, self._slots
        parameters = core._engine.parameters().to(core.device)
        limit, largest = (parameters[:, _PARAMETERS.index(name), None] for name in ("inventory_limit", "max_quote_qty"))
        inventory = core.simulator.tensors["inventory"][:, slots]
        acts = (largest > 0) > core.tensors["ended"][:, slots]  # and not ended
        unlimited = limit < 0
        can_buy = acts & (unlimited | (inventory < limit))
        can_sell = acts & (unlimited | (inventory > -limit))
        either = can_buy | can_sell if self._keeps_both else None
        if self._sided:
            seen = core.tensors["observation"][:, slots]
            can_buy = can_sell = torch.where(seen[..., _SIDE] > 0, can_buy, can_sell)
            if self._has_target:
                can_buy = can_sell = can_buy & (seen[..., _REMAINING] != 0)
        rows = (2 * can_buy + can_sell).flatten()
        torch.index_select(self._table, 0, rows, out=self.mask.view(len(rows), -1))
        if either is not None:
            self.mask[..., -1] = either
        return self.mask
