"""`Simulator`: thousands of markets, advanced together on one engine. The engine-level API, no tasks or rewards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from kineticsim_env import state
from kineticsim_env.config import CLASSES, MarketConfig, class_counts, parameter_rows
from kineticsim_env.engines import choose_engine, make_engine
from kineticsim_env.engines.native import market_stopped
from kineticsim_env.errors import MarketError
from kineticsim_env.population import multinomial_counts

# Agent-events in about a quarter of a second: how long runs are cut for the progress bar and for Ctrl-C.
_EVENTS_PER_PIECE = {"cuda": 5e10, "cpu": 5e7, "numpy": 3e6}

_STOPPED = state.CONSTANTS["kErrorOverflow"] | state.CONSTANTS["kErrorOrigin"]
_REPORTED = 1 << 30  # joins the stop bits of a market's error word once check_errors has raised for it


class Rollout(NamedTuple):
    """What `Simulator.rollout` returns; T decisions, M markets, K slots, n auctions a decision."""

    fills: torch.Tensor  # int64 [T, M, K, 2]: units bought and sold in each decision
    value: torch.Tensor  # int64 [T, M, K]: 2 * cash + inventory * mid2 after each decision, in half ticks
    series: dict[str, torch.Tensor]  # int32 [T, M, n] for each recorded name


class Simulator:
    """An ensemble of M markets with K learned slots each.

    The model is in `docs/model.md`. All prices are absolute ticks; `bid` and `ask` are on the grid, whose tick 0 is at
    `price_origin`. Tensors that properties return are live unless they say otherwise: clone what you keep.
    """

    def __init__(
        self,
        config: MarketConfig | None = None,
        num_markets: int | None = None,
        *,
        engine: str = "auto",
        device: Any = None,
        seed: int | Sequence[int] | np.ndarray | torch.Tensor = 0,
        slots: int | Sequence[str | None] = 0,
        validate: bool = False,
    ) -> None:
        """Open M markets at their opening books.

        Args:
            config: The market; the preset `"paper"` if None. Fields may be per market.
            num_markets: M; the length of the per-market fields, else 1, if None.
            engine: `"auto"`, `"cuda"`, `"cpu"` or `"numpy"`. `"auto"` takes the C++ engine for a single market.
            device: For CUDA, which GPU.
            seed: Market m is seeded `seed + m`; or one seed per market.
            slots: How many learned traders are added, or for each one the class (`"noise"`, `"momentum"`, `"maker"`,
                `"fundamental"`) of the agent that it replaces, None for one that replaces nobody. At most 32.
            validate: Check the error words before every call, at the price of a synchronisation on CUDA.

        Raises:
            TypeError, ValueError: Naming the argument, what came and what is allowed.
            EngineUnavailable: If the engine asked for cannot run here.
        """
        config = MarketConfig() if config is None else config
        if not isinstance(config, MarketConfig):
            raise TypeError(f"config: got {type(config).__name__}, allowed is a MarketConfig")
        self.config = config
        self.num_markets = _check_markets(config, num_markets)
        self.slots = _check_slots(slots)
        if not isinstance(validate, (bool, np.bool_)):
            raise TypeError(f"validate: got {validate!r}, allowed are True and False")
        self.validate = bool(validate)
        reason = "one market is faster there" if self.num_markets == 1 else ""
        self.engine_name, self.device = choose_engine(engine, device, prefer_cpu=reason)
        self.sizes = {"M": self.num_markets, "L": config.num_levels, "K": len(self.slots)}
        self.tensors = state.allocate([*state.MARKET_STATE, *state.SLOT_STATE], self.sizes, self.device)
        self.engine = make_engine(self.engine_name, self.device, self.sizes, dict(self.tensors))
        self._replaced = {name: self.slots.count(name) for name in CLASSES}
        self._counts = class_counts(config, self.num_markets if config.per_market else 1)
        self._set_rows()
        self._per_auction = float(np.max(np.asarray(config.num_agents))) + config.num_levels / 4
        if seed is None:
            raise TypeError(f"seed: got None, allowed is an int, or {self.num_markets} of them")
        self.reset(seed=seed)

    # Advancing --------------------------------------------------------------------------------------------------------

    def run(self, auctions: int, record: Sequence[str] = (), progress: bool | None = None) -> dict[str, torch.Tensor]:
        """Run auctions; standing quotes take part.

        Args:
            auctions: How many, one launch (more when the run is long enough for a progress bar).
            record: Series to record, of `"last_price"`, `"volume"`, `"mid2"` and `"fundamental"`.
            progress: True or False shows or hides the bar; None shows it on runs of over two seconds.

        Returns:
            The recorded series, int32 `[M, auctions]` each.
        """
        auctions = _count("auctions", auctions, 0)
        series = self._new_series(record, auctions)
        self._before()
        piece = max(1, int(_EVENTS_PER_PIECE[self.engine_name] / (self.num_markets * self._per_auction)))
        if auctions <= piece and not progress:
            if auctions:
                self.engine.launch(0, auctions=auctions, **_named_series(series))
            return series
        before = {name: tensor.clone() for name, tensor in self.tensors.items()} if self.device.type == "cpu" else {}
        try:
            self._run_pieces(series, auctions, piece, progress)
        except MarketError:  # the pieces before the one that failed are undone too
            for name, tensor in before.items():
                self.tensors[name].copy_(tensor)
            self.engine.state_changed()
            raise
        return series

    def _run_pieces(self, series: dict[str, torch.Tensor], auctions: int, piece: int, progress: bool | None) -> None:
        with tqdm(
            total=auctions, unit="auction", desc="market", delay=0 if progress else 2, disable=progress is False
        ) as bar:
            for begin in range(0, auctions, piece):
                length = min(piece, auctions - begin)
                parts = self._new_series(tuple(series), length)
                self.engine.launch(0, auctions=length, **_named_series(parts))
                for name, part in parts.items():
                    series[name][:, begin : begin + length] = part
                if self.device.type == "cuda":
                    torch.cuda.synchronize(self.device)  # else the bar would run ahead of the GPU
                bar.update(length)

    def step(self, quotes: Any = None, auctions: int = 1) -> torch.Tensor:
        """Give every slot's new quotes and run auctions with them, in one launch.

        Args:
            quotes: int32 `[M, K, 4]`: bid price, bid quantity, ask price, ask quantity; absolute ticks, quantity 0 is
                no order. None keeps the standing quotes. A tensor must be on the simulator's device.
            auctions: How many.

        Returns:
            int64 `[M, K, 2]`: units bought and sold.
        """
        auctions = _count("auctions", auctions, 0)
        given = None if quotes is None else self._check_quotes(quotes, (self.num_markets, len(self.slots), 4))
        fills = torch.zeros((self.num_markets, len(self.slots), 2), dtype=torch.int64, device=self.device)
        self._before()
        if auctions:
            one = None if given is None else given[None]  # engines take [T, M, K, ...]
            self.engine.launch(0, auctions=auctions, new_quotes=one, fills=fills[None])
        return fills

    def rollout(self, quotes: Any, auctions: int = 1, record: Sequence[str] = ()) -> Rollout:
        """Play a whole sequence of decisions in one launch.

        Args:
            quotes: int32 `[T, M, K, 4]`, the quotes of each decision, as in `step`.
            auctions: Auctions a decision.
            record: Series to record, as in `run`.

        Returns:
            `Rollout(fills, value, series)`.
        """
        auctions = _count("auctions", auctions, 1)
        given = self._check_quotes(quotes, (None, self.num_markets, len(self.slots), 4))
        decisions = given.shape[0]
        fills = torch.zeros((*given.shape[:3], 2), dtype=torch.int64, device=self.device)
        value = torch.zeros(given.shape[:3], dtype=torch.int64, device=self.device)
        series = self._new_series(record, decisions * auctions)
        self._before()
        if decisions:
            parts = _named_series(series)
            self.engine.launch(
                0, decisions=decisions, auctions=auctions, new_quotes=given, fills=fills, value=value, **parts
            )
        folded = {
            name: part.view(self.num_markets, decisions, auctions).transpose(0, 1) for name, part in series.items()
        }
        return Rollout(fills, value, folded)

    def reset(self, seed: Any = None, mask: Any = None) -> None:
        """Restore the opening book of all markets, or of those in `mask`.

        Args:
            seed: None starts the next episode of the same tape; an int s seeds market m with s + m, at episode 0; or
                one seed per market.
            mask: bool `[M]`; None is all.

        Raises:
            MarketError: If an error word was set since the last look (see `check_errors`); nothing is reset then, and a
                second call goes through.
        """
        seeds = None if seed is None else self._check_seeds(seed)
        chosen = self.check_mask("mask", mask)
        self.check_errors()
        tensors = self.tensors
        if seeds is None:
            tensors["episode"] += chosen
        else:
            tensors["seed"].copy_(torch.where(chosen, seeds, tensors["seed"]))
            tensors["episode"].masked_fill_(chosen, 0)
            self._reseed_population()
        for name in ("t", "volume", "trades", "price_origin", "error"):
            tensors[name].masked_fill_(chosen, 0)
        for name, value in self._opening.items():
            target = tensors[name]
            where = chosen.view(-1, *[1] * (target.dim() - 1))
            target.copy_(torch.where(where, value, target))
        for name in state.SLOT_STATE:
            tensors[name].masked_fill_(chosen.view(-1, *[1] * (tensors[name].dim() - 1)), 0)
        self.engine.state_changed()

    # State ------------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return copies of the whole state, by the names of the state table."""
        self.check_errors()
        return {name: tensor.clone() for name, tensor in self.tensors.items()}

    def load_state_dict(self, saved: Mapping[str, torch.Tensor]) -> None:
        """Take over a state, from any engine or device; a market of the same shape and config goes on bit for bit.

        Raises:
            TypeError, ValueError: If a tensor is missing, unknown, of another shape or dtype, or out of range; the
                present state is untouched then.
        """
        if not isinstance(saved, Mapping):
            raise TypeError(f"state: got {type(saved).__name__}, allowed is a mapping, as state_dict returns it")
        if set(saved) != set(self.tensors):
            odd = sorted(set(saved) ^ set(self.tensors))
            raise ValueError(f"state: got missing or unknown names {odd}, allowed are {sorted(self.tensors)}")
        for name, tensor in self.tensors.items():
            got = saved[name]
            if not isinstance(got, torch.Tensor) or got.dtype != tensor.dtype or got.shape != tensor.shape:
                found = f"{got.dtype} {tuple(got.shape)}" if isinstance(got, torch.Tensor) else type(got).__name__
                raise ValueError(f"state[{name!r}]: got {found}, allowed is {tensor.dtype} {tuple(tensor.shape)}")
        _check_ranges(saved, self.config.num_levels)
        for name, tensor in self.tensors.items():
            tensor.copy_(saved[name])
        self._reseed_population()
        self.engine.state_changed()

    def branch(self) -> Simulator:
        """Return a second simulator in the same state; what happens to one does not touch the other."""
        twin = Simulator(
            self.config,
            self.num_markets,
            engine=self.engine_name,
            device=self.device,
            slots=self.slots,
            validate=self.validate,
        )
        twin.load_state_dict(self.state_dict())
        return twin

    def check_errors(self) -> None:
        """Raise `MarketError` if any market's error word is set that was not yet raised for. Synchronises on CUDA.

        The words are cleared, but those of markets that have stopped: these stay stopped until they are reset.
        """
        words = self.tensors["error"]
        fresh = (words != 0) & (words & _REPORTED == 0)
        if not bool(fresh.any()):
            return
        market = int(torch.nonzero(fresh)[0])
        word, t = int(words[market]), int(self.tensors["t"][market])
        words.copy_(torch.where(words & _STOPPED != 0, words | _REPORTED, 0))
        names = state.CONSTANTS
        if word & _STOPPED:
            raise MarketError(market_stopped(market, t, word))
        what = (
            "a NaN action (its old quote was kept)"
            if word & names["kErrorNanAction"]
            else "an action outside its space (it was clamped)"
        )
        raise MarketError(f"market {market}: got {what}, allowed are finite actions inside the action space")

    def close(self) -> None:
        """Raise what is left in the error words."""
        self.check_errors()

    @property
    def bid(self) -> torch.Tensor:
        """Resting built-in bids, int32 `[M, L]`, live."""
        return self.tensors["bid"]

    @property
    def ask(self) -> torch.Tensor:
        """Resting built-in asks, int32 `[M, L]`, live."""
        return self.tensors["ask"]

    @property
    def last_price(self) -> torch.Tensor:
        """Last clearing price, absolute ticks, int32 `[M]`, a copy."""
        return self.tensors["last_tick"] + self.tensors["price_origin"]

    @property
    def mid2(self) -> torch.Tensor:
        """Doubled absolute mid of the resting built-in book, int32 `[M]`, a copy; one-sided: twice the last price."""
        levels = self.config.num_levels
        ticks = torch.arange(1, levels + 1, dtype=torch.int32, device=self.device)
        best_bid = ((self.bid > 0) * ticks).amax(1) - 1  # products, as they are several times faster than where
        best_ask = levels - ((self.ask > 0) * ticks.flip(0)).amax(1)
        both = (best_bid >= 0) & (best_ask < levels)
        grid = torch.where(both, best_bid + best_ask, 2 * self.tensors["last_tick"])
        return (grid + 2 * self.tensors["price_origin"]).to(torch.int32)

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

    def __repr__(self) -> str:
        """Name the shape and the engine."""
        return (
            f"Simulator(num_markets={self.num_markets}, num_levels={self.config.num_levels}, "
            f"slots={len(self.slots)}, engine={self.engine_name!r}, device='{self.device}')"
        )

    # Inside -----------------------------------------------------------------------------------------------------------

    def _before(self) -> None:
        if self.validate:
            self.check_errors()

    def _new_series(self, record: Sequence[str], length: int) -> dict[str, torch.Tensor]:
        if isinstance(record, str) or not isinstance(record, Iterable):
            raise TypeError(f"record: got {record!r}, allowed is a sequence of {', '.join(state.SERIES)}")
        names = tuple(record)  # an iterator can be read once
        for name in names:
            if name not in state.SERIES:
                raise ValueError(f"record: got {name!r}, allowed are {', '.join(state.SERIES)}")
        shape = (self.num_markets, length)
        return {name: torch.zeros(shape, dtype=torch.int32, device=self.device) for name in names}

    def _check_quotes(self, quotes: Any, shape: tuple[int | None, ...]) -> torch.Tensor:
        if not self.slots:
            raise ValueError(
                "quotes: got quotes, but this simulator has no slots; allowed is None, or Simulator(slots=...)"
            )
        wanted = f"int32 {['T' if size is None else size for size in shape]} on {self.device}".replace("'", "")
        if isinstance(quotes, torch.Tensor):
            given = quotes
        else:
            try:
                array = np.asarray(quotes)
            except ValueError as error:
                raise ValueError(f"quotes: got nested sequences of unequal lengths, allowed is {wanted}") from error
            if array.dtype.kind not in "iu":
                raise TypeError(f"quotes: got {array.dtype}, allowed is {wanted}")
            unfit = array[(array < -(2**31)) | (array >= 2**31)] if array.dtype.itemsize > 2 else array[:0]
            if unfit.size:
                raise ValueError(f"quotes: got {unfit.flat[0]}, allowed are values that fit int32")
            given = torch.from_numpy(np.ascontiguousarray(array, dtype=np.int32)).to(self.device)
        if given.dtype != torch.int32:
            raise TypeError(f"quotes: got {given.dtype}, allowed is {wanted}")
        fits = given.dim() == len(shape) and all(
            want is None or want == have for want, have in zip(shape, given.shape, strict=True)
        )
        if not fits:
            raise ValueError(f"quotes: got shape {list(given.shape)}, allowed is {wanted}")
        if given.device != self.device:
            raise ValueError(f"quotes: got a tensor on {given.device}, allowed is {wanted}")
        return given.contiguous()

    def _check_seeds(self, seed: Any) -> torch.Tensor:
        if isinstance(seed, (bool, float)) or (isinstance(seed, torch.Tensor) and seed.dtype.is_floating_point):
            raise TypeError(f"seed: got {seed!r}, allowed is an int, or {self.num_markets} of them")
        try:
            try:
                array = np.asarray(seed.cpu() if isinstance(seed, torch.Tensor) else seed)
            except ValueError as error:  # nested sequences of unequal lengths
                raise TypeError from error
            if array.dtype.kind not in "iu":
                raise TypeError
            if array.ndim and array.size and int(array.max()) >= 2**63:
                raise ValueError(f"seed: got {array.max()}, allowed is -2^63 to 2^63 - 1")
            if array.ndim == 0:
                first = int(array)
                if not -(2**63) <= first <= 2**63 - self.num_markets:
                    raise ValueError(f"seed: got {seed}, allowed is -2^63 to 2^63 - num_markets")
                array = first + np.arange(self.num_markets, dtype=np.int64)
        except (TypeError, OverflowError) as error:
            raise TypeError(f"seed: got {seed!r}, allowed is an int, or {self.num_markets} of them") from error
        if array.shape != (self.num_markets,):
            raise ValueError(f"seed: got shape {list(array.shape)}, allowed is an int, or {self.num_markets} of them")
        return torch.from_numpy(array.astype(np.int64)).to(self.device)

    def check_mask(self, name: str, mask: Any) -> torch.Tensor:
        """Return a bool mask `[M]` on the device; all True for None."""
        if mask is None:
            return torch.ones(self.num_markets, dtype=torch.bool, device=self.device)
        given = mask if isinstance(mask, torch.Tensor) else np.asarray(mask)
        if given.dtype not in (torch.bool, np.bool_) or tuple(given.shape) != (self.num_markets,):
            raise ValueError(
                f"{name}: got {given.dtype} {list(given.shape)}, allowed is bool [{self.num_markets}] or None"
            )
        return torch.as_tensor(given).to(self.device)

    def _reseed_population(self) -> None:
        if self.config.population == "multinomial":
            seeds = self.tensors["seed"].cpu().numpy()
            self._counts = multinomial_counts(self.config, seeds, np.arange(self.num_markets))
            self._set_rows()

    def _set_rows(self) -> None:
        self.rows = parameter_rows(self.config, len(self._counts), self._counts, self._replaced)
        self.engine.set_parameters(self.rows)
        column = {
            name: torch.from_numpy(self.rows[name].astype(np.int32)).to(self.device)[:, None]
            for name in ("init_price", "init_depth", "fundamental_price")
        }
        ticks = torch.arange(self.config.num_levels, dtype=torch.int32, device=self.device)[None, :]
        price, depth = column["init_price"], column["init_depth"]
        self._opening = {
            "bid": torch.where(ticks == price - 1, depth, 0),
            "ask": torch.where(ticks == price + 1, depth, 0),
            "prev_mid2": 2 * price[:, 0],
            "last_tick": price[:, 0],
            "fundamental_price": column["fundamental_price"][:, 0],
        }


