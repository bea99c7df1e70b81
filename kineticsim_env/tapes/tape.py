"""`Tape`: every order, cancellation and trade of some markets, as columns, tables and files.

A tape is played, not recorded: orders are hashes, so the C++ engine's markets are played again from a copy of their
state, order by order (cuda/tape/), whenever rows are asked for. Files are written as it plays, in chunks.
"""

from __future__ import annotations

import collections
import ctypes
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kineticsim_env.engines.native import market_stopped
from kineticsim_env.errors import MarketError
from kineticsim_env.runtime.files import check_file, replacing
from kineticsim_env.runtime.flow_table import FlowTable
from kineticsim_env.runtime.values import check_instance, progress_bar
from kineticsim_env.tapes import library
from kineticsim_env.tapes.branches import Branch

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from kineticsim_env.data.events import OrderEvents

_CHUNK = 1 << 19  # rows, about
_COLUMNS = ("interval", "event", "time", "market", "order_id", "agent", "agent_class", "type", "side", "price",
            "quantity", "marketable", "counterparty_id", "remaining", "reason")  # fmt: skip
_FIELDS = {"order_id": "order", "counterparty_id": "counterparty", "agent_class": "who", "type": "kind"}  # of rows


class Submitted(NamedTuple):
    """What slots submit: of T decisions of `Script.intervals` / T intervals each."""

    quotes: np.ndarray  # int32 [T, m, K, N, 4], `Launch.new_quotes`; N is no axis with one order per side
    flags: np.ndarray | None  # int32 [T, m, K, N], `Launch.order_flags`, likewise


class Script(NamedTuple):
    """What markets are told while a tape plays."""

    intervals: int
    submitted: Submitted | None
    fundamental: np.ndarray | None  # int32 [m, intervals], as each of them begins


class Part(NamedTuple):
    """Rows of one market in the order in which they happened."""

    market: int
    rows: np.ndarray  # library.ROW [n]


