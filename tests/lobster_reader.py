"""A reader of LOBSTER's two files, from the description on lobsterdata.com alone: it knows nothing of the package.

It follows the messages order by order, and compares the book that they make with the book file, line by line.
"""

import csv
from decimal import Decimal

NO_ASK, NO_BID = 9999999999, -9999999999


class Reader:
    """What the message file says of a book."""

    def __init__(self):
        self.orders = {}  # id -> [direction, price, size]
        self.time = Decimal(0)

    def message(self, time, kind, order, size, price, direction):
        """Take one line of the message file; refuse what cannot be."""
        assert Decimal(time) >= self.time and -Decimal(time).as_tuple().exponent <= 9  # at most nanoseconds
        self.time = Decimal(time)
        kind, order, size, price, direction = (int(x) for x in (kind, order, size, price, direction))
        assert size > 0 and direction in (-1, 1)
        if kind == 1:
            assert order not in self.orders
            self.orders[order] = [direction, price, size]
            return
        there = self.orders[order]
        assert there[:2] == [direction, price] and kind in (2, 3, 4)
        there[2] -= size
        assert there[2] >= 0 and (there[2] > 0 if kind == 2 else kind != 3 or there[2] == 0)
        if there[2] == 0:
            del self.orders[order]

    def levels(self, direction):
        """Return prices and sizes of a side, best first."""
        sizes = {}
        for side, price, size in self.orders.values():
            if side == direction:
                sizes[price] = sizes.get(price, 0) + size
        return sorted(sizes.items(), reverse=direction == 1)


def read(message_file, orderbook_file, levels):
    """Check both files against each other; return the reader as the files leave it, and how many lines they have."""
    reader, lines = Reader(), 0
    with open(message_file, newline="") as messages, open(orderbook_file, newline="") as books:
        for message, book in zip(csv.reader(messages), csv.reader(books), strict=True):
            reader.message(*message)
            wanted = []
            sides = [reader.levels(-1), reader.levels(1)]
            for level in range(levels):
                for side, nobody in zip(sides, (NO_ASK, NO_BID), strict=True):
                    wanted += side[level] if level < len(side) else (nobody, 0)
            assert [int(x) for x in book] == wanted
            assert wanted[0] > wanted[2]  # never crossed
            lines += 1
    return reader, lines
