"""`account_info`: every number of every step, in all autoreset modes, beside single markets that are looked at live."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from markets import FEW_ORDERS
from thorough import covering

from kineticsim_env.envs.batched import BatchedParallelEnv
from kineticsim_env.envs.infos import MARKET_INFOS, SLOT_INFOS
from kineticsim_env.envs.parallel import parallel_env
from kineticsim_env.runtime import layout
from kineticsim_env.wrappers import RecordEpisodeStatistics

SMALL = {"config": FEW_ORDERS, "horizon": 5, "bank_size": 4, "warmup": 5}
TASKS = {"MarketMaking": {"max_loss": 12.0}, "Execution": {"block_qty": 9}, "Trading": {"max_loss": 12.0}}
SCENARIOS = {"randomise": {"noise_spread": (2, 12), "fee": (1, 9)}, "num_scenarios": 3}
NAMES = (*MARKET_INFOS, *SLOT_INFOS)
MODES = ("SAME_STEP", "NEXT_STEP", "DISABLED")
every_engine = pytest.mark.parametrize("engine", ["cpu", "numpy", pytest.param("cuda", marks=pytest.mark.gpu)])


def make(task="MarketMaking", num_envs=3, engine="numpy", **changes):
    settings = {"engine": engine, "stagger": False, "account_info": True, **SMALL, **TASKS.get(task, {}), **changes}
    return gym.make_vec(f"KineticSim/{task}-v0", num_envs=num_envs, **settings).unwrapped


def draw(space, steps, markets):
    return np.random.default_rng(5).uniform(-1, 1, (steps, markets, *space.shape)).astype(np.float32)


def seen_live(env, total, filled):
    """What is known of a single market, from its live tensors."""
    state, tensors = env.simulator.tensors, env.core.tensors
    best = [tensor[0].nonzero().flatten().tolist() for tensor in (state["bid"], state["ask"])]
    origin = int(state["price_origin"])
    bought, sold = env.core.fills[0, 0].tolist()
    left = 0.0
    if env.core.roles[0] == "executor":
        left = env.core.task.block_qty - abs(int(state["inventory"]))
    mid = int(tensors["mid_history"][0, 0]) / 2
    cash, inventory, fees = (int(state[name]) for name in ("cash", "inventory", "fees"))
    fundamental = int(state["fundamental_price"])
    mark = {"mid": mid, "fundamental": fundamental}[getattr(env.core.task, "mark", "fundamental")]
    return {
        "mid": mid,
        "fundamental": fundamental,
        "best_bid": best[0][-1] + origin if best[0] else np.nan,
        "best_ask": best[1][0] + origin if best[1] else np.nan,
        "scenario": int(tensors["scenario"]),
        "elapsed": int(tensors["elapsed"]),
        "cash": cash,
        "inventory": inventory,
        "fees": fees,
        "bought": bought,
        "sold": sold,
        "filled": filled + bought + sold,
        "open": left,
        "value": cash + inventory * mark - fees / 1000,
        "episode_return": total,
    }


@covering
@every_engine
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("settings", [{}, SCENARIOS])
@pytest.mark.parametrize("markets", [1, 3])
def test_every_number_is_a_single_markets(engine, mode, task, settings, markets):
    """Over ends of episodes; a step that only resets leaves the numbers as they are, but for the mask."""
    envs = make(task, markets, engine=engine, autoreset_mode=mode, **settings)
    rest = {name: value for name, value in {**SMALL, **TASKS[task], **settings}.items()}
    singles = [gym.make(f"KineticSim/{task}-v0", engine="numpy", **rest).unwrapped for _ in range(markets)]
    envs.reset(seed=40)
    for m, single in enumerate(singles):
        single.reset(seed=40 + m)
    totals, filled, ends = np.zeros(markets), np.zeros(markets), 0
    waits = np.zeros(markets, dtype=bool)
    for action in draw(envs.single_action_space, 17, markets):
        if waits.any() and mode == "DISABLED":
            envs.reset(options={"reset_mask": waits})
            waits[:] = False
        infos = envs.step(action)[4]
        assert list(infos["account_info"]) == list(NAMES)
        assert all(
            value.dtype == np.float64 and value.shape == (markets,)
            for value in map(np.asarray, infos["account_info"].values())
        )
        for m, single in enumerate(singles):
            if waits[m]:  # NEXT_STEP: this step was its reset
                assert not infos["_account_info"][m] and infos["account_info"]["elapsed"][m] == 0
                continue
            _, reward, terminated, truncated, _ = single.step(action[m])
            totals[m] += np.float32(reward)
            wanted = seen_live(single, totals[m], filled[m])
            for name, value in wanted.items():
                np.testing.assert_array_equal(infos["account_info"][name][m], value, err_msg=f"{name} of market {m}")
            assert infos["_account_info"][m] == (terminated or truncated)
            filled[m] = wanted["filled"]
        over = np.asarray(infos["_account_info"]).copy()
        ends += over.sum()
        for m in over.nonzero()[0]:
            singles[m].reset()
            totals[m] = filled[m] = 0
        waits = over if mode != "SAME_STEP" else waits
    assert ends >= 3 * markets - 1


@every_engine
def test_outputs_are_alike(engine):
    """NumPy or torch, copies or not; a copy stays what it is."""
    given = [
        {"output": "numpy"},
        {"output": "numpy", "copy": False},
        {"output": "torch"},
        {"output": "torch", "copy": False},
    ]
    made = [make(engine=engine, **kwargs) for kwargs in given]
    for envs in made:
        envs.reset(seed=3)
    actions = draw(made[0].single_action_space, 7, 3)
    kept = []
    for action in actions:
        results = [
            envs.step(torch.from_numpy(action).to(envs.device) if envs.output == "torch" else action) for envs in made
        ]
        infos = [result[4] for result in results]
        for name in NAMES:
            values = [np.asarray(torch.as_tensor(info["account_info"][name]).cpu()) for info in infos]
            assert all(np.array_equal(values[0], value, equal_nan=True) for value in values[1:]), name
        kept.append((infos[2]["account_info"]["cash"], infos[2]["account_info"]["cash"].clone()))
    assert all(torch.equal(one, two) for one, two in kept)
    assert (
        infos[3]["account_info"]["cash"].data_ptr()
        == made[3].step(torch.zeros(3, 4).to(made[3].device))[4]["account_info"]["cash"].data_ptr()
    )


def test_one_market_and_its_agents_say_the_same():
    env = gym.make("KineticSim/MarketMaking-v0", engine="numpy", account_info=True, **SMALL)
    _, infos = env.reset(seed=1)
    assert "account_info" not in infos
    infos = env.step(np.ones(4, np.float32))[4]
    assert infos["account_info"]["cash"] == infos["cash"] and infos["account_info"]["mid"] == infos["mid_price"]
    assert infos["_account_info"] is False and all(isinstance(value, float) for value in infos["account_info"].values())
    many = parallel_env({"maker": 1, "executor": 1}, engine="numpy", account_info=True, block_qty=7, **SMALL)
    many.reset(seed=1)
    batched = BatchedParallelEnv(
        1, {"maker": 1, "executor": 1}, engine="numpy", account_info=True, block_qty=7, stagger=False, **SMALL
    )
    batched.reset(seed=1)
    for _ in range(5):
        infos = many.step({agent: np.zeros(many.action_space(agent).shape, np.float32) for agent in many.agents})[4]
        other = batched.step({"maker": torch.zeros(1, 1, 4), "executor": torch.zeros(1, 1, 2)})[4]
        for agent, info in infos.items():
            role = agent.split("_")[0]
            assert info["account_info"]["cash"] == info["cash"]
            for name, value in info["account_info"].items():
                assert other["account_info"][role][name].shape == (1, 1)
                np.testing.assert_array_equal(float(other["account_info"][role][name]), value, err_msg=name)
        assert [agent for agent, info in infos.items() if not info["_account_info"]] == many.agents
        assert bool(other["_account_info"]) == (not many.agents)
    assert not many.agents


def test_off_is_off():
    envs = make(account_info=False)
    envs.reset(seed=1)
    assert set(envs.step(np.zeros((3, 4), np.float32))[4]) == {"final_obs", "_final_obs"}
    assert "info" not in envs.core.tensors
    with pytest.raises(TypeError, match="account_info: expected .*, got 1"):
        make(account_info=1)


@every_engine
def test_saved_states_go_on(engine):
    """Returns and fills of episodes that run are part of the state, and so are the last decision's fills."""
    one, two = (make(engine=name, max_offset=1) for name in (engine, "numpy"))
    one.reset(seed=3)
    two.reset(seed=99)
    actions = draw(one.single_action_space, 8, 3)
    for action in actions[:3]:
        one.step(action)
    two.load_state_dict(one.state_dict())
    assert torch.equal(one.fills.cpu(), two.fills) and bool(two.fills.any())
    for action in actions[3:]:
        mine, theirs = (envs.step(action)[4]["account_info"] for envs in (one, two))
        for name in NAMES:
            np.testing.assert_array_equal(mine[name], theirs[name], err_msg=name)
    saved = one.state_dict()
    with pytest.raises(
        ValueError, match=r"missing or unknown names \['episode_filled', 'episode_return', 'idle', 'info'\]"
    ):
        make(engine="numpy", account_info=False).load_state_dict(saved)
    for name, bad in (("fills", -1), ("episode_filled", -1), ("episode_return", float("nan"))):
        wrong = {**saved, name: torch.full_like(saved[name], bad)}
        with pytest.raises(ValueError, match=rf"state\['{name}'\]: .*got"):
            two.load_state_dict(wrong)


