"""The fast PPO example with a tiny budget: what it leaves, its advantages, checkpoints, and how it is stopped."""

import importlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from thorough import slow

import kineticsim_env as ks
from kineticsim_env import MarketConfig
from kineticsim_env.envs.settings import EnvSettings

for name in ("tyro", "tensorboard", "matplotlib"):
    pytest.importorskip(name, reason="the example needs it: pip install 'kineticsim-env[train]'")

SCRIPT = Path(__file__).parent.parent / "examples" / "ppo_fast.py"
MARKET = {"preset": "trading", "engine": "cpu"}
TINY = {**MARKET, "num_envs": 8, "num_steps": 16, "total_steps": 8 * 16 * 6, "eval_envs": 32, "eval_every": 2}


@pytest.fixture(scope="module")
def ppo():
    """The example as a module."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    sys.path.insert(0, str(SCRIPT.parent))  # as Python does for a script
    yield importlib.import_module("ppo_fast")
    sys.path.remove(str(SCRIPT.parent))
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def comparison(ppo):
    """What the example does after it has trained."""
    return sys.modules["ppo_comparison"]


@pytest.mark.parametrize("script", ["ppo_fast", "ppo_executor", "ppo_trader"])
def test_it_leaves_what_it_promises(ppo, comparison, tmp_path, capsys, script):
    output, args = tmp_path / "run", importlib.import_module(script).Args
    pnl = ppo.main(args(output=output, **TINY))
    printed = capsys.readouterr().out
    policies = {*comparison.tune.GRIDS[args.TASK], "PPO (learned)"}
    assert set(pnl) == policies and len(policies) >= 6
    if args.TASK == "Execution":
        assert pnl["all at once"] < pnl["TWAP"]
    else:
        assert pnl["no trade"] == 0.0
    table = (output / "table.md").read_text()
    assert table in printed + "\n" and all(f"| {name} |" in table for name in policies)
    found = {"MarketMaking": "half_spread=5, qty=8 (best of 18)"}.get(args.TASK, "ticks=")
    assert found in table and "searched for this market" not in printed
    assert f"pictures, table and checkpoint are in {output}" in printed
    record = json.loads((output / "results.json").read_text())
    assert set(record["pnl"]) == policies and record["args"]["num_envs"] == 8
    assert [point["steps"] for point in record["curve"]] == [0, 256, 512, 768]
    assert all(np.isfinite(point["pnl"]) for point in record["curve"])
    for picture in ("learning_curve.png", "episode.png"):
        content = (output / picture).read_bytes()
        assert content[:8] == b"\x89PNG\r\n\x1a\n" and len(content) > 10_000
    assert list((output / "tensorboard").glob("events*"))
    saved = torch.load(output / "checkpoint.pt", weights_only=True)
    assert saved["update"] == 6 and not (output / "checkpoint.pt.tmp").exists()
    policy = ks.load_policy(output / "policy.safetensors")
    assert policy.told.preset == "trading" and policy.told.command.startswith("python examples/")
    assert policy.told.figures["mean"] == pnl["PPO (learned)"] and policy.told.figures["episodes"] == 32
    held_out = comparison.evaluation_env(32, args.TASK, config=MarketConfig.preset("trading"), engine="cpu")
    played = comparison.evaluate(policy, held_out, comparison.HELD_OUT_SEED).pnl.mean()
    assert played == pytest.approx(pnl["PPO (learned)"], rel=1e-3), "the networks that were kept, not the last"


@slow
@pytest.mark.parametrize("script", ["ppo_fast", "ppo_trader"])
def test_choices_are_learned(ppo, comparison, tmp_path, script):
    """A categorical policy, beside scripted ones of numbers; its run can go on, but not as a Gaussian one."""
    args = importlib.import_module(script).Args
    words = {**TINY, "preset": "news", "track": False, "output": tmp_path, "action_type": "discrete"}
    pnl = ppo.main(args(**words))
    policy = ks.load_policy(tmp_path / "policy.safetensors")
    task = comparison.WORDS[args.TASK]
    assert policy.action_type == "discrete" and policy.told.task == task and "no trade" in pnl
    chosen = policy(torch.randn(64, 39))
    assert chosen.dtype == torch.int64 and 0 <= chosen.min() and chosen.max() < policy.network.shape.outputs
    with pytest.raises(SystemExit, match="made with --action-type discrete, and here is --action-type continuous"):
        ppo.main(args(**{**words, "action_type": "continuous", "resume": True}))
    ppo.main(args(**{**words, "resume": True, "total_steps": 2 * words["total_steps"]}))


def test_the_likelihood_of_choices(ppo):
    """Drawn as often as the softmax says, with its logarithm; the loss of a policy that has not moved is known."""
    networks = ppo.ActorCritic(3, 4, 8, 0.4, True)
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0]).expand(200_000, 4)
    torch.manual_seed(0)
    action, log_prob = networks.draw(logits)
    share = torch.bincount(action, minlength=4) / len(action)
    exact = logits[0].softmax(-1)
    assert (share - exact).abs().max() < 4 * (0.25 / len(action)) ** 0.5
    again, entropy = networks.likelihood(logits, action)
    assert torch.equal(again, log_prob) and torch.allclose(log_prob, exact.log()[action])
    assert float(entropy) == pytest.approx(float(-(exact * exact.log()).sum()), rel=1e-5)
    row = torch.randn(5, 3)
    assert torch.equal(networks.act(row), networks(torch.nn.functional.pad(row, (0, 5)))[0].argmax(-1))


@slow
def test_stacked_moves_are_learned_from_and_resumed(ppo, tmp_path):
    """What is seen besides is part of the networks and of the checkpoint: a run that is stopped goes on alike."""
    words = {**TINY, "stack": 6, "track": False, "preset": "news"}
    whole = ppo.main(ppo.Args(output=tmp_path / "whole", **words))
    half = {**words, "total_steps": words["total_steps"] // 2, "learning_rate": 0.0}
    ppo.main(ppo.Args(output=tmp_path / "once", **half))
    saved = torch.load(tmp_path / "whole" / "checkpoint.pt", weights_only=True)
    assert saved["networks"]["actor.0.weight"].shape[1] == 49  # 39 features and 5 x 2 more
    assert saved["envs"]["stacked"].shape == (8, 49) and saved["envs"]["stacked"][:, 39:].any()
    assert whole["PPO (learned)"] != 0.0
    once = torch.load(tmp_path / "once" / "checkpoint.pt", weights_only=True)
    again = ppo.main(ppo.Args(output=tmp_path / "once", resume=True, **{**words, "learning_rate": 0.0}))
    straight = ppo.main(ppo.Args(output=tmp_path / "straight", **{**words, "learning_rate": 0.0}))
    assert again == straight and once["update"] == 3
    ends = [torch.load(tmp_path / name / "checkpoint.pt", weights_only=True) for name in ("once", "straight")]
    assert torch.equal(*(end["envs"]["stacked"] for end in ends))


@slow  # that of ppo_market_maker is not
@pytest.mark.parametrize("preset", ["continuous", EnvSettings.preset])
@pytest.mark.parametrize("script", ["ppo_fast", "ppo_executor"])
def test_presets_of_continuous_trading(ppo, comparison, tmp_path, capsys, script, preset):
    """Scripted policies were searched for it; training, comparison and pictures are of that market."""
    module, made = importlib.import_module(script), []
    args = module.Args(output=tmp_path, track=False, **{**TINY, "preset": preset, "total_steps": 256})
    assert module.Args().preset == EnvSettings.preset
    with pytest.MonkeyPatch.context() as patch:
        make = comparison.evaluation_env
        patch.setattr(comparison, "evaluation_env", lambda *a, **k: (made.append(make(*a, **k)), made[-1])[1])
        pnl = ppo.main(args)
    assert "searched for this market" not in capsys.readouterr().out
    assert set(pnl) == {*comparison.tune.GRIDS[args.TASK], "PPO (learned)"}
    assert made and {envs.simulator.config.mechanism for envs in made} == {"continuous"}
    record = json.loads((tmp_path / "results.json").read_text())
    assert record["args"]["preset"] == preset and record["args"]["set"] == []
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert saved["networks"]["actor.0.weight"].shape[1] == 39
    assert (tmp_path / "episode.png").exists()


FEW = {  # policies, and values of their parameters
    "no trade": ("NoTrade", {}),
    "fixed spread": ("FixedSpread", {"qty": [4, 8]}),
}
ORDERS = {
    "keep": {"keep": True},
    "ladders": {"set": ("orders_per_side=3",)},
    "fill": {"decide": "fill"},
    "touch": {"decide": "touch", "stack": 6},
    "all": {"keep": True, "decide": "fill", "set": ("orders_per_side=2",)},
}


def few_grids(comparison, monkeypatch):
    """Let few scripted policies be searched."""
    policies = comparison.policies
    made = {name: (getattr(policies, kind), grid) for name, (kind, grid) in FEW.items()}
    monkeypatch.setattr(comparison.tune, "GRIDS", {"MarketMaking": made})
    ladder = {"ladder": (policies.LadderMaker, {"spacing": [1, 2]})}
    monkeypatch.setattr(comparison.tune, "LADDERS", {"MarketMaking": ladder})


@slow
@pytest.mark.parametrize("orders", ORDERS)
def test_orders_and_decisions_of_other_kinds(ppo, comparison, tmp_path, capsys, monkeypatch, orders):
    """Training, the search of scripted policies, comparison, pictures, and going on from the checkpoint."""
    few_grids(comparison, monkeypatch)
    if orders != "keep":  # shorter episodes, for which no policies were searched
        market = ppo.Args.market
        monkeypatch.setattr(ppo.Args, "market", lambda args: {**market(args), "horizon": 20})
    words = {**TINY, "preset": "continuous", "total_steps": 256, "eval_envs": 4, "track": False, **ORDERS[orders]}
    pnl = ppo.main(ppo.Args(output=tmp_path, **words))
    assert pnl["no trade"] == 0 and all(np.isfinite(value) for value in pnl.values())
    searched = "searched for this market" in capsys.readouterr().out
    assert searched == (orders != "keep")  # scripted policies keep nothing, so what was found for the market holds
    assert ("ladder" in pnl) == ("set" in words) and (set(pnl) <= {*FEW, "ladder", "PPO (learned)"}) == searched
    record = json.loads((tmp_path / "results.json").read_text())
    assert record["args"]["decide"] == words.get("decide", "interval") and (tmp_path / "episode.png").exists()
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    actions = {"keep": 6, "ladders": 12, "all": 12}.get(orders, 4)
    assert len(saved["networks"]["log_std"]) == actions
    ppo.main(ppo.Args(output=tmp_path, resume=True, **{**words, "total_steps": 512}))
    other = {**words, "decide": "interval", "keep": True, "set": (), "total_steps": 512}
    if orders != "keep":
        with pytest.raises(SystemExit, match="was made with --"):
            ppo.main(ppo.Args(output=tmp_path, resume=True, **other))


def test_fields_of_the_market_can_be_changed(ppo):
    words = ["--preset", "continuous", "--set", "quote_latency=10", "beat=20"]
    args = ppo.tyro.cli(ppo.Args, args=words)
    assert args.market()["config"] == MarketConfig.preset("continuous", quote_latency=10, beat=20)
    with pytest.raises(TypeError, match="unknown field 'latency'"):
        ppo.Args(set=("latency=10",)).market()
    with pytest.raises(ValueError, match="--set: expected field=value.*got 'quote_latency'"):
        ppo.Args(set=("quote_latency",)).market()


def test_scripted_policies_of_another_market_are_tuned_for_it(ppo, comparison, tmp_path, capsys, monkeypatch):
    grids = {"TWAP": (comparison.policies.TimeWeighted, {"ticks": [-2, 2]})}
    monkeypatch.setitem(comparison.tune.GRIDS, "Execution", grids)
    args = importlib.import_module("ppo_executor").Args(output=tmp_path, track=False, block_qty=30, **TINY)
    assert set(ppo.main(args)) == {"TWAP", "PPO (learned)"}
    printed = capsys.readouterr().out
    assert "another block_qty; run python examples/tune_scripted_policies.py" in printed
    assert "searched for this market" in printed and "(best of 2)" in printed


@pytest.mark.parametrize("script", ["ppo_fast", "ppo_executor"])
def test_learners_with_ladders_are_compared_too(ppo, comparison, tmp_path, monkeypatch, script):
    """With policies of one order per side, which leave further levels empty, and those of ladders; drawn are all."""
    tune, args = comparison.tune, importlib.import_module(script).Args
    few = {"MarketMaking": {"fixed spread": (comparison.policies.FixedSpread, {})}}
    few["Execution"] = {"TWAP": (comparison.policies.TimeWeighted, {})}
    ladders = {"MarketMaking": {name: (make, {}) for name, (make, _) in tune.LADDERS["MarketMaking"].items()}}
    monkeypatch.setattr(tune, "GRIDS", few)
    monkeypatch.setattr(tune, "LADDERS", ladders)
    market = {"preset": EnvSettings.preset, "set": ("orders_per_side=3",), "total_steps": 128}
    pnl = ppo.main(args(output=tmp_path, track=False, **{**TINY, **market}))
    assert set(pnl) == {*few[args.TASK], *ladders.get(args.TASK, {}), "PPO (learned)"}
    assert all(np.isfinite(value) for value in pnl.values()) and (tmp_path / "episode.png").exists()


def test_evaluation_is_on_seeds_it_did_not_train_on(ppo, comparison, tmp_path, monkeypatch):
    seen = []

    def spy(policy, envs, seed):
        seen.append((seed, envs.num_envs, envs.core.task.warm_seed))
        return evaluate(policy, envs, seed)

    evaluate = ppo.evaluate
    for module in (ppo, comparison):
        monkeypatch.setattr(module, "evaluate", spy)
    ppo.main(ppo.Args(output=tmp_path, seed=3, track=False, **{**TINY, "total_steps": 128}))
    final = [call for call in seen if call[0] == comparison.HELD_OUT_SEED]
    assert len(final) >= 6 and {call[1] for call in final} == {32}
    during = [call for call in seen if call not in final]
    assert {call[0] for call in during} == {3 << 32}
    assert {call[2] for call in final}.isdisjoint({call[2] for call in during})


def test_the_policy_that_was_best_in_training_is_compared(comparison, tmp_path):
    """Points whose networks are gone are left out, and those are taken up that the best point had."""
    networks = torch.nn.Linear(1, 1)
    curve = [{"steps": steps, "pnl": pnl} for steps, pnl in ((0, -3.0), (64, 2.0), (128, 5.0), (192, 1.0))]
    for steps in (0, 64, 192):
        torch.save(
            {"weight": torch.tensor([[float(steps)]]), "bias": torch.zeros(1)}, comparison.snapshot(tmp_path, steps)
        )
    assert comparison.keep_best(networks, curve, tmp_path) == {"steps": 64, "pnl": 2.0}
    assert networks.weight.item() == 64.0


# The arithmetic -------------------------------------------------------------------------------------------------------


def advantages(*given):
    """The example's."""
    return sys.modules["ppo_networks"].advantages(*given)


