"""Environments in the form of training libraries; each library is needed only where its module is imported.

| module | library | what it offers |
|---|---|---|
| `torchrl` | TorchRL, BenchMARL | `TorchRLEnv` |
| `sb3` | Stable-Baselines3 | `SB3VecEnv` |
| `skrl` | skrl | `SkrlEnv` |
| `minari` | Minari | `RecordDataset`, datasets for offline learning |

RLlib and AgileRL take `kineticsim_env.parallel_env` as it is. `docs/libraries.md` has a recipe for each.
"""
