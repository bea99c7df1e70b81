"""The checkpoint that `ppo_fast.py --resume` continues from: networks, optimiser, markets and generators in one file.

A file that is damaged, no checkpoint or of another run is refused by name, before anything in the trainer changes.
"""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from kineticsim_env.errors import KineticSimError
from kineticsim_env.runtime.files import replacing

# Arguments that a run keeps, besides what its task is told, and what runs had before there were some of them.
SAME = "seed", "num_envs", "num_steps", "hidden", "stack", "action_type"
FORMER = {"keep": False, "decide": "interval", "action_type": "continuous", "at_end": "truncate"}
KINDS = {
    "settings": dict,
    "ranks": int,
    "update": int,
    "progress": str,
    "networks": dict,
    "optimizer": dict,
    "rng": torch.Tensor,
    "envs": dict,
}


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
        "settings": settings(trainer.args),
        "networks": trainer.networks.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "envs": trainer.envs.state_dict(),
        "rng": torch.get_rng_state(),
        "update": update,
        "ranks": ranks,
        "progress": json.dumps(progress),
    }
    if trainer.cuda:
        saved["cuda_rng"] = torch.cuda.get_rng_state(trainer.device)
    write(path, saved)


def write(path: Path, content: Any) -> None:
    """Write what torch can to a file, which is replaced only once all of it is written."""
    with replacing(path) as part, part.open("wb") as file:  # given a name, torch would write it into the file
        torch.save(content, file)


def load(path: Path, trainer: Any, ranks: int) -> tuple[int, dict[str, Any]]:
    """Take over the checkpoint, in place, so that captured graphs see it; returns its update and progress."""
    if not path.exists():
        raise SystemExit(f"--resume: there is no {path}; start without --resume")
    try:
        saved = read(path, trainer.device)
        check_run(saved, trainer, ranks)
        progress = check_contents(saved, trainer)
        try:
            trainer.envs.load_state_dict(saved["envs"])  # checks before it changes anything, and nothing else can fail
        except (KineticSimError, TypeError, ValueError) as error:
            raise ValueError(f"its entry 'envs' is refused: {error}") from error
    except ValueError as error:
        raise SystemExit(f"--resume: {path} {error}; put that right, or start without --resume") from error
    trainer.networks.load_state_dict(saved["networks"])
    trainer.learner.take(saved["optimizer"])
    torch.set_rng_state(saved["rng"].cpu())
    if "cuda_rng" in saved and trainer.cuda:
        torch.cuda.set_rng_state(saved["cuda_rng"].cpu(), trainer.device)
    return saved["update"], progress


def settings(args: Any) -> dict[str, Any]:
    """Return what a run keeps when it goes on; the rest (learning rate, length, engine) may change."""
    return {"task": args.TASK} | {name: getattr(args, name) for name in (*SAME, *args.SETTINGS)}


def read(path: Path, device: torch.device) -> dict[str, Any]:
    """Return the entries; raises ValueError for a file that is damaged, or no checkpoint."""
    try:
        with zipfile.ZipFile(path) as archive:  # which is what torch writes; torch does not look at its checksums
            damaged = archive.testzip()
        if damaged:
            raise ValueError(f"the checksum of {damaged} is wrong")
        saved = torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # torch and zipfile raise a dozen kinds
        reason = (str(error).splitlines() or [repr(error)])[0]
        raise ValueError(f"is damaged, or no checkpoint ({reason})") from error
    if not isinstance(saved, dict):
        raise ValueError(f"is no checkpoint of this example: it holds a {type(saved).__name__}, expected a dict")
    for name, kind in KINDS.items():
        if name not in saved:
            raise ValueError(f"is no checkpoint of this example, or an older one's: its entry {name!r} is missing")
        if not isinstance(saved[name], kind) or isinstance(saved[name], bool):
            raise ValueError(f"has an entry {name!r} of {type(saved[name]).__name__}, expected {kind.__name__}")
    return saved


def check_run(saved: Mapping[str, Any], trainer: Any, ranks: int) -> None:
    """Refuse a checkpoint of a run that was started otherwise."""
    for name, here in settings(trainer.args).items():
        found = saved["settings"].get(name, FORMER.get(name))
        if found != here:
            option = "task" if name == "task" else f"--{name.replace('_', '-')}"
            raise ValueError(f"was made with {option} {found}, and here is {option} {here}")
    if saved["ranks"] != ranks:
        raise ValueError(f"is of {saved['ranks']} processes, and here are {ranks}")


def check_contents(saved: Mapping[str, Any], trainer: Any) -> dict[str, Any]:
    """Refuse entries that do not fit the trainer; returns the progress."""
    if saved["update"] < 0:
        raise ValueError(f"has update = {saved['update']}, expected 0 or more")
    check_tensors("networks", saved["networks"], trainer.networks.state_dict())
    states, here = saved["optimizer"].get("state"), trainer.optimizer.state_dict()["state"]
    if not isinstance(states, dict) or list(states) != list(here):
        raise ValueError("has an entry 'optimizer' of other parameters than the networks have here")
    for number, tensors in here.items():
        check_tensors(f"optimizer, parameter {number}", states[number], tensors)
    check_generator(saved["rng"], torch.device("cpu"))
    if "cuda_rng" in saved and trainer.cuda:
        check_generator(saved["cuda_rng"], trainer.device)
    try:
        progress = json.loads(saved["progress"])
        fits = all(isinstance(progress[name], float | int) for name in ("seconds", "evaluating"))
        fits = fits and all(isinstance(point["steps"], int) for point in progress["curve"])
    except (ValueError, TypeError, KeyError):
        fits = False
    if not fits:
        raise ValueError("has an entry 'progress' that is none: expected a curve, seconds and evaluating, as JSON")
    return progress


def check_tensors(entry: str, found: Any, here: Mapping[str, torch.Tensor]) -> None:
    """Refuse tensors of other names, shapes or types than those here, and tensors with values that are not finite."""
    if not isinstance(found, dict) or set(found) != set(here):
        odd = sorted(set(found) ^ set(here)) if isinstance(found, dict) else type(found).__name__
        raise ValueError(f"has an entry {entry!r} with missing or unknown names {odd}, expected {sorted(here)}")
    for name, tensor in here.items():
        got = found[name]
        if not isinstance(got, torch.Tensor) or (got.dtype, got.shape) != (tensor.dtype, tensor.shape):
            kind = f"{got.dtype} {tuple(got.shape)}" if isinstance(got, torch.Tensor) else type(got).__name__
            allowed = f"{tensor.dtype} {tuple(tensor.shape)}"
            raise ValueError(f"has an entry {entry!r} with {name} of {kind}, expected {allowed}")
        if not bool(got.isfinite().all()):
            raise ValueError(f"has an entry {entry!r} with {name} that is not finite, expected numbers")


def check_generator(state: Any, device: torch.device) -> None:
    """Refuse what is no state of a random number generator."""
    try:
        torch.Generator(device).set_state(state.cpu())
    except (AttributeError, RuntimeError, TypeError) as error:
        raise ValueError(f"has random numbers that are no generator's of {device.type} ({error})") from error