def slow_advantages(rewards, ends, terminated, values, nexts, gamma, gae_lambda):
    """The sum of discounted errors, term by term, up to the end of the episode."""
    length, markets = rewards.shape
    result = np.zeros((length, markets))
    for m in range(markets):
        for t in range(length):
            weight = 1.0
            for k in range(t, length):
                after = 0.0 if terminated[k, m] else nexts[k, m]
                result[t, m] += weight * (rewards[k, m] + gamma * after - values[k, m])
                if ends[k, m]:
                    break
                weight *= gamma * gae_lambda
    return result


def test_advantages_against_the_definition(ppo):
    generator = np.random.default_rng(0)
    rewards, values, nexts = generator.normal(size=(3, 30, 8))
    ends = generator.random((30, 8)) < 0.2
    terminated = ends & (generator.random((30, 8)) < 0.5)
    assert terminated.any() and (ends & ~terminated).any()
    given = [torch.from_numpy(array) for array in (rewards, ends, terminated, values, nexts)]
    fast = advantages(*given, 0.97, 0.9).numpy()
    slow = slow_advantages(rewards, ends, terminated, values, nexts, 0.97, 0.9)
    assert fast == pytest.approx(slow, abs=1e-5)  # its weights are float32


def test_only_termination_cuts_the_future_off(ppo):
    def of_one(ended, terminated):
        flags = torch.tensor([[ended]]), torch.tensor([[terminated]])
        return float(advantages(torch.tensor([[1.0]]), *flags, torch.tensor([[2.0]]), torch.tensor([[5.0]]), 0.5, 1))

    assert of_one(False, False) == of_one(True, False) == 1 + 0.5 * 5 - 2
    assert of_one(True, True) == 1 - 2


