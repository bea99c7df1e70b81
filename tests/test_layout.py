"""Numbers that stand for something are read from the header, and the oracle's own are the same."""

import pytest

from kineticsim_env.engines.numpy import actions as numpy_actions
from kineticsim_env.envs.settings import DISABLED, MODES, NEXT_STEP, SAME_STEP
from kineticsim_env.policies.base import MAKER_OFFSETS, ORDER_OFFSETS
from kineticsim_env.runtime import layout
from kineticsim_env.tasks.base import CHOICES, ROLES


def test_enums_have_the_names_that_users_write():
    assert ROLES == ("maker", "momentum", "noise", "executor", "trader", "fundamental")
    assert CHOICES == {
        "decide": ("interval", "fill", "touch"),
        "action_type": ("continuous", "discrete"),
        "reward": ("pnl", "inventory", "asymmetric", "per_unit", "edge"),
        "execution_reward": ("shortfall", "risk_averse", "terminal", "edge"),
        "mark": ("fundamental", "mid", "liquidation"),
        "side": ("random", "buy", "sell"),
        "at_end": ("truncate", "unwind"),
    }
    assert layout.ENUMS["Side"] == {"random": 0, "buy": 1, "sell": -1}
    assert [mode.name for mode in MODES] == ["NEXT_STEP", "SAME_STEP", "DISABLED"]
    assert (NEXT_STEP, SAME_STEP, DISABLED) == (0, 1, 2)


def test_values_count_up_where_they_are_places_in_a_list():
    for name, members in layout.ENUMS.items():
        wanted = (
            [1 << at for at in range(len(members))] if name in ("OrderFlag", "Reject") else list(range(len(members)))
        )
        assert name == "Side" or list(members.values()) == wanted


def test_an_enum_that_cannot_be_read_is_refused():
    assert layout.parse_enums("enum Tie { kTieLowest = 0, kTieTheMid = 7 };") == {"Tie": {"lowest": 0, "the_mid": 7}}
    with pytest.raises(ValueError, match="enum Tie"):
        layout.parse_enums("enum Tie { kTieLowest = 0, kMid = 1 };")


def test_bounds_and_offsets():
    assert layout.parse_constants("constexpr int kOne = 7;\nconstexpr int kTwo = 1 << 20;") == {
        "kOne": 7,
        "kTwo": 2**20,
    }
    assert tuple(numpy_actions.MAKER_OFFSETS) == MAKER_OFFSETS == (1, 2, 3, 4, 6, 8)
    assert ORDER_OFFSETS == (-6, -3, -1, 0, 1, 3, 6)
