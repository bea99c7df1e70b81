"""The same market twice, with and without an agent's orders: what the orders did, with no noise between the arms.

A market's random words are hashes of its seed, the auction and the agent's index, so an agent that trades changes no
other agent's draws. Two arms with one seed are equal bit for bit until the first order acts, and differ afterwards by
what the orders did and nothing else. `kineticsim_env/envs/counterfactual_episodes.py` does the same for environments.

arms.py      `counterfactual`: any orders on a `Simulator`, and its two arms
causal.py    `causal_impact`: what market orders do to the price, by size and time
impact.py    `block_impact`: the price impact of a block order
"""

from kineticsim_env.counterfactuals.arms import Arm, Counterfactual, counterfactual
from kineticsim_env.counterfactuals.causal import CausalImpact, causal_impact
from kineticsim_env.counterfactuals.impact import BlockImpact, block_impact

__all__ = ("Arm", "BlockImpact", "CausalImpact", "Counterfactual", "block_impact", "causal_impact", "counterfactual")