def test_decisions_of_unlike_length_have_a_discount_each(ppo):
    """Of 1 event and of 2, at most 4: gamma is per 4 of them, 0.0625 ** (1 / 4) = 0.5, and lambda per decision."""
    rewards, values, nexts = (torch.tensor(column)[:, None] for column in ([1.0, 2.0], [3.0, 5.0], [5.0, 7.0]))
    flags = torch.zeros(2, 1, dtype=torch.bool)
    gamma = 0.0625 ** (torch.tensor([[1.0], [2.0]]) / 4)
    second = 2.0 + 0.25 * 7.0 - 5.0
    first = 1.0 + 0.5 * 5.0 - 3.0 + 0.5 * 0.8 * second
    found = advantages(rewards, flags, flags, values, nexts, gamma, 0.8)
    assert found[:, 0].tolist() == pytest.approx([first, second])
    alike = [advantages(rewards, flags, flags, values, nexts, one, 0.8) for one in (0.97, torch.full((2, 1), 0.97))]
    assert torch.equal(*alike)


# Checkpoints ----------------------------------------------------------------------------------------------------------


def train(ppo, output, **changes):
    """Train without the comparison that follows; returns the parameters of the networks and the learning curve."""
    args = ppo.Args(output=output, **{**TINY, "track": False, **changes})
    args.fill_in(on_gpu=False)
    output.mkdir(exist_ok=True)
    torch.manual_seed(args.seed)
    market = {**MARKET, "horizon": 50}
    envs = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=args.num_envs, output="torch", copy=False, **market)
    networks = ppo.ActorCritic(37, 4, args.hidden, args.initial_std)
    curve = ppo.train(args, envs, networks, ppo.evaluation_env(16, **market))
    return {name: value.clone() for name, value in networks.state_dict().items()}, curve


