"""The PPO example's checkpoints: what is damaged, foreign or of another run is refused by name, and changes nothing."""

import importlib
import json
import shutil

import pytest
import torch
from messages import mentions
from test_ppo_fast import TINY, ppo, train, trainer_of  # noqa: F401, ppo is the fixture


@pytest.fixture
def checkpoints(ppo):  # noqa: F811
    """What the example imports."""
    return importlib.import_module("ppo_checkpoints")


@pytest.fixture
def trainer(ppo):  # noqa: F811
    """A trainer after an update, so that all of its state has something in it."""
    made = trainer_of(ppo)
    made.update(1e-3)
    return made


PROGRESS = {"curve": [{"steps": 128, "seconds": 1.0, "wall": 1.0, "pnl": 2.0, "half": 0.5}]} | {
    "seconds": 1.5,
    "evaluating": 0.5,
}


def everything(trainer):
    """Return copies of all that a checkpoint could change."""
    parts = {**trainer.networks.state_dict(), **trainer.envs.state_dict(), "rng": torch.get_rng_state()}
    for number, state in enumerate(trainer.optimizer.state.values()):
        parts |= {f"adam {number} {name}": tensor for name, tensor in state.items()}
    return {name: value.clone() for name, value in parts.items() if isinstance(value, torch.Tensor)}


def refusal(checkpoints, path, trainer, ranks=1):
    """Load what is refused; return the words, once nothing has changed."""
    before = everything(trainer)
    with pytest.raises(SystemExit) as caught:
        checkpoints.load(path, trainer, ranks)
    after = everything(trainer)
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    words = str(caught.value)
    assert words.startswith(f"--resume: {path} ") and words.endswith("start without --resume") and "\n" not in words
    return words


def test_a_checkpoint_of_before_is_of_plain_decisions(ppo, checkpoints, trainer, tmp_path):  # noqa: F811
    """It does not say whether quotes were kept, what ended decisions, or what became of inventory at the horizon."""
    path = tmp_path / "checkpoint.pt"
    checkpoints.save(path, trainer, 1, 1, PROGRESS)
    saved = torch.load(path, weights_only=True)
    assert saved["settings"].pop("keep") is False and saved["settings"].pop("decide") == "interval"
    assert saved["settings"].pop("at_end") == "truncate"
    checkpoints.write(path, saved)
    assert checkpoints.load(path, trainer, 1) == (1, PROGRESS)
    trainer.args.keep = True
    words = refusal(checkpoints, path, trainer)
    assert mentions(words, "was made with --keep False, and here is --keep True")


def test_a_checkpoint_is_taken_over_whole(ppo, checkpoints, trainer, tmp_path):  # noqa: F811
    path = tmp_path / "checkpoint.pt"
    checkpoints.save(path, trainer, 1, 1, PROGRESS)
    wanted = everything(trainer)
    other = trainer_of(ppo, learning_rate=5e-4, gamma=0.9)  # which may change
    assert checkpoints.load(path, other, 1) == (1, PROGRESS)
    assert all(torch.equal(value, everything(other)[name]) for name, value in wanted.items())


def test_every_damage_is_seen(checkpoints, trainer, tmp_path):
    path = tmp_path / "checkpoint.pt"
    checkpoints.save(path, trainer, 1, 1, PROGRESS)
    whole = path.read_bytes()
    for length in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert "is damaged, or no checkpoint" in refusal(checkpoints, path, trainer)
    at = whole.index(trainer.networks.state_dict()["actor.0.weight"].numpy().tobytes())
    path.write_bytes(whole[: at + 1] + bytes([whole[at + 1] ^ 1]) + whole[at + 2 :])
    assert "the checksum of archive/data/" in refusal(
        checkpoints, path, trainer
    )  # torch itself reads it without a word
    path.write_text("no checkpoint")
    assert "is damaged, or no checkpoint" in refusal(checkpoints, path, trainer)
    path.unlink()
    path.mkdir()
    assert "is damaged, or no checkpoint" in refusal(checkpoints, path, trainer)


