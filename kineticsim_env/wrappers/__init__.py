"""Wrappers for torch output: episode statistics, normalised observations and rewards, features of decisions before.

Gymnasium's own need NumPy. These keep everything on the environment's device, never wait for it, and write their state
in place, so that a step through them can be captured in a `torch.cuda.CUDAGraph` (settings such as
`update_running_mean` are part of what is captured). The order that usually serves:

```python
envs = gymnasium.make_vec("KineticSim/MarketMaking-v0", num_envs=64, output="torch")
envs = RecordEpisodeStatistics(envs)  # first, so that it sees the rewards as they are
envs = NormalizeReward(NormalizeObservation(envs))
```
"""

from kineticsim_env.wrappers.episodes import RecordEpisodeStatistics
from kineticsim_env.wrappers.normalise import NormalizeObservation, NormalizeReward
from kineticsim_env.wrappers.running import RunningMeanStd
from kineticsim_env.wrappers.stack import StackObservation

__all__ = ["NormalizeObservation", "NormalizeReward", "RecordEpisodeStatistics", "RunningMeanStd", "StackObservation"]