def test_it_takes_the_rows_of_continuous_trading(ppo, tmp_path):
    """Which are longer, by what is ahead in queues."""
    config = MarketConfig.preset("trading").replace(arrivals="clock", mechanism="continuous")
    args = ppo.Args(output=tmp_path, **{**TINY, "track": False})
    args.fill_in(on_gpu=False)
    market = {"engine": "cpu", "horizon": 50, "config": config, "bank_size": 4}
    envs = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=args.num_envs, output="torch", copy=False, **market)
    networks = ppo.ActorCritic(envs.single_observation_space.shape[0], 4, args.hidden, args.initial_std)
    before = networks.actor[0].weight[:, 37:39].clone()
    curve = ppo.train(args, envs, networks, ppo.evaluation_env(16, **market))
    assert len(curve) > 1 and not torch.equal(networks.actor[0].weight[:, 37:39], before)


def stop_at(ppo, monkeypatch, update):
    """Let the given update be interrupted as Ctrl-C would, half way through."""
    whole, calls = ppo.Trainer.update, []

    def update_or_stop(self, learning_rate):
        calls.append(None)
        scalars = whole(self, learning_rate)
        if len(calls) == update:
            raise KeyboardInterrupt
        return scalars

    monkeypatch.setattr(ppo.Trainer, "update", update_or_stop)