def change(name, value):
    """Return a function that changes an entry of a checkpoint, or takes it out."""

    def spoil(saved):
        *way, last = name.split("/")
        for word in way:
            saved = saved[int(word) if word.isdigit() else word]
        if value is None:
            del saved[last]
        else:
            saved[last] = value(saved[last]) if callable(value) else value

    return spoil


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        *[
            (change(name, None), f"is no checkpoint of this example, or an older one's: its entry {name!r} is missing")
            for name in ("settings", "networks", "optimizer", "envs", "rng", "update", "ranks", "progress")
        ],
        (change("networks", []), "has an entry 'networks' of list, expected dict"),
        (change("update", True), "has an entry 'update' of bool, expected int"),
        (change("update", -1), "has update = -1, expected 0 or more"),
        (change("ranks", 2), "is of 2 processes, and here are 1"),
        (change("networks/log_std", None), "has an entry 'networks' with missing or unknown names ['log_std']"),
        (change("networks/extra", torch.zeros(1)), "has an entry 'networks' with missing or unknown names ['extra']"),
        (
            change("networks/log_std", torch.zeros(3)),
            "with log_std of torch.float32 (3,), expected torch.float32 (4,)",
        ),
        (change("networks/log_std", lambda old: old.double()), "with log_std of torch.float64 (4,)"),
        (change("networks/log_std", "x"), "with log_std of str, expected torch.float32 (4,)"),
        (change("networks/log_std", lambda old: old / 0), "'networks' with log_std that is not finite"),
        (change("optimizer/state", None), "has an entry 'optimizer' of other parameters"),
        (change("optimizer/state", lambda old: {n: old[n] for n in list(old)[1:]}), "'optimizer' of other parameters"),
        (change("optimizer/state/0/exp_avg", None), "'optimizer, parameter 0' with missing or unknown names"),
        (change("optimizer/state/3/exp_avg_sq", lambda old: old[:1]), "'optimizer, parameter 3' with exp_avg_sq of"),
        (change("rng", torch.zeros(7, dtype=torch.uint8)), "has random numbers that are no generator's of cpu"),
        (change("rng", torch.zeros(5056)), "has random numbers that are no generator's of cpu"),
        (change("progress", "{"), "has an entry 'progress' that is none"),
        (change("progress", "[]"), "has an entry 'progress' that is none"),
        (change("progress", json.dumps({**PROGRESS, "seconds": "1"})), "has an entry 'progress' that is none"),
        (change("progress", json.dumps({**PROGRESS, "curve": [{}]})), "has an entry 'progress' that is none"),
        (change("envs/bid", lambda old: old - 1_000_000), "its entry 'envs' is refused: state['bid']: .*got"),
        (change("envs/bid", lambda old: old[:1]), "its entry 'envs' is refused: state['bid']: .*got"),
        (change("settings/hidden", None), "was made with --hidden None, and here is --hidden 64"),
    ],
)
def test_every_entry_is_checked_before_any_is_taken(spoil, said, ppo, checkpoints, trainer, tmp_path):  # noqa: F811
    path = tmp_path / "checkpoint.pt"
    checkpoints.save(path, trainer, 1, 1, PROGRESS)
    saved = torch.load(path, weights_only=True)
    spoil(saved)
    torch.save(saved, path)
    assert mentions(refusal(checkpoints, path, trainer_of(ppo)), said)


def test_foreign_files_are_refused(checkpoints, trainer, tmp_path):
    path = tmp_path / "checkpoint.pt"
    torch.save(trainer.networks.state_dict(), path)
    assert "is no checkpoint of this example, or an older one's" in refusal(checkpoints, path, trainer)
    torch.save([1, 2], path)
    assert "is no checkpoint of this example: it holds a list, expected a dict" in refusal(checkpoints, path, trainer)
    torch.save(trainer.networks, path)  # code, which torch does not run
    assert "is damaged, or no checkpoint (Weights only load failed" in refusal(checkpoints, path, trainer)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hidden": 32}, "was made with --hidden 64, and here is --hidden 32"),
        ({"num_envs": 16}, "was made with --num-envs 8, and here is --num-envs 16"),
        ({"num_steps": 32}, "was made with --num-steps 16, and here is --num-steps 32"),
        ({"seed": 2}, "was made with --seed 1, and here is --seed 2"),
        ({"reward": "pnl"}, "was made with --reward edge, and here is --reward pnl"),
    ],
)
def test_a_run_goes_on_as_it_was_started(changes, said, ppo, tmp_path):  # noqa: F811
    train(ppo, tmp_path, total_steps=128)
    before = (tmp_path / "checkpoint.pt").read_bytes()
    with pytest.raises(SystemExit, match=f"--resume: {tmp_path / 'checkpoint.pt'} {said}; put that right"):
        train(ppo, tmp_path, resume=True, **changes)
    assert (tmp_path / "checkpoint.pt").read_bytes() == before


def test_another_task_is_refused(ppo, checkpoints, tmp_path, monkeypatch):  # noqa: F811
    train(ppo, tmp_path / "maker", total_steps=128)
    (tmp_path / "trader").mkdir()
    shutil.copy(tmp_path / "maker" / "checkpoint.pt", tmp_path / "trader")
    trader = importlib.import_module("ppo_trader").Args(output=tmp_path / "trader", resume=True, track=False, **TINY)
    with pytest.raises(SystemExit, match="was made with task MarketMaking, and here is task Trading"):
        ppo.main(trader)


def test_processes_that_stopped_apart_do_not_go_on(ppo, tmp_path, monkeypatch):  # noqa: F811
    train(ppo, tmp_path, total_steps=128)
    monkeypatch.setattr(ppo, "agree", lambda device, value: 7.0)  # what the first process says
    with pytest.raises(SystemExit, match="has another update than checkpoint.pt; start without --resume"):
        train(ppo, tmp_path, resume=True)


def test_a_stop_while_writing_keeps_the_checkpoint_before(checkpoints, trainer, tmp_path, monkeypatch):
    path = tmp_path / "checkpoint.pt"
    checkpoints.save(path, trainer, 1, 1, PROGRESS)
    before, whole = path.read_bytes(), torch.save

    def half(saved, file):
        file.write(before[:1000])
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.save(path, trainer, 2, 1, PROGRESS)
    monkeypatch.setattr(torch, "save", whole)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
