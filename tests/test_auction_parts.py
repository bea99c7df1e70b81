"""The count of an auction's instructions by part: how valgrind's output and chains of functions are read."""

import json

import pytest

from scripts.benchmarks import auction_parts as parts

AUCTION = ["ks::Market<true>::auction(ks::Quote const*)", "bool ks::trade<true, ks::Market<true> >(...)"]
# Instructions of two libraries; the third is the cost of a call, which is counted where it ran.
OUTPUT = """
ob=(1) /usr/lib/libc.so.6
fn=(1) malloc
0x100 0 7
ob=(2) /cache/cpu-x/kineticsim.so
fn=(2) auction
0x2000 12 5
+4 13 6
calls=1 0x3000 0
* 14 900
-4 15 1
ob=(1)
0x104 0 9
ob=(2)
0x3000 1 4
"""


def test_instructions_of_the_library_alone_are_counted_once():
    assert parts.addresses(OUTPUT, "kineticsim.so") == {0x2000: 6, 0x2004: 6, 0x3000: 4}


@pytest.mark.parametrize(
    ("inner", "part"),
    [
        (["ks::Market<true>::submit_orders(ks::Seen const&, int)", "ks::Orders::submit<...>(...)", "ks::mix64"], 4),
        (["ks::Orders::submit<...>(...)", "ks::Words::draw(unsigned long, int)", "ks::mix64"], 3),
        (["ks::Market<true>::submit_orders(...)", "ks::Market<true>::place_orders(int)"], 5),
        (["ks::Book::cancel(int, unsigned long)", "ks::mix64(unsigned long)"], 0),
        (["ks::Market<true>::clear(ks::Seen const&, ...)", "ks::Market<true>::find_volume(int, int, int, int)"], 6),
        (["ks::Market<true>::end_auction()"], 9),
    ],
)
def test_an_instruction_counts_for_the_outermost_part(inner, part):
    assert parts.part_of([*AUCTION, *inner]) == list(parts.PARTS)[part]
    assert parts.part_of(AUCTION) == parts.REST


def test_the_record_has_every_workload_and_part():
    counts = json.loads(parts.RECORD.read_text())["counts"]
    assert list(counts) == list(parts.WORKLOADS)
    for found in counts.values():
        assert list(found) == [*parts.PARTS, parts.REST]
        assert found[parts.REST] < 0.1 * sum(found.values())
    assert counts["trading, 20 agents"]["cancellation"] > 0 == counts["paper, 256 agents"]["cancellation"]