@pytest.mark.parametrize("stop", [4, 5, 6])
def test_a_run_that_was_stopped_and_resumed_equals_one_that_was_not(ppo, tmp_path, stop):
    whole, whole_curve = train(ppo, tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        stop_at(ppo, patch, stop)
        with pytest.raises(KeyboardInterrupt):
            train(ppo, tmp_path / "parts")
    assert torch.load(tmp_path / "parts" / "checkpoint.pt", weights_only=True)["update"] == (stop - 1) // 2 * 2
    resumed, curve = train(ppo, tmp_path / "parts", resume=True)
    assert all(torch.equal(resumed[name], value) for name, value in whole.items())
    assert [(point["steps"], point["pnl"]) for point in curve] == [
        (point["steps"], point["pnl"]) for point in whole_curve
    ]
    ends = [torch.load(tmp_path / run / "checkpoint.pt", weights_only=True) for run in ("whole", "parts")]
    assert torch.equal(ends[0]["rng"], ends[1]["rng"])
    for name, tensor in ends[0]["envs"].items():
        assert torch.equal(tensor, ends[1]["envs"][name]), name
    assert torch.equal(*(end["optimizer"]["state"][0]["exp_avg"] for end in ends))


def test_a_finished_run_can_be_trained_on(ppo, tmp_path):
    first, curve = train(ppo, tmp_path)
    same, same_curve = train(ppo, tmp_path, resume=True)
    assert all(torch.equal(same[name], value) for name, value in first.items()) and same_curve == curve
    more, more_curve = train(ppo, tmp_path, resume=True, total_steps=8 * 16 * 8)
    assert not torch.equal(more["log_std"], first["log_std"])
    assert [point["steps"] for point in more_curve] == [0, 256, 512, 768, 1024]


def test_the_learning_rate_falls_to_a_tenth(ppo, tmp_path, monkeypatch):
    rates, update = [], ppo.Trainer.update
    monkeypatch.setattr(ppo.Trainer, "update", lambda self, rate: (rates.append(rate), update(self, rate))[1])
    train(ppo, tmp_path, learning_rate=1.0e-3)
    assert rates == pytest.approx([1e-3 * (1 - 0.9 * update / 6) for update in range(6)])


def test_a_time_limit_ends_training(ppo, tmp_path):
    began = time.perf_counter()
    _, curve = train(ppo, tmp_path, total_steps=10**9, time_limit_minutes=1 / 60)
    assert 0.9 < time.perf_counter() - began < 15
    assert curve[-1]["steps"] > 0 and (tmp_path / "checkpoint.pt").exists()


def test_resuming_nothing_says_so(ppo, tmp_path):
    with pytest.raises(SystemExit, match="--resume: there is no .*checkpoint.pt"):
        train(ppo, tmp_path, resume=True)


# The command ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", ["ppo_fast", "ppo_executor", "ppo_trader"])
def test_help_lists_every_argument_with_its_type(ppo, capsys, script):
    args = importlib.import_module(script).Args
    with pytest.raises(SystemExit) as done:
        ppo.run(args, ["--help"])
    shown = capsys.readouterr().out
    assert done.value.code == 0
    for field in ppo.dataclasses.fields(args):
        hidden = script == "ppo_executor" and field.name in ("inventory_penalty", "at_end")
        assert (f"--{field.name.replace('_', '-')}" in shown) != hidden
    assert "INT" in shown and "FLOAT" in shown and "PATH" in shown


def test_a_stop_says_how_to_go_on(ppo, tmp_path, monkeypatch):
    stop_at(ppo, monkeypatch, 3)
    words = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]
    with pytest.raises(SystemExit, match=f"stopped; --resume goes on from the checkpoint in {tmp_path}"):
        ppo.run(ppo.Args, [*words, "--no-track", "--output", str(tmp_path)])
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True)["update"] == 2