class Tape:
    """Every order, cancellation and trade of some markets, market after market, each in the order of time.

    Columns, n rows each; docs/tapes.md says more:

    - `interval`, `event`, `market`: int64. An event is one of the clock's; without a clock it is the interval's number.
    - `time`: float64, in intervals; of an order flow int64, nanoseconds since the reset.
    - `order_id`: int64, from 1 on, of each market its own.
    - `agent`: int32, its index; a slot's number; -1 of what rested as the tape began, and of an order flow's.
    - `agent_class`: a built-in class, a class that a user has written, `"slot"`, or `"resting"`. Of an order flow
      `"fleeting"` or `"lasting"`, the life of a limit order, and `"market"`.
    - `type`: `"submit"`, `"cancel"` or `"trade"`.
    - `side`: `"buy"` or `"sell"`, of the order `order_id`.
    - `price`: int32, absolute ticks. `quantity`: int32, units that came, went or traded.
    - `marketable`: bool, whether the order was at any price.
    - `counterparty_id`: int64, of a trade the other order, else 0. In continuous trading that is the one that came, in
      a call auction the one that sold.
    - `remaining`: int32, units left of `order_id` after the row.
    - `reason`: why an order went: `"cancelled"`, `"residue"`, `"expired"`, `"withdrawn"`, `"left the grid"`; else `""`.
    """

    def __init__(self, branch: Branch, script: Script, progress: bool | None = None) -> None:
        """See `Simulator.tape`, which makes one."""
        self._branch = check_instance("branch", branch, Branch)
        self._script, self._progress = script, progress
        self._spans: dict[int, list[int]] = {}  # the times of flows, of markets that have been played
        library.load()  # else it would be missed when rows are asked for
        classes = [kind.path if kind.name in library.WHO else kind.name for kind in branch.config.agents]
        self._texts = {"agent_class": (*library.WHO, *classes), "type": library.KINDS,
                       "side": library.SIDES, "reason": library.REASONS}  # fmt: skip

    @property
    def markets(self) -> list[int]:
        """The markets' numbers in their simulator."""
        return list(self._branch.markets)

    @property
    def intervals(self) -> int:
        """How many intervals of each market the tape has."""
        return self._script.intervals

    @property
    def begins(self) -> np.ndarray:
        """The interval that each market begins with, int64 `[m]`."""
        return self._branch["t"].numpy()

    @property
    def is_continuous(self) -> bool:
        """Whether orders trade as they come."""
        return self._branch.config.is_continuous

    @property
    def is_flow(self) -> bool:
        """Whether its orders are those of a fitted order flow, which has a time of its own."""
        return self._branch.config.is_flow

    def __repr__(self) -> str:
        return f"Tape(markets={self.markets}, intervals={self.intervals})"

    # Playing ----------------------------------------------------------------------------------------------------------

    def parts(self) -> Iterator[Part]:
        """Play, and yield rows as they come: of one market after the other, some hundred thousand at a time.

        Raises:
            MarketError: If a market has to stop.
            RuntimeError: If the tape and the C++ engine differ, after any interval; no such tape is returned.
        """
        for number, market in enumerate(self._branch.markets):
            for rows in self.rows(number):
                if len(rows):
                    yield Part(market, rows)

    def rows(self, number: int) -> Iterator[np.ndarray]:
        """Play market `number` of these, and yield its rows, `library.ROW`; errors are those of `parts`.

        The first that it yields are the orders that rest as the tape begins.
        """
        engine, of = self._branch.engine(number), library.load()
        bar = progress_bar(self._progress, "tape", "interval", self.intervals)
        player, begin = engine.open(of), engine.time if self.is_flow else 0
        try:
            yield library.rows_of(of, player)  # what rests as the tape begins
            for quotes, flags, count, fundamental in self._pieces(number):
                ended = of.ks_tape_play(player, _address(quotes), _address(flags), count, _address(fundamental))
                market = self._branch.markets[number]
                if ended == library.STOPPED:
                    raise MarketError(market_stopped(market, engine.t, engine.error))
                if ended == library.DIFFERS:
                    name = ctypes.string_at(of.ks_tape_difference(player)).decode()
                    raise RuntimeError(
                        f"tape: at interval {engine.t} of market {market} {name} is not what the C++ engine has, so "
                        "this tape is wrong; please report it"
                    )
                bar.update(count)
                if of.ks_tape_count(player) >= _CHUNK:
                    yield library.rows_of(of, player)
            if self.is_flow:
                self._spans[number] = [begin, engine.time]
            yield library.rows_of(of, player)
        finally:
            of.ks_tape_close(player)
            bar.close()

    def _pieces(self, number: int) -> Iterator[tuple[np.ndarray | None, np.ndarray | None, int, np.ndarray | None]]:
        """Yield what is played at a time: quotes of a decision that begins and their flags, intervals, fundamentals."""
        intervals, submitted, path = self._script
        quotes, flags = (None, None) if submitted is None else submitted
        rows = int(self._branch.parameter("interval")[number] or self._branch.parameter("num_agents")[number])
        most = max(1, _CHUNK // (4 * max(rows, 1)))
        length = intervals if quotes is None else intervals // len(quotes)
        for begin in range(0, intervals, max(length, 1)):
            given, words = (None if part is None else part[begin // length, number] for part in (quotes, flags))
            for first in range(begin, begin + length, most):
                count = min(most, begin + length - first)
                values = None if path is None else path[number, first : first + count]
                yield (given if first == begin else None), (words if first == begin else None), count, values

    # As columns -------------------------------------------------------------------------------------------------------

    @functools.cached_property
    def _parts(self) -> list[Part]:
        return list(self.parts())

    @functools.cached_property
    def columns(self) -> dict[str, np.ndarray]:
        """All columns by name, NumPy arrays `[n]`; texts as `U` arrays. Played once, and kept."""
        coded = self._coded()
        return {name: np.array(self._texts[name])[x] if name in self._texts else x for name, x in coded.items()}

    def __len__(self) -> int:
        return sum(len(part.rows) for part in self._parts)

    def to_pandas(self) -> pandas.DataFrame:
        """Return a table, columns of few texts as categories. Needs pandas (`pip install "kineticsim-env[data]"`)."""
        import pandas

        found: dict[str, Any] = self._coded()
        for name, texts in self._texts.items():
            found[name] = pandas.Categorical.from_codes(found[name], list(texts))
        return pandas.DataFrame(found)

    def to_parquet(self, path: str | Path, **options: Any) -> None:
        """Write a Parquet file as the tape plays, so memory does not grow with its length.

        Needs pyarrow (`pip install "kineticsim-env[data]"`).

        Args:
            path: The file.
            **options: Of `pyarrow.parquet.ParquetWriter`, such as `compression="zstd"`.
        """
        import pyarrow.parquet

        check_file("path", Path(path))
        schema = self._table(Part(0, np.empty(0, library.ROW))).schema
        with replacing(Path(path)) as place, pyarrow.parquet.ParquetWriter(place, schema, **options) as writer:
            for part in self.parts():
                writer.write_table(self._table(part))

    def to_lobster(self, folder: str | Path, **options: Any) -> list[tuple[str, str]]:
        """Write LOBSTER's two files for each market of continuous trading; see `lobster.write`."""
        from kineticsim_env.tapes import lobster

        return lobster.write(self, folder, **options)

    def events(self, number: int = 0, interval_seconds: float | None = None, *, clock: str = "even") -> OrderEvents:
        """Return what happened to the orders of one of the markets, under continuous trading; see `lobster.events`."""
        from kineticsim_env.tapes import lobster

        return lobster.events(self, number, interval_seconds, clock=clock)

    def _coded(self) -> dict[str, np.ndarray]:
        """Return all columns; those of few texts as numbers of texts."""
        rows = np.concatenate([np.empty(0, library.ROW), *(part.rows for part in self._parts)])
        markets = np.repeat([part.market for part in self._parts], [len(part.rows) for part in self._parts])
        return self._columns_of(markets.astype(np.int64), rows)

    def _table(self, part: Part) -> pyarrow.Table:
        import pyarrow

        found: dict[str, Any] = dict(self._columns_of(np.full(len(part.rows), part.market, np.int64), part.rows))
        for name, texts in self._texts.items():
            found[name] = pyarrow.DictionaryArray.from_arrays(found[name].astype(np.int8), list(texts))
        return pyarrow.table(found)

    def _columns_of(self, markets: np.ndarray, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return columns of rows, coded likewise."""
        made = {"time": self.time(rows["time"]), "market": markets, "marketable": rows["marketable"] != 0}
        found = {name: made[name] if name in made else rows[_FIELDS.get(name, name)] for name in _COLUMNS}
        return {name: np.ascontiguousarray(values) for name, values in found.items()}

    def time(self, time: np.ndarray) -> np.ndarray:
        """Return the times of rows as the column `time` has them: in intervals, or nanoseconds of an order flow."""
        return time if self.is_flow else time / self._length

    @property
    def _length(self) -> int:
        """Of an interval, in what rows' times count in: events, or auctions."""
        return int(self._branch.parameter("interval")[0]) if self._branch.config.uses_clock else 1

    def span(self, number: int) -> np.ndarray:
        """Return when the tape of market `number` of these begins and ends, as `time` has it, `[2]`.

        When an order flow ends is known when it has been played.
        """
        if not self.is_flow:
            return np.array([0.0, self.intervals]) + int(self.begins[number])
        if number not in self._spans:
            collections.deque(self.rows(number), maxlen=0)
        return np.array(self._spans[number])

    def words_of(self, number: int) -> list[int]:
        """Return the seed and the episode of market `number` of these, whole numbers from 0."""
        return [int(self._branch[name][number]) % 2**64 for name in ("seed", "episode")]

    def flow(self, number: int) -> FlowTable | None:
        """Return the order flow of market `number` of these, or None."""
        return self._branch.flow(number)


def _address(values: np.ndarray | None) -> ctypes.c_void_p | None:
    """Return where an array of a caller's is, who keeps it."""
    return None if values is None else ctypes.c_void_p(values.ctypes.data)