def _named_series(series: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Return recorded series by their names in `struct Launch`."""
    return {f"series_{name}": part for name, part in series.items()}


def _check_markets(config: MarketConfig, num_markets: int | None) -> int:
    lengths = config.per_market
    if num_markets is None:
        return next(iter(lengths.values()), 1)
    count = _count("num_markets", num_markets, 1)
    for name, length in lengths.items():
        if length != count:
            raise ValueError(f"{name}: got {length} per-market values, allowed is num_markets = {count}")
    return count


def _check_slots(slots: int | Sequence[str | None]) -> tuple[str | None, ...]:
    most = state.CONSTANTS["kMaxSlots"]
    if isinstance(slots, str):
        raise TypeError(f"slots: got the string {slots!r}, allowed is a count, or a sequence such as ({slots!r},)")
    if isinstance(slots, (int, np.integer)):
        if _count("slots", slots, 0) > most:
            raise ValueError(f"slots: got {slots}, allowed is up to {most}")
        return (None,) * int(slots)
    if not isinstance(slots, Iterable) or isinstance(slots, (Mapping, Set)):  # the order says which slot is which
        raise TypeError(f"slots: got {slots!r}, allowed is a count up to {most}, or a sequence of classes and None")
    names = tuple(slots)
    if len(names) > most:
        raise ValueError(f"slots: got {len(names)}, allowed is up to {most}")
    for name in names:
        if name is not None and name not in CLASSES:
            raise ValueError(f"slots: got {name!r}, allowed are None, {', '.join(map(repr, CLASSES))}")
    return names


def _count(name: str, value: Any, least: int) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name}: got {value!r}, allowed is a whole number from {least}")
    if not least <= value < 2**31:
        raise ValueError(f"{name}: got {value}, allowed is {least} to 2^31 - 1")
    return int(value)


def _check_ranges(saved: Mapping[str, torch.Tensor], levels: int) -> None:
    """Refuse a state that no market can be in."""

    def refuse(name: str, bad: torch.Tensor, allowed: str) -> None:
        if bool(bad.any()):
            raise ValueError(f"state[{name!r}]: got {saved[name][bad].flatten()[0].item()}, allowed is {allowed}")

    for name in ("bid", "ask"):
        refuse(name, saved[name] < 0, "0 or more")
        refuse(name, (saved[name].sum(1) >= 2**31)[:, None].expand_as(saved[name]), "a side's total below 2^31")
    bids, asks = saved["bid"] > 0, saved["ask"] > 0
    crossed = bids.flip(1).cummax(1).values.flip(1) & asks  # an ask at or below a bid
    refuse("ask", crossed, "above every bid (the book is crossed)")
    wide = {name: saved[name].long() for name in ("price_origin", "fundamental_price", "last_tick", "quotes")}
    refuse("price_origin", wide["price_origin"].abs() > 2**29, "-2^29 to 2^29")
    refuse("fundamental_price", wide["fundamental_price"].abs() > 2**30, "-2^30 to 2^30")
    # A grid that follows quotes without trading leaves the last price behind; its doubled value has to fit an int32.
    last_price = wide["last_tick"] + wide["price_origin"]
    far = (wide["last_tick"].abs() >= 2**30) | (last_price.abs() > 2**29 + 2 * levels)
    refuse("last_tick", far, f"within 2^30, and with price_origin within 2^29 + {2 * levels}")
    refuse("error", saved["error"] != 0, "0 (a market that has stopped needs a reset)")
    for name in ("t", "episode", "volume", "trades"):
        refuse(name, saved[name] < 0, "0 or more")
    refuse("t", saved["t"] >= 2**32, "below 2^32")
    if saved["quotes"].numel():
        quantity = torch.arange(4, device=saved["quotes"].device) % 2 == 1
        refuse("quotes", (wide["quotes"].abs() > 2**30) & ~quantity, "prices within 2^30")
        refuse("quotes", ((wide["quotes"] < 0) | (wide["quotes"] > 2**20)) & quantity, "quantities from 0 to 2^20")
