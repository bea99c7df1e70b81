"""Action masks: a choice that is masked does what another one does; one that is not has all its orders admitted."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from env_helpers import capture_step
from markets import FEW_ORDERS
from thorough import covering

import kineticsim_env as ks
from kineticsim_env.envs.vector import MarketMakingVectorEnv, TradingVectorEnv

SMALL = {"config": FEW_ORDERS, "bank_size": 4, "warmup": 5, "action_type": "discrete", "action_mask": True}
every_engine = pytest.mark.parametrize("engine", ["cpu", "numpy", pytest.param("cuda", marks=pytest.mark.gpu)])


def tables(role):
    """By choice: whether it buys, whether it sells, and the choices with its bid, its ask, left out. From the docs."""
    if role == "maker":
        number = torch.arange(49)
        return number // 7 > 0, number % 7 > 0, number % 7, number - number % 7
    number = torch.arange(15)
    nothing = torch.zeros_like(number)
    if role == "trader":
        return (number > 0) & (number < 8), number >= 8, nothing, nothing
    return number > 0, number > 0, nothing, nothing  # on the side that is given


def market_of(core):
    """All that a choice could change, for every market; without prices of quotes that have no quantity."""
    quotes = core.simulator.quotes.clone()
    quotes[..., ::2] *= quotes[..., 1::2] > 0
    return {**core.simulator.tensors, **core.tensors, "fills": core.fills, "quotes": quotes}


def rows_differ(one, two):
    """Which markets differ in anything."""
    differ = [(tensor != two[name]).view(len(tensor), -1).any(1) for name, tensor in one.items()]
    return torch.stack(differ).any(0)


@covering
@every_engine
@pytest.mark.parametrize("role", ["maker", "trader", "momentum", "noise", "executor"])
@pytest.mark.parametrize("preset", ["trading", "continuous"])
def test_masked_choices_do_what_others_do_and_no_other_is_cut_to_nothing(engine, role, preset):
    limits = {"inventory_limit": 6, "max_qty": 4, "block_qty": 5, "forced_qty": 2, "max_target": 5}
    markets = 24 if engine == "cpu" else 8
    config = ks.MarketConfig.preset(preset)
    arguments = {**SMALL, "config": config, "horizon": 30, "autoreset_mode": "NEXT_STEP", **limits}
    envs = ks.BatchedParallelEnv(markets, {role: 1}, engine=engine, **arguments)
    seen, infos = envs.reset(seed=3)
    buys, sells, no_bid, no_ask = (table.to(envs.device) for table in tables(role))
    generator, masked, at_limit = np.random.default_rng(1), 0, 0
    for _ in range(18):
        mask = infos["action_mask"][role][:, 0]
        assert bool(mask[:, 0].all())
        masked += int((~mask).sum())
        at_limit += int((envs.simulator.inventory.abs() >= 6).sum())
        drawn = torch.from_numpy(generator.integers(0, len(buys), markets)).to(envs.device)
        side = torch.where(seen[role][:, 0, 33] > 0, 1, -1) if role not in ("maker", "trader") else None
        played = envs.clone()
        played.step({role: drawn[:, None]})
        buying, selling = buys[drawn], sells[drawn]
        if side is not None:
            buying, selling = buying & (side > 0), selling & (side < 0)
        room = [envs.simulator.inventory[:, 0] < 6, envs.simulator.inventory[:, 0] > -6]
        for wants, has_room, without in ((buying, room[0], no_bid), (selling, room[1], no_ask)):
            void = wants & ~has_room
            if role in ("noise", "executor"):
                void |= wants & (seen[role][:, 0, 30] == 0)
            void |= wants & envs.core.tensors["ended"][:, 0]
            assert not bool((mask[torch.arange(markets), drawn] & void).any())
            reduced = envs.clone()
            reduced.step({role: torch.where(void, without[drawn], drawn)[:, None]})
            assert not bool(rows_differ(market_of(played.core), market_of(reduced.core)).any())
        # An order that is not void is admitted: what it filled and what stands of it are above 0.
        quotes, filled = played.simulator.quotes[:, 0], played.core.fills[:, 0]
        open_ = mask[torch.arange(markets), drawn] & ~played.core.tensors["ended"][:, 0]
        for wants, quantity in ((buying, quotes[:, 1] + filled[:, 0]), (selling, quotes[:, 3] + filled[:, 1])):
            assert bool((quantity > 0)[wants & open_].all())
        seen, _, _, _, infos = envs.step({role: drawn[:, None]})
    assert masked > 0 and (at_limit > 0 or role in ("noise", "executor"))


@every_engine
@pytest.mark.parametrize("mode", ["SAME_STEP", "NEXT_STEP", "DISABLED"])
def test_masks_of_a_vector_environment(engine, mode):
    envs = TradingVectorEnv(
        6, engine=engine, output="torch", autoreset_mode=mode, horizon=7, inventory_limit=8, stagger=False, **SMALL
    )
    generator, full = np.random.default_rng(0), 0
    _, infos = envs.reset(seed=1)
    for t in range(20):
        inventory = envs.simulator.inventory[:, 0]
        ended = envs.core.tensors["done"]
        expected = torch.ones(6, 15, dtype=torch.bool, device=envs.device)
        expected[:, 1:8] = ((inventory < 8) & ~ended)[:, None]
        expected[:, 8:] = ((inventory > -8) & ~ended)[:, None]
        assert infos["action_mask"].dtype == torch.bool and torch.equal(infos["action_mask"], expected)
        full += int((inventory.abs() == 8).sum())
        infos = envs.step(torch.from_numpy(generator.integers(1, 8, 6) + 7 * (t // 5 % 2)).to(envs.device))[4]
        if mode == "DISABLED" and bool(envs.core.tensors["done"].any()):
            _, infos = envs.reset(options={"reset_mask": envs.core.tensors["done"].clone()})
    assert full > 3


def test_markets_have_limits_of_their_own():
    config = ks.MarketConfig.preset("trading", inventory_limit=[0, 4, 100], max_quote_qty=[8, 8, 0])
    envs = MarketMakingVectorEnv(3, engine="cpu", output="torch", **{**SMALL, "config": config})
    mask = envs.reset(seed=0)[1]["action_mask"]
    assert mask.sum(1).tolist() == [1, 49, 1]
    envs.simulator.inventory[:, 0] = 4
    mask = envs.step(torch.zeros(3, dtype=torch.int64))[4]["action_mask"]
    assert mask.sum(1).tolist() == [7, 7, 1]  # a market that holds more than its limit may sell


def test_gymnasium_samples_by_the_mask_and_results_are_copies_unless_asked():
    envs = gym.make_vec("KineticSim/Trading-v0", num_envs=3, engine="cpu", inventory_limit=1, **SMALL)
    _, infos = envs.reset(seed=0)
    for _ in range(5):
        assert infos["action_mask"].dtype == np.int8 and infos["action_mask"].shape == (3, 15)
        actions = [envs.unwrapped.single_action_space.sample(mask=row) for row in infos["action_mask"]]
        before = infos["action_mask"].copy(), infos["action_mask"]
        infos = envs.step(np.array(actions))[4]
        np.testing.assert_array_equal(*before)
    live = TradingVectorEnv(3, engine="cpu", output="torch", copy=False, **SMALL)
    assert (
        live.reset(seed=0)[1]["action_mask"].data_ptr()
        == live.step(torch.ones(3, dtype=torch.int64))[4]["action_mask"].data_ptr()
    )


def test_single_markets_have_those_of_their_rows():
    arguments = {"engine": "cpu", "inventory_limit": 3, "horizon": 12, **SMALL}
    envs = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=1, stagger=False, **arguments)
    env = gym.make("KineticSim/MarketMaking-v0", **arguments)
    many = ks.BatchedParallelEnv(1, {"maker": 1, "trader": 1}, stagger=False, **arguments)
    game = ks.parallel_env({"maker": 1, "trader": 1}, **arguments)
    masks, mask, groups, infos = (one.reset(seed=5)[1] for one in (envs, env, many, game))
    generator, voids = np.random.default_rng(0), 0
    for _ in range(10):
        np.testing.assert_array_equal(masks["action_mask"][0], mask["action_mask"])
        assert mask["action_mask"].dtype == np.int8
        for role, rows in groups["action_mask"].items():
            found = infos[f"{role}_0"]["action_mask"]
            np.testing.assert_array_equal(rows[0, 0], found)
            assert found.dtype == np.int8
            voids += int((found == 0).sum())
        copied = game.clone()
        choice, other = int(generator.integers(8, 49)), int(generator.integers(1, 8))
        masks, mask = envs.step(np.array([choice]))[4], env.step(choice)[4]
        groups = many.step({"maker": np.array([[choice]]), "trader": np.array([[other]])})[4]
        infos = game.step({"maker_0": choice, "trader_0": other})[4]
        again = copied.step({"maker_0": choice, "trader_0": other})[4]
        assert all((again[a]["action_mask"] == infos[a]["action_mask"]).all() for a in infos)
    assert voids > 20


def test_masks_are_off_by_default_and_of_discrete_actions_alone():
    plain = {**SMALL, "action_mask": False}
    assert TradingVectorEnv(2, engine="cpu", **plain).reset(seed=0)[1] == {}
    for make in (TradingVectorEnv, lambda n, **kw: ks.BatchedParallelEnv(n, {"trader": 1}, **kw)):
        with pytest.raises(ValueError, match="action_mask: expected False with action_type='continuous', got True"):
            make(2, engine="cpu", action_mask=True)
        with pytest.raises(TypeError, match="action_mask: expected .*, got 1"):
            make(2, engine="cpu", action_mask=1)


@pytest.mark.gpu
def test_a_captured_step_writes_the_mask():
    settings = {"engine": "cuda", "output": "torch", "inventory_limit": 8, "horizon": 9, **SMALL}
    captured, eager = TradingVectorEnv(3000, copy=False, **settings), TradingVectorEnv(3000, **settings)
    actions = torch.ones(3000, dtype=torch.int64, device="cuda")
    captured.reset(seed=5)
    eager.reset(seed=5)
    eager.step(actions)
    graph, results = capture_step(captured, actions)
    infos = results[4]
    for _ in range(20):
        graph.replay()
        assert torch.equal(infos["action_mask"], eager.step(actions)[4]["action_mask"])
