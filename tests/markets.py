"""Markets that several tests play."""

from kineticsim_env.config import MarketConfig
from kineticsim_env.envs.settings import EnvSettings

# The default market of the environments, with few of its orders per decision, of which the NumPy engine makes 2,000 per
# second.
FEW_ORDERS = MarketConfig.preset(EnvSettings.preset, interval=6, beat=3)
