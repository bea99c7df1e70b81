"""Training that keeps up with the markets: PPO's update in fused Triton kernels. Loaded only where it is imported.

`PPO` improves a `kineticsim_env.policies.NetworkPolicy` on a `PolicyRollout`.
"""

try:
    import triton  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "kineticsim_env.training needs Triton, which is there on Linux: pip install 'kineticsim-env[training]'",
        name="triton",
    ) from error

from kineticsim_env.policies.rollouts import PolicyRollout
from kineticsim_env.training.ppo import PPO, Launch

__all__ = ["PPO", "Launch", "PolicyRollout"]