@pytest.mark.slow
def test_ctrl_c_leaves_a_checkpoint_and_says_how_to_go_on(tmp_path):
    command = [sys.executable, str(SCRIPT), "--output", str(tmp_path), "--num-envs", "8", "--eval-envs", "16"]
    command += ["--engine", "cpu", "--no-track", "--total-steps", "100000000"]
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores Ctrl-C
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, inherited)
    try:
        deadline = time.monotonic() + 120
        while not (tmp_path / "checkpoint.pt").exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1 and "Traceback" not in complaint
    assert f"--resume goes on from the checkpoint in {tmp_path}" in complaint
    torch.load(tmp_path / "checkpoint.pt", weights_only=True)


# The loop's own devices -----------------------------------------------------------------------------------------------


def trainer_of(ppo, engine="cpu", horizon=50, **changes):
    """Return a trainer at the start of its run, with its environment."""
    args = ppo.Args(**{**TINY, "track": False, **changes, "engine": engine})
    args.fill_in(engine == "cuda")
    torch.manual_seed(args.seed)
    envs = gym.make_vec(
        "KineticSim/MarketMaking-v0",
        num_envs=args.num_envs,
        output="torch",
        copy=False,
        config=args.market()["config"],
        keep=args.keep,
        decide=args.decide,
        engine=engine,
        horizon=horizon,
        bank_size=16,
        warmup=20,
    )
    envs = args.stacked(envs)
    sizes = envs.single_observation_space.shape[0], envs.single_action_space.shape[0]
    networks = ppo.ActorCritic(*sizes, args.hidden, args.initial_std).to(envs.device)
    trainer = ppo.Trainer(args, envs, networks)
    envs.reset(seed=7)
    return trainer


def test_networks_side_by_side_are_the_networks(ppo):
    torch.manual_seed(0)
    networks = ppo.ActorCritic(37, 4, 64, 0.4)
    for parameter in networks.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    observation = torch.nn.functional.pad(torch.rand(5, 9, 37), (0, networks.padding))
    actor, critic = networks.actor(observation[..., :37]), networks.critic(observation[..., :37])
    mean, value = networks(observation)
    assert torch.allclose(mean, actor, atol=1e-5) and torch.allclose(value, critic[..., 0], atol=1e-5)
    assert torch.equal(networks(observation, networks.layers(torch.float32))[0], mean)  # joined beforehand
    assert torch.equal(networks.act(observation[..., :37]), networks(observation)[0].clamp(-1, 1))
    mean, value = networks(observation.bfloat16())
    assert mean.dtype == value.dtype == torch.float32 and torch.allclose(mean, actor, atol=0.2)


@pytest.mark.parametrize("horizon", [5, 16, 50])
def test_what_is_bootstrapped_at_a_truncation_is_the_observation_before_the_reset(ppo, horizon):
    trainer = trainer_of(ppo, horizon=horizon, num_steps=16)
    envs, step, finals, ends = trainer.envs, trainer.envs.step, [], []

    def spy(action):
        results = step(action)
        finals.append(results[-1]["final_obs"].clone())
        ends.append(results[-1]["_final_obs"].clone())
        return results

    envs.step = spy
    for _ in range(4):
        finals.clear()
        ends.clear()
        trainer.rollout()
        trainer.estimate()
        nexts = trainer.networks(torch.nn.functional.pad(torch.stack(finals), (0, 3)))[1]
        expected = advantages(
            trainer.batch.reward, torch.stack(ends), trainer.batch.terminated, trainer.batch.value, nexts, 0.97, 0.9
        )
        assert torch.equal(torch.stack(ends), trainer.batch.truncated | trainer.batch.terminated)
        assert torch.allclose(trainer.learner.targets - trainer.batch.value, expected, atol=1e-5)
        assert float(trainer.learner.advantages.mean()) == pytest.approx(0, abs=1e-5)
        assert float(trainer.learner.advantages.std(unbiased=False)) == pytest.approx(1, abs=1e-4)
    assert horizon == 50 or torch.stack(ends).any()


