"""The same markets inside programs of JAX: `make`, and environments in gymnax's and JaxMARL's form (docs/jax.md)."""

try:
    import jax as _jax  # noqa: F401  the library
except ImportError as _error:
    raise ImportError("kineticsim_env.jax: JAX is not found (pip install 'kineticsim-env[jax]')") from _error

from kineticsim_env.jax.env import MarketEnv
from kineticsim_env.jax.learners import ManyLearnersEnv
from kineticsim_env.jax.making import make
from kineticsim_env.jax.markets import MarketParams, MarketState
from kineticsim_env.jax.rollouts import Rollout
from kineticsim_env.jax.states import check

__all__ = ["ManyLearnersEnv", "MarketEnv", "MarketParams", "MarketState", "Rollout", "check", "make"]
