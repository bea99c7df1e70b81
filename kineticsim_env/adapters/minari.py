"""`RecordDataset`: a wrapper that writes the episodes of a vector environment as a dataset of Minari.

What is recorded stays on the environment's device, and is copied to the host once per `window` steps, where it is cut
into episodes. Minari's own storage writes them, so its readers take them. Needs `pip install ".[minari]"`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import minari
import numpy as np
import torch
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv, VectorWrapper
from minari.data_collector import EpisodeBuffer
from minari.dataset.minari_dataset import parse_dataset_id
from minari.dataset.minari_storage import MinariStorage
from minari.namespace import create_namespace, list_local_namespaces
from minari.storage import get_dataset_path

from kineticsim_env.adapters.environments import open_vector_env
from kineticsim_env.envs.actions import form_of
from kineticsim_env.runtime.checks import check_mask, check_seeds
from kineticsim_env.runtime.values import check_count, check_instance

# Arguments that `gymnasium.make_vec` takes and `gymnasium.make` does not.
_OF_VECTORS = frozenset(
    "num_envs vectorization_mode output autoreset_mode stagger copy validate render_mode render_market".split()
)


class RecordDataset(VectorWrapper):
    """Records whole episodes; put it outside of wrappers whose observations, actions and rewards are to be recorded.

    Episodes that have not ended when a market is reset, or at the end, are left out. With the default `stagger` first
    episodes begin at a later time of the episode; `stagger=False` makes all of them whole.
    """

    @torch.inference_mode(False)  # tensors made in inference mode cannot be written to outside of it
    def __init__(self, env: VectorEnv, dataset_id: str, window: int | None = None, data_format: str = "hdf5") -> None:
        """Begin a dataset.

        Args:
            env: A vector environment with torch output and SAME_STEP autoreset, of one learner per market.
            dataset_id: As in Minari, such as `"kineticsim/maker-v0"`; it must not exist.
            window: Steps that are kept on the device, and then written; the horizon if None.
            data_format: `"hdf5"`, or another one that Minari has.

        Raises:
            TypeError, ValueError: Naming the argument, what came and what is allowed.
        """
        super().__init__(open_vector_env("RecordDataset", env, None, "torch", {}))
        base: Any = env.unwrapped
        self._window = base.core.task.horizon if window is None else check_count("window", window, 1)
        self._device, self._number = base.device, 0  # steps in the window
        observation, (dtype, action) = env.single_observation_space.shape or (), form_of(env.single_action_space)
        shapes = {"observations": observation, "nexts": observation, "actions": action}
        shapes |= dict.fromkeys(("rewards", "terminations", "truncations"), ())
        kinds = {
            "actions": dtype,
            "terminations": torch.bool,
            "truncations": torch.bool,
        }
        self._rows = {
            name: torch.zeros(
                (self._window, self.num_envs, *shape), dtype=kinds.get(name, torch.float32), device=self._device
            )
            for name, shape in shapes.items()
        }
        self._past = {name: rows[:0].cpu().numpy() for name, rows in self._rows.items()}  # of episodes that run
        self._begins = np.zeros(self.num_envs, np.int64)  # where the episodes that run begin in it
        self._seeds: list[int | None] = [None] * self.num_envs  # of these episodes
        self._observation: torch.Tensor | None = None
        self._storage = _new_storage(check_instance("dataset_id", dataset_id, str), env, data_format)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment; what its markets had played of their episodes is left out."""
        mask = (options or {}).get("reset_mask")
        observation, infos = self.env.reset(seed=seed, options=options)
        self.flush()
        every = torch.ones(self.num_envs, dtype=torch.bool)
        chosen = (
            every.numpy() if mask is None else check_mask("reset_mask", mask, self.num_envs, self._device).cpu().numpy()
        )
        self._begins[chosen] = len(self._past["rewards"])
        seeds = None if seed is None else check_seeds(seed, self.num_envs, self._device).tolist()
        for market in chosen.nonzero()[0]:
            self._seeds[market] = None if seeds is None else seeds[market]
        self._observation = observation
        return observation, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step the environment, and record."""
        place, rows = self._number, self._rows
        if self._observation is not None:  # else the environment says that it has to be reset
            rows["observations"][place].copy_(self._observation)  # before the step, which may write into it
        results = self.env.step(actions)
        self._observation, reward, terminated, truncated, infos = results
        rows["actions"][place].copy_(torch.as_tensor(actions).detach())
        found = {"nexts": infos["final_obs"], "rewards": reward, "terminations": terminated, "truncations": truncated}
        for name, values in found.items():
            rows[name][place].copy_(values)
        self._number += 1
        if self._number == self._window:
            self.flush()
        return results

    def flush(self) -> None:
        """Copy what is on the device to the host, and write the episodes that have ended."""
        new = {name: rows[: self._number].cpu().numpy() for name, rows in self._rows.items()}
        self._number, known = 0, len(self._past["rewards"])
        past = {name: np.concatenate([rows, new[name]]) for name, rows in self._past.items()}
        ended = past["terminations"][known:] | past["truncations"][known:]
        episodes = [self._episode(past, market, known + step) for step, market in np.argwhere(ended)]
        if episodes:
            self._storage.update_episodes(episodes)
        first = int(self._begins.min())  # what came before has been written
        self._past = {name: rows[first:].copy() for name, rows in past.items()}
        self._begins -= first

    def _episode(self, past: dict[str, np.ndarray], market: int, last: int) -> EpisodeBuffer:
        """Return the episode of a market that ended with a step, and begin the next one."""
        steps = slice(self._begins[market], last + 1)
        columns: dict[str, Any] = {name: rows[steps, market] for name, rows in past.items()}
        seen, nexts = columns.pop("observations"), columns.pop("nexts")
        seed, self._seeds[market] = self._seeds[market], None
        self._begins[market] = last + 1
        columns["observations"] = np.concatenate([seen, nexts[-1:]])
        return EpisodeBuffer(seed=seed, **columns)

    def dataset(self, **about: Any) -> minari.MinariDataset:
        """Write what has ended, and return the dataset so far.

        Args:
            **about: Entries of Minari's metadata: `algorithm_name`, `author` and `author_email` (sets),
                `code_permalink`, `description`.
        """
        self.flush()
        self._storage.update_metadata(about)
        return minari.MinariDataset(self._storage)

    def close(self, **kwargs: Any) -> None:
        """Write what has ended, and close the environment."""
        self.flush()
        super().close(**kwargs)


def _new_storage(dataset_id: str, env: VectorEnv, data_format: str) -> MinariStorage:
    """Begin an empty dataset where Minari looks for it."""
    namespace, _, _ = parse_dataset_id(dataset_id)
    path = get_dataset_path(dataset_id).absolute() / "data"
    if path.exists():
        raise ValueError(f"dataset_id: expected a new id, got {dataset_id!r}, which exists at {path}")
    if namespace is not None and namespace not in list_local_namespaces():
        create_namespace(namespace)
    path.mkdir(parents=True)
    spaces: dict[str, Any] = {
        "observation_space": env.single_observation_space,
        "action_space": env.single_action_space,
    }
    storage = MinariStorage.new(path, **spaces, env_spec=_spec_of_one(env.spec), data_format=data_format)
    storage.update_metadata({"dataset_id": dataset_id, "minari_version": minari.__version__})
    return storage


def _spec_of_one(spec: EnvSpec | None) -> EnvSpec | None:
    """Return how `gymnasium.make` makes one of the markets; None where the registry did not make the environment."""
    if spec is None:
        return None
    return dataclasses.replace(spec, kwargs={k: value for k, value in spec.kwargs.items() if k not in _OF_VECTORS})
