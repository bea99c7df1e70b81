"""What `ppo_market_maker.py --resume` goes on from: networks, optimiser, markets and random numbers, in one file."""

import json
from pathlib import Path
from typing import Any

import torch


def save(path: Path, trainer: Any, update: int, ranks: int, progress: dict[str, Any]) -> None:
    """Write the checkpoint; a run that is stopped while it does so keeps the one before.

    Args:
        path: Of this process.
        trainer: The example's `Trainer`.
        update: Updates so far.
        ranks: Processes that train together.
        progress: What else to keep, as JSON can.
    """
    saved = {
        "agent": trainer.agent.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "envs": trainer.envs.state_dict(),
        "rng": torch.get_rng_state(),
        "update": update,
        "ranks": ranks,
        "progress": json.dumps(progress),
    }
    if trainer.cuda:
        saved["cuda_rng"] = torch.cuda.get_rng_state(trainer.device)
    unfinished = path.with_suffix(".pt.tmp")
    torch.save(saved, unfinished)
    unfinished.replace(path)


def load(path: Path, trainer: Any, ranks: int) -> tuple[int, dict[str, Any]]:
    """Take over the checkpoint, in place, so that captured graphs see it; returns its update and progress."""
    if not path.exists():
        raise SystemExit(f"--resume: there is no {path}; start without --resume")
    saved = torch.load(path, map_location=trainer.device, weights_only=True)
    if saved["ranks"] != ranks:
        raise SystemExit(f"--resume: {path} is of {saved['ranks']} processes, and here are {ranks}")
    trainer.agent.load_state_dict(saved["agent"])
    for state, found in zip(trainer.optimizer.state.values(), saved["optimizer"]["state"].values(), strict=True):
        for name, tensor in state.items():
            tensor.copy_(found[name])
    trainer.envs.load_state_dict(saved["envs"])
    torch.set_rng_state(saved["rng"].cpu())
    if "cuda_rng" in saved and trainer.cuda:
        torch.cuda.set_rng_state(saved["cuda_rng"].cpu(), trainer.device)
    return saved["update"], json.loads(saved["progress"])