@pytest.mark.parametrize("decide", ["fill", "touch"])
@pytest.mark.parametrize("stack", [1, 6])
def test_decisions_at_events_are_discounted_by_their_events(ppo, decide, stack):
    """Rollouts have the events of each decision; what an episode's end is worth is what was seen before the reset."""
    trainer = trainer_of(ppo, preset="news", horizon=2, decide=decide, stack=stack, num_steps=24, gamma=0.5)
    envs, step, seen = trainer.envs, trainer.envs.step, []

    def spy(action):
        results = step(action)
        counted = envs.unwrapped.core.tensors["decision_events"].clone()
        seen.append((counted, results[-1]["final_obs"].clone(), results[-1]["_final_obs"].clone()))
        return results

    envs.step = spy
    for _ in range(8):
        seen.clear()
        trainer.rollout()
        trainer.estimate()
        events, finals, ends = map(torch.stack, zip(*seen, strict=True))
        assert torch.equal(trainer.batch.decision_events, events) and 1 <= events.min() and events.max() <= 48
        nexts = trainer.networks(torch.nn.functional.pad(finals, (0, trainer.networks.padding)))[1]
        given = trainer.batch.reward, ends, trainer.batch.terminated, trainer.batch.value, nexts
        expected = advantages(*given, 0.5 ** (events / 48), 0.9)
        assert torch.allclose(trainer.learner.targets - trainer.batch.value, expected, atol=1e-5)
        if trainer.batch.truncated.any():
            break
    assert trainer.batch.truncated.any() and len(trainer.batch.final_rows) == 12
    assert 1 <= trainer.scalars()["charts/events_per_decision"] < 48


