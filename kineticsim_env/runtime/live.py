"""`LiveMarkets`: the tensors of an ensemble of markets, by the names that users know. `Simulator` derives from it."""

from __future__ import annotations

import torch

from kineticsim_env.runtime.layout import LiveTensors


class LiveMarkets:
    """What markets hold now. Nothing is a copy: clone what you keep.

    Attributes:
        tensors: The same and more, by their names in `struct Launch`.
    """

    tensors: LiveTensors

    @property
    def bid(self) -> torch.Tensor:
        """Resting built-in bids, int32 `[M, L]`, live."""
        return self.tensors["bid"]

    @property
    def ask(self) -> torch.Tensor:
        """Resting built-in asks, int32 `[M, L]`, live."""
        return self.tensors["ask"]

    @property
    def price_origin(self) -> torch.Tensor:
        """Absolute price of grid tick 0, int32 `[M]`, live."""
        return self.tensors["price_origin"]

    @property
    def fundamental_price(self) -> torch.Tensor:
        """Fundamental price, absolute ticks, int32 `[M]`, live."""
        return self.tensors["fundamental_price"]

    @property
    def volume(self) -> torch.Tensor:
        """Units traded since the reset, int64 `[M]`, live."""
        return self.tensors["volume"]

    @property
    def trades(self) -> torch.Tensor:
        """Auctions that traded since the reset, int64 `[M]`, live."""
        return self.tensors["trades"]

    @property
    def t(self) -> torch.Tensor:
        """Auctions since the reset, int64 `[M]`, live."""
        return self.tensors["t"]

    @property
    def quotes(self) -> torch.Tensor:
        """Standing quotes of the slots, int32 `[M, K, 4]`, live."""
        return self.tensors["quotes"]

    @property
    def cash(self) -> torch.Tensor:
        """Cash of the slots, ticks x units, int64 `[M, K]`, live."""
        return self.tensors["cash"]

    @property
    def inventory(self) -> torch.Tensor:
        """Inventory of the slots, units, int64 `[M, K]`, live."""
        return self.tensors["inventory"]

    @property
    def fees(self) -> torch.Tensor:
        """Fees paid by the slots, thousandths of a tick, int64 `[M, K]`, live."""
        return self.tensors["fees"]
