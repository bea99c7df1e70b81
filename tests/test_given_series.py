"""Series that users hand over: the same in every form that holds the same numbers, and refused by name where not."""

import numpy as np
import pytest
import torch
from messages import mentions

from kineticsim_env.statistics import measure_series

PRICE = 1000 + np.cumsum(np.random.default_rng(0).integers(-5, 6, 300))
WIDE = np.empty(600, np.int64)
WIDE[::2] = PRICE

FORMS = {
    "list": PRICE.tolist(),
    "tuple": tuple(PRICE),
    "rows": [PRICE.tolist()],
    "objects": PRICE.astype(object),
    "uint16": PRICE.astype(np.uint16),
    "uint64": PRICE.astype(np.uint64),
    "float16": PRICE.astype(np.float16),
    "long double": PRICE.astype(np.longdouble),
    "big-endian": PRICE.astype(">i4"),
    "big-endian floats": PRICE.astype(">f8"),
    "strided": WIDE[::2],
    "backwards": PRICE[::-1].copy()[::-1],
    "nothing masked": np.ma.masked_array(PRICE, False),
    "tensor": torch.tensor(PRICE),
    "half": torch.tensor(PRICE).half(),
    "uint32 tensor": torch.tensor(PRICE.astype(np.uint32)),
}


def volatility(values):
    return measure_series({"last_price": values}, ["volatility"])["volatility"].value


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_the_same_numbers_is_the_same(form):
    assert volatility(FORMS[form]).tolist() == [np.diff(PRICE).std(ddof=1)]


def test_columns_of_tables():
    pandas = pytest.importorskip("pandas")
    volume = PRICE % 7
    frame = pandas.DataFrame({"last_price": pandas.Series(PRICE, dtype="Int64"), "volume": volume})
    names = ["volatility", "volume", "volume_volatility"]
    wanted = measure_series({"last_price": PRICE, "volume": volume}, names)
    for given in (frame, dict(frame), frame.to_dict("list")):
        found = measure_series(given, names)
        assert all(found[name].value == wanted[name].value for name in names)


def with_one(value, kind=np.float64):
    changed = PRICE.astype(kind)
    changed[7] = value
    return changed


WRONG = {
    "infinite": (with_one(np.inf), "it has inf"),
    "not a number": (with_one(np.nan), "it has nan"),
    "a half": (with_one(5.5), "prices in ticks, got .*; it has 5.5"),
    "far beyond int64": (with_one(1e30), "expected numbers below 2^31 in size, got .* with larger ones"),
    "the least int64": (with_one(-(2**63), np.int64), "expected numbers below 2^31 in size, got .* with larger ones"),
    "a large uint64": (with_one(2**64 - 1, np.uint64), "expected numbers below 2^31 in size, got .* with larger ones"),
    "2^31": (with_one(2**31, np.int64), "expected numbers below 2^31 in size, got .* with larger ones"),
    "masked": (np.ma.masked_array(PRICE, PRICE == PRICE[7]), "with masked values"),
    "texts": ([str(price) for price in PRICE], "expected whole numbers"),
    "ragged": ([[1, 2], [3]], "expected whole numbers"),
    "a generator": ((price for price in PRICE), "expected whole numbers"),
    "booleans": (PRICE > 1000, "expected whole numbers"),
    "complex": (PRICE + 0j, "expected whole numbers"),
    "no numbers": ([], "expected whole numbers"),
    "a number": (5, "expected whole numbers"),
    "a gap in objects": ([1, None, 2], "expected whole numbers"),
}


@pytest.mark.parametrize("form", WRONG)
def test_what_is_no_series_is_refused_by_its_name(form):
    values, said = WRONG[form]
    with pytest.raises((TypeError, ValueError), match="^series: expected .*, got 'last_price' ") as caught:
        volatility(values)
    assert mentions(str(caught.value), said)


def test_a_name_of_no_series_is_refused():
    with pytest.raises(ValueError, match="^series: expected one of last_price, volume.*got 'close'"):
        measure_series({"close": PRICE}, ["volatility"])
