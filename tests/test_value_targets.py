"""Value targets of every library on docs/libraries.md against a hand computation; the page's table says what is so."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import value_targets
from value_targets import KINDS, LIBRARIES, MARKETS, PAGE, STEPS, by_hand, by_hand_many, differences

EXACT = 1e-4  # of targets up to 50
BEFORE = ("rsl_rl", "rl_games")  # these bootstrap with the value of the state before the decision
MODULES = {"Stable-Baselines3": "stable_baselines3", "TorchRL": "torchrl", "skrl": "skrl"}


def skip_without(library):
    """Skip where a library is not installed."""
    name = library.partition(",")[0].partition(" ")[0]
    if importlib.util.find_spec(MODULES.get(name, name)) is None:
        pytest.skip(f"{name} is not installed")


def found_in_process(library):
    return {
        kind: {markets: differences(LIBRARIES[library], kind, markets) for markets in (MARKETS, 1)} for kind in KINDS
    }


def found_elsewhere(library):
    """The same in a process of its own."""
    here = Path(value_targets.__file__)
    environ = os.environ | {"PYTHONPATH": os.pathsep.join((str(here.parent.parent), str(here.parent)))}
    done = subprocess.run(
        [sys.executable, str(here), library], capture_output=True, text=True, env=environ, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout.splitlines()[-1])
    return {kind: {int(markets): found for markets, found in row.items()} for kind, row in rows.items()}


def row_of_page(library):
    """The cells of a library in the page's table."""
    table = PAGE.read_text().partition("\n## Value targets\n")[2].partition("\n## ")[0]
    (row,) = (line for line in table.splitlines() if line.startswith(f"| {library} |"))
    return [cell.strip() for cell in row.strip("|").split("|")]


@pytest.mark.parametrize(  # rl_games needs a process of its own
    "library", [pytest.param(name, marks=pytest.mark.slow) if name == "rl_games" else name for name in LIBRARIES]
)
def test_value_targets(library):
    skip_without(library)
    found = (found_elsewhere if library == "rl_games" else found_in_process)(library)
    used, other = ("before", "final") if library in BEFORE else ("final", "before")
    for rows in found.values():
        for sizes in rows.values():
            assert sizes[used] < EXACT
    for kind in ("horizon", "mixed"):
        assert min(found[kind][MARKETS][other], found[kind][MARKETS]["reset"]) > 0.1, "the test would not see a mistake"
    cells = [
        f"{worst:.1f}" if (worst := max(sizes["final"] for sizes in found[kind].values())) > EXACT else "below 0.0001"
        for kind in KINDS
    ]
    state = "the state before the decision" if library in BEFORE else "the last state of the episode"
    assert row_of_page(library) == [library, state, *cells]


def test_the_episodes_end_in_all_ways():
    """In the rollout that is compared: within it, in its last step, and of learners before their market."""
    part = slice(STEPS, 2 * STEPS)
    for kind in KINDS:
        for learner in (by_hand(kind, MARKETS), *by_hand_many(kind, MARKETS).values()):
            cut, final = learner.truncated[part], (learner.terminated & learner.own)[part]
            assert cut.any() == (kind in ("horizon", "mixed")) or kind == "mixed"
            assert final.any() == (kind != "horizon")
        if kind in ("horizon", "deadline", "mixed"):
            one = by_hand(kind, MARKETS)
            assert (one.truncated | one.terminated)[-1].any()
    assert any((~learner.own[part]).any() for learner in by_hand_many("mixed", MARKETS).values())


def test_targets_by_hand():
    """One market, two rewards, an end: from the definition."""
    gamma, trace = value_targets.GAMMA, value_targets.LAMBDA
    shape = (2 * STEPS, 1)
    no = np.zeros(shape, bool)
    seen, final, reward = np.full((2 * STEPS + 1, 1), 2.0), np.full(shape, 2.0), np.zeros(shape)
    reward[-2:, 0], final[-1] = (5.0, 7.0), 3.0
    for end, last in (("cut", 7 + gamma * 3), ("final", 7.0)):
        ends = no.copy()
        ends[-1] = True
        flags = (no, ends) if end == "cut" else (ends, no)
        learner = value_targets.Learner(seen, final, reward, *flags, ~no)
        before = 5 + gamma * ((1 - trace) * 2.0 + trace * last)
        np.testing.assert_allclose(learner.targets()[-2:, 0], (before, last))