def test_every_row_is_used_once_an_epoch(ppo, monkeypatch):
    trainer, seen = trainer_of(ppo, num_envs=12), []
    trainer.learner.block = 4  # as on a GPU
    trainer.rollout()
    trainer.estimate()
    whole = trainer.learner.loss.forward
    spy = lambda chosen, *rest: (seen.append(chosen), whole(chosen, *rest))[1]  # noqa: E731
    monkeypatch.setattr(trainer.learner.loss, "forward", spy)
    trainer.learn()
    assert len(seen) == 16
    for epoch in range(4):
        assert sorted(torch.cat(seen[4 * epoch : 4 * epoch + 4]).tolist()) == list(range(12 * 16 // 4))
    assert not torch.equal(torch.cat(seen[:4]), torch.cat(seen[4:8]))


@pytest.mark.parametrize("changes", [{"fast": True}, {"bf16": True, "hidden": 32}, {"at_end": "unwind"}])
def test_other_settings_train_too(ppo, tmp_path, changes):
    weights, curve = train(ppo, tmp_path, **changes)
    assert all(value.dtype == torch.float32 and value.isfinite().all() for value in weights.values())
    assert [point["steps"] for point in curve] == [0, 256, 512, 768]


def test_preparing_leaves_no_trace(ppo):
    trainer = trainer_of(ppo)
    before = {name: value.clone() for name, value in trainer.networks.state_dict().items()}
    trainer.args.compile = True  # what is compiled runs before the first update; here, uncompiled
    trainer.prepare()
    assert all(torch.equal(before[name], value) for name, value in trainer.networks.state_dict().items())
    assert all(not tensor.any() for state in trainer.optimizer.state.values() for tensor in state.values())
    trainer.update(1e-3)
    assert not torch.equal(before["actor.0.weight"], trainer.networks.actor[0].weight)


@pytest.mark.slow
def test_the_compiled_pieces_are_whole_graphs_and_learn_the_same(ppo):
    """`fullgraph=True` raises at the first break; random numbers differ, so the update is compared on one rollout."""
    eager, compiled = trainer_of(ppo, fast=True), trainer_of(ppo, fast=True, compile=True)
    compiled.prepare()
    eager.rollout()
    for name, played in vars(eager.batch).items():
        if isinstance(played, torch.Tensor):
            getattr(compiled.batch, name).copy_(played)
    for trainer in (eager, compiled):
        torch.manual_seed(3)
        trainer.learner.learning_rate.fill_(1e-3)
        trainer.estimate()
        trainer.learn()
    for one, two in zip(eager.networks.parameters(), compiled.networks.parameters(), strict=True):
        assert torch.allclose(one, two, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("changes", [{}, {"fast": True, "update_epochs": 1}, {"compile": False, "bf16": False}])
def test_captured_training_learns_and_does_not_wait(ppo, changes):
    trainer = trainer_of(ppo, "cuda", num_envs=512, num_steps=16, **changes)
    before = {name: value.clone() for name, value in trainer.networks.state_dict().items()}
    trainer.prepare()
    assert all(torch.equal(before[name], value) for name, value in trainer.networks.state_dict().items())
    trainer.envs.reset(seed=7)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(5):
            trainer.update(1e-3)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(value.isfinite().all() for value in trainer.networks.parameters())
    assert not torch.equal(before["actor.0.weight"], trainer.networks.actor[0].weight)
    assert all(np.isfinite(value) for value in trainer.scalars().values())
    trainer.envs.check_errors()


@pytest.mark.gpu
@pytest.mark.parametrize("stack", [1, 8])
def test_continuous_trading_is_captured_too(ppo, tmp_path, stack):
    changes = {"preset": "continuous", "set": ("quote_latency=10",), "engine": "cuda", "num_envs": 512, "stack": stack}
    pnl = ppo.main(ppo.Args(output=tmp_path, track=False, **{**TINY, "total_steps": 512 * 16 * 6, **changes}))
    assert pnl["no trade"] == 0 and all(np.isfinite(value) for value in pnl.values())
    weights = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["networks"]
    assert all(value.isfinite().all() for value in weights.values())


@pytest.mark.gpu
@pytest.mark.parametrize("orders", ORDERS)
def test_orders_and_decisions_of_other_kinds_are_captured_too(ppo, comparison, tmp_path, monkeypatch, orders):
    """In a captured update, which does not wait; and the whole run, with its comparison."""
    changes = {"preset": "news", "num_envs": 512, "num_steps": 16, **ORDERS[orders]}
    trainer = trainer_of(ppo, "cuda", **changes)
    trainer.prepare()
    trainer.envs.reset(seed=7)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(5):
            trainer.update(1e-3)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(np.isfinite(value) for value in trainer.scalars().values())
    if "decide" in changes:
        events = trainer.batch.decision_events
        assert 1 <= events.min() and events.max() <= 48 and len(events.unique()) > 2
    trainer.envs.unwrapped.check_errors()
    few_grids(comparison, monkeypatch)
    words = {**TINY, **changes, "engine": "cuda", "total_steps": 2**15, "track": False}
    pnl = ppo.main(ppo.Args(output=tmp_path, **words))
    assert pnl["no trade"] == 0 and all(np.isfinite(value) for value in pnl.values())


@pytest.mark.gpu
def test_a_captured_update_is_the_eager_one(ppo):
    """On the same rollout, from the same random numbers, without compiling; in float32, where only sums round."""
    how = {"num_envs": 256, "compile": False, "bf16": False}
    captured, eager = trainer_of(ppo, "cuda", **how), trainer_of(ppo, "cuda", **how)
    captured.prepare()
    for trainer in (captured, eager):
        trainer.envs.reset(seed=7)
        torch.manual_seed(5)
        trainer.update(1e-3)
    assert torch.equal(captured.batch.truncated, eager.batch.truncated)
    # A sum that rounds otherwise can move a quote by a tick, and its market from there on.
    assert float(((captured.batch.action - eager.batch.action).abs() < 1e-3).float().mean()) > 0.9
    for one, two in zip(captured.networks.parameters(), eager.networks.parameters(), strict=True):
        assert torch.allclose(one, two, atol=5e-3)  # sixteen steps of Adam move a weight by 16e-3 at most


# Several processes ----------------------------------------------------------------------------------------------------


def torchrun(*words, folder, processes=2):
    """Run the example under torchrun; returns what it printed."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    tiny = [f"--{name.replace('_', '-')}={value}" for name, value in {**TINY, "eval_envs": 16}.items()]
    shown = subprocess.run(
        [*command, str(SCRIPT), *tiny, "--no-track", "--output", str(folder), *words],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert shown.returncode == 0, shown.stderr[-3000:]
    return shown.stdout


def checkpoints(folder):
    return [torch.load(folder / f"checkpoint{end}.pt", weights_only=True) for end in ("", "_1")]


@pytest.mark.slow
def test_two_processes_train_one_policy(ppo, tmp_path):
    printed = torchrun(folder=tmp_path)
    assert printed.count("8 markets on 2 x") == printed.count("trained 768 steps") == 1
    first, second = checkpoints(tmp_path)
    assert first["update"] == second["update"] == 6
    for name, value in first["networks"].items():
        assert torch.equal(value, second["networks"][name]), name
    assert torch.equal(*(one["optimizer"]["state"][0]["exp_avg"] for one in (first, second)))
    seeds = torch.cat([first["envs"]["seed"], second["envs"]["seed"]]).tolist()
    assert seeds == list(range(1 << 32, (1 << 32) + 8))
    assert not torch.equal(first["rng"], second["rng"])  # else both would try the same actions
    curve = json.loads((tmp_path / "results.json").read_text())["curve"]
    assert [point["steps"] for point in curve] == [0, 256, 512, 768]
    torchrun("--resume", "--total-steps=1024", folder=tmp_path)
    first, second = checkpoints(tmp_path)
    assert first["update"] == second["update"] == 8
    assert torch.equal(first["networks"]["actor.0.weight"], second["networks"]["actor.0.weight"])
    with pytest.raises(SystemExit, match="is of 2 processes, and here are 1"):
        train(ppo, tmp_path, resume=True)


def test_markets_must_divide_among_processes(ppo, monkeypatch):
    monkeypatch.setattr(ppo, "RANKS", 3)
    with pytest.raises(SystemExit, match="--num-envs: expected multiples of the 3 processes, got 8"):
        ppo.Args(num_envs=8).fill_in(on_gpu=False)