def test_rows_have_the_numbers_of_the_header():
    assert layout.CONSTANTS["kMarketInfos"] == len(MARKET_INFOS) and layout.CONSTANTS["kSlotInfos"] == len(SLOT_INFOS)
    envs = make(num_envs=2)
    assert envs.core.tensors["info"].shape == (15, 2) and envs.core.tensors["info"].dtype == torch.float64


@pytest.mark.parametrize("mode", MODES)
def test_statistics_come_from_it(mode):
    """The wrapper's returns are those that it adds up itself, and it says how episodes ended in money."""
    plain, told = (
        RecordEpisodeStatistics(make(account_info=info, output="torch", autoreset_mode=mode)) for info in (False, True)
    )
    for envs in (plain, told):
        envs.reset(seed=2)
    ends, over = 0, torch.zeros(3, dtype=torch.bool)
    for action in torch.from_numpy(draw(plain.single_action_space, 12, 3)):
        if mode == "DISABLED" and bool(over.any()):
            for envs in (plain, told):
                envs.reset(options={"reset_mask": over})
        first, second = (envs.step(action)[4] for envs in (plain, told))
        over = first["_episode"]
        ends += int(over.sum())
        assert torch.equal(over, second["_episode"])
        for key in ("r", "l"):
            assert torch.equal(first["episode"][key], second["episode"][key])
        for name in ("value", "inventory", "fees", "filled"):
            wanted = torch.where(over, second["account_info"][name], 0.0)
            assert torch.equal(second["episode"][name], wanted)
        assert set(first["episode"]) == {"r", "l"}
    assert ends >= 6
    one, two = plain.summary(), told.summary()
    assert one.items() <= two.items() and set(two) - set(one) == {"value", "inventory", "fees", "filled"}
