"""Opponents: policies in other slots of a vector environment, beside single markets whose slots are played by hand."""

import copy

import gymnasium as gym
import numpy as np
import pytest
import torch
from env_helpers import assert_steps_wait_for_nothing, capture_step
from gymnasium.envs.registration import EnvSpec
from thorough import covering

import kineticsim_env as ks
from kineticsim_env import policies
from kineticsim_env.engines.numpy import rules
from kineticsim_env.envs.batched import BatchedParallelEnv
from kineticsim_env.evaluation import HELD_OUT_WARM_SEED, evaluate, evaluation_env, liquidate
from kineticsim_env.runtime import layout
from kineticsim_env.runtime.roles import SPECS
from kineticsim_env.tasks import ExecutionTask, ManyLearnersTask, MarketMakingTask, TradingTask
from kineticsim_env.tasks.many_learners import with_all_roles
from kineticsim_env.wrappers import RecordEpisodeStatistics

SMALL = {"horizon": 6, "bank_size": 4, "warmup": 5}
MODES = ("SAME_STEP", "NEXT_STEP", "DISABLED")
every_engine = pytest.mark.parametrize("engine", ["cpu", "numpy", pytest.param("cuda", marks=pytest.mark.gpu)])
MARKETS, STEPS = 5, 30
one_or_many = pytest.mark.parametrize("markets", [1, MARKETS])
TASK = ManyLearnersTask(**SMALL)
TIGHT, WIDE = policies.FixedSpread(TASK, 1.0), policies.FixedSpread(TASK, 5.0)


def leaning(observation):
    """A maker's quotes that lean on what it sees, by operations that have the same bits on all devices."""
    return torch.stack([observation[:, 31], -observation[:, 22], observation[:, 0] * 2 - 1, observation[:, 8]], 1)


def chasing(observation):
    """A trader's order."""
    return torch.stack([(observation[:, 22] * 9 + observation[:, 0]).clamp(-1, 1), -observation[:, 30]], 1)


class Counting:
    """A trader that remembers how many decisions of the episode it has seen."""

    def __init__(self):
        self.count = None

    def reset(self, mask):
        assert mask.dtype == torch.bool
        self.count = torch.zeros(len(mask), device=mask.device) if self.count is None else self.count
        self.count = torch.where(mask, 0.0, self.count)

    def __call__(self, observation):
        self.count = self.count + 1
        return torch.stack([(self.count - 3) * 0.25, observation[:, 0] * (self.count * 0.125)], 1)


def lists():
    return {"maker": [TIGHT, leaning, WIDE], "trader": [[chasing, Counting()], [chasing]]}


def make(task="MarketMaking", engine="numpy", num_envs=MARKETS, **changes):
    settings = {"preset": "trading", "engine": engine, "stagger": False, "output": "torch", **SMALL, **changes}
    return gym.make_vec(f"KineticSim/{task}-v0", num_envs=num_envs, **settings).unwrapped


def draw(shape, steps=STEPS):
    return np.random.default_rng(7).uniform(-1, 1, (steps, *shape)).astype(np.float32)


def drawn_by_hand(seed, episode, slot, count):
    """docs/environment.md, with the reference's hash."""
    key = rules.episode_key(np.array([seed]), np.array([episode]))
    word = rules.random_words(key, np.zeros(1, np.int64), np.array([2**30 + 32 + slot]))
    return int(rules.bits(word, 32, 32)[0]) * count >> 32


class ByHand:
    """One market of makers, traders and whoever else learns, in which all but the first learner follow policies."""

    def __init__(self, seed, learners, lists, **settings):
        how = {"preset": "trading", "engine": "cpu", "autoreset_mode": "DISABLED", "stagger": False}
        self.env = BatchedParallelEnv(1, learners, **{**how, **SMALL, **settings})
        self.role = next(iter(learners))
        self.lists = copy.deepcopy(lists)  # in the order of the slots
        self.seed, self.episode, self.ended = seed, -1, False

    def reset(self):
        self.episode += 1
        self.seen, _ = self.env.reset(seed=self.seed if self.episode == 0 else None)
        places = [drawn_by_hand(self.seed, self.episode, 1 + k, len(one)) for k, one in enumerate(self.lists)]
        self.places, self.ended = places, False
        for one in self.lists:
            for policy in one:
                if hasattr(policy, "reset"):
                    policy.reset(torch.ones(1, dtype=torch.bool))
        return self.seen[self.role][0, 0].numpy()

    def step(self, action):
        actions, slot = {}, -1
        for role, rows in self.seen.items():
            taken = []
            for learner in range(rows.shape[1]):
                if slot < 0:
                    taken.append(torch.from_numpy(np.atleast_1d(action)[None]).view(1, *np.shape(action)))
                else:
                    answers = [policy(rows[:, learner]) for policy in self.lists[slot]]
                    taken.append(answers[self.places[slot]])
                slot += 1
            actions[role] = torch.stack(taken, 1)
        self.seen, *results, _ = self.env.step(actions)
        reward, terminated, truncated = (part[self.role][0, 0].item() for part in results)
        self.ended = terminated or truncated
        return self.seen[self.role][0, 0].numpy(), np.float32(reward), terminated, truncated


def host(values):
    return np.asarray(torch.as_tensor(values).cpu())


def assert_played_by_hand(envs, hands, actions, mode):
    """Every observation, reward and flag over many ends of episodes; returns how many ended how."""
    first = host(envs.reset(seed=40)[0])
    ends = {"terminated": 0, "truncated": 0}
    for m, hand in enumerate(hands):
        np.testing.assert_array_equal(first[m], hand.reset())
    for action in actions:
        if mode == "DISABLED" and any(hand.ended for hand in hands):
            mask = np.array([hand.ended for hand in hands])
            fresh = host(envs.reset(options={"reset_mask": mask})[0]).copy()
            for m in mask.nonzero()[0]:
                np.testing.assert_array_equal(fresh[m], hands[m].reset())
        np.testing.assert_array_equal(host(envs.opponent), [hand.places for hand in hands])
        observation, paid, terminated, truncated, infos = envs.step(torch.from_numpy(action).to(envs.device))
        observation, paid, terminated, truncated = map(host, (observation, paid, terminated, truncated))
        for m, hand in enumerate(hands):
            if hand.ended and mode == "NEXT_STEP":
                np.testing.assert_array_equal(observation[m], hand.reset())
                assert (paid[m], terminated[m], truncated[m]) == (0, False, False)
                continue
            seen, reward, terminates, truncates = hand.step(action[m])
            assert (paid[m], terminated[m], truncated[m]) == (reward, terminates, truncates)
            ends["terminated"] += terminates
            ends["truncated"] += truncates
            if "account_info" in infos:
                assert host(infos["_account_info"])[m] == hand.ended
                state = hand.env.simulator
                assert host(infos["account_info"]["cash"])[m] == int(state.cash[0, 0])
                assert host(infos["account_info"]["inventory"])[m] == int(state.inventory[0, 0])
            if mode == "SAME_STEP":
                np.testing.assert_array_equal(host(infos["final_obs"])[m], seen)
                assert host(infos["_final_obs"])[m] == hand.ended
                seen = hand.reset() if hand.ended else seen
            np.testing.assert_array_equal(observation[m], seen)
    return ends


@covering
@every_engine
@one_or_many
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("max_loss", [None, 8.0])
def test_markets_are_those_that_policies_play_by_hand(engine, mode, max_loss, markets):
    """With max_loss learners and opponents end at different times; an episode of a market is its learner's."""
    settings = {"max_loss": max_loss, "randomise": {"fee": {"values": [0, 4]}}, "num_scenarios": 2}
    given, how = lists(), {"engine": engine, "autoreset_mode": mode, "num_envs": markets, **settings}
    envs = make(replace="maker", account_info=True, opponents=lists(), **how)
    in_order = [given["maker"], *given["trader"]]
    hands = [ByHand(40 + m, {"maker": 2, "trader": 2}, in_order, **settings) for m in range(markets)]
    ends = assert_played_by_hand(envs, hands, draw((markets, 4)), mode)
    assert ends["truncated"] > 0 and (ends["terminated"] == 0 or max_loss is not None)
    if max_loss and markets > 1:
        assert ends["terminated"] > 0
        early = envs.core.tensors["ended"].cpu()
        while not bool((early[:, 1:] & ~early[:, :1]).any()):  # an opponent that has lost too much, beside a learner
            step(envs)
            early = envs.core.tensors["ended"].cpu()


def step(envs, action=None):
    """Play a decision, after what has ended has begun where the environment does not see to it."""
    over = envs.core.tensors["done"]
    if envs.autoreset_mode.name == "DISABLED" and bool(over.any()):
        envs.reset(options={"reset_mask": over.clone()})
    zeros = torch.zeros(envs.action_space.shape, device=envs.device)
    return envs.step(zeros if action is None else action)


@covering
@every_engine
@one_or_many
@pytest.mark.parametrize("mode", MODES)
def test_blocks_among_opponents(engine, mode, markets):
    """A learner with a block that is done early, beside makers and a noise learner, whose settings are the defaults."""
    noise = policies.TimeWeighted(ManyLearnersTask(horizon=6, block_qty=40))
    settings = {"block_qty": 9, "auctions_per_step": 2}
    given = {"maker": [TIGHT, WIDE], "noise": [noise, chasing]}
    envs = make("Execution", engine, markets, autoreset_mode=mode, opponents=given, **settings)
    limits = {"inventory_limit": None, "reward_scale": 1.0}
    learners = {"executor": 1, "maker": 1, "noise": 1}
    hands = [ByHand(40 + m, learners, list(given.values()), **settings, **limits) for m in range(markets)]
    assert_played_by_hand(envs, hands, draw((markets, 2)), mode)


@covering
@one_or_many
@pytest.mark.parametrize("mode", MODES)
def test_executors_against_a_trader(mode, markets):
    """Blocks that are forced through after the learner's last decision are the opponent's."""
    given = {"executor": [policies.TimeWeighted(TASK), policies.DoNothing(TASK)]}
    envs = make("Trading", num_envs=markets, autoreset_mode=mode, opponents=given)
    changes = {"inventory_penalty": TradingTask().inventory_penalty}
    hands = [ByHand(40 + m, {"trader": 1, "executor": 1}, list(given.values()), **changes) for m in range(markets)]
    assert_played_by_hand(envs, hands, draw((markets, 2)), mode)


@covering
@one_or_many
@pytest.mark.parametrize("mode", MODES)
def test_choices(mode, markets):
    """Discrete actions, and masks of the learner's."""
    task = ManyLearnersTask(**SMALL, action_type="discrete")
    given = {"maker": [policies.Discretised(one, task, "maker") for one in (TIGHT, WIDE)]}
    settings = {"action_type": "discrete", "action_mask": True, "inventory_limit": 5}
    envs = make(num_envs=markets, autoreset_mode=mode, replace="maker", opponents=given, **settings)
    hands = [ByHand(40 + m, {"maker": 2}, list(given.values()), **settings) for m in range(markets)]
    actions = np.random.default_rng(2).integers(0, 49, (STEPS, markets))
    assert_played_by_hand(envs, hands, actions, mode)
    masks = [step(envs, torch.from_numpy(action))[4]["action_mask"] for action in actions]
    assert masks[0].shape == (markets, 49) and not all(mask.all() for mask in masks)


@covering
@one_or_many
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("task", ["MarketMaking", "Trading", "Execution"])
@pytest.mark.parametrize("setting", ["horizon", "max_qty", "inventory_limit or block_qty"])
def test_settings_of_the_task_may_be_drawn(setting, task, mode, markets):
    """What opponents have to trade fits the smallest limit that is drawn; all else is as where their roles learn."""
    setting = setting if " " not in setting else "block_qty" if task == "Execution" else "inventory_limit"
    smallest = 4 if (setting, task) == ("max_qty", "Execution") else 3  # which has forced orders of its own
    values = [1, 4] if setting == "horizon" else [smallest, 11]
    how = {"randomise": {f"task.{setting}": {"values": values}}, "num_scenarios": 6}
    seller = policies.TimeWeighted(ManyLearnersTask(**SMALL, max_target=3, block_qty=3, forced_qty=3))
    given = {"executor": [seller, chasing], "noise": [seller, chasing]}
    role = {"MarketMaking": "maker", "Trading": "trader", "Execution": "executor"}[task]
    replace = "maker" if role == "maker" else None
    envs = make(task, num_envs=markets, autoreset_mode=mode, replace=replace, opponents=given, **how)
    if setting == "inventory_limit":
        how |= {"max_target": 3, "block_qty": 3, "forced_qty": 4}
    if setting == "max_qty":
        how |= {"forced_qty": smallest}
    if task == "Execution":
        given_task = ExecutionTask()
        how |= {"inventory_limit": None, "block_qty": given_task.block_qty, "reward_scale": given_task.reward_scale}
    if task == "Trading":
        how |= {"inventory_penalty": TradingTask().inventory_penalty}
    learners = {role: 1, "executor": 1} | ({"executor": 2} if role == "executor" else {}) | {"noise": 1}
    hands = [ByHand(40 + m, learners, list(given.values()), **how) for m in range(markets)]
    ends = assert_played_by_hand(envs, hands, draw((markets, SPECS[role].action.size)), mode)
    assert sum(ends.values()) > 3
    place = list(layout.ENUMS["TaskValue"]).index(setting)
    assert set(envs.core.tensors["task_values"][..., place].unique().tolist()) <= set(values)


def test_settings_of_the_task_may_be_drawn_anew():
    """What opponents have to trade stays as it was made, so a smaller limit is refused, and nothing has changed."""

    def drawn(low):
        return {"task.inventory_limit": {"values": [low, 30, 50]}}

    envs = make(opponents={"noise": [chasing]}, randomise=drawn(20), num_scenarios=9)
    envs.reset(seed=1)
    assert envs.core.live_task.task_of_all().max_target == 20
    before = envs.state_dict()
    with pytest.raises(
        ValueError, match="max_target: expected up to the inventory limit, 7, with a noise learner, got 20"
    ):
        envs.set_scenarios(drawn(7))
    assert all(torch.equal(before[name], now) for name, now in envs.state_dict().items())
    envs.set_scenarios(drawn(25))
    for _ in range(9):
        step(envs)
    assert set(envs.core.setting("inventory_limit").unique().tolist()) <= {25, 30, 50}
    assert envs.core.setting("max_target")[:, 1].unique().tolist() == [20]


@pytest.mark.parametrize(("role", "name"), [("noise", "max_target"), ("executor", "block_qty")])
def test_learners_have_room_in_every_scenario(role, name):
    """As where limits are given as arrays, those that are drawn have to leave room for what learners trade."""
    settings = {"engine": "numpy", "randomise": {"task.inventory_limit": {"values": [5, 60]}}, "num_scenarios": 9}
    with pytest.raises(ValueError, match=f"{name}: expected .* inventory.limit, 5.*, got 40"):
        BatchedParallelEnv(2, {role: 1, "maker": 1}, **SMALL, **settings)
    BatchedParallelEnv(2, {role: 1, "maker": 1}, **SMALL, **settings, **{name: 5})


def own_feature(after):
    return torch.stack([after.inventory, after.quotes[..., 1].double()], -1)


@covering
@every_engine
@one_or_many
@pytest.mark.parametrize("mode", MODES)
def test_opponents_of_the_learners_role_see_its_features(engine, mode, markets):
    def by_feature(observation):
        own = (observation[:, -2:] * 0.125).clamp(-1, 1)
        return torch.cat([own, observation[:, :2]], 1)

    given, features = {"maker": [by_feature, leaning], "trader": [chasing]}, [own_feature]
    how = {"engine": engine, "autoreset_mode": mode, "num_envs": markets}
    envs = make(replace="maker", opponents=given, features=features, **how)
    with_features = {"features": {"maker": features}}
    hands = [ByHand(40 + m, {"maker": 2, "trader": 1}, list(given.values()), **with_features) for m in range(markets)]
    assert_played_by_hand(envs, hands, draw((markets, 4)), mode)
    assert envs.single_observation_space.shape == (37 + 2,)


@covering
@one_or_many
@pytest.mark.parametrize("mode", MODES)
def test_own_rewards_and_ends_are_of_the_learner(mode, markets):
    def reward(before, after):
        return after.value - before.value

    def terminate(before, after):
        return after.inventory.abs() >= 4

    own = {"reward": reward, "terminate": terminate}
    given, how = lists(), {"autoreset_mode": mode, "num_envs": markets}
    envs = make(replace="maker", opponents=lists(), account_info=True, **own, **how)

    def only_the_first(before, after):
        return terminate(before, after) & torch.tensor([True, False])

    settings = {"reward": {"maker": reward}, "terminate": {"maker": only_the_first}}
    hands = [
        ByHand(40 + m, {"maker": 2, "trader": 2}, [given["maker"], *given["trader"]], **settings)
        for m in range(markets)
    ]
    ends = assert_played_by_hand(envs, hands, draw((markets, 4)), mode)
    assert ends["terminated"] > 0


# Draws ----------------------------------------------------------------------------------------------------------------


def test_words_are_those_of_the_model():
    seeds = np.random.default_rng(0).integers(-(2**63), 2**63, 150)
    envs = make(num_envs=150, opponents={"maker": [TIGHT] * 7, "trader": [chasing] * 65536})
    envs.reset(seed=seeds)
    for _ in range(3):
        episode = int(envs.simulator.tensors["episode"][0])
        expected = [[drawn_by_hand(seed, episode, 1, 7), drawn_by_hand(seed, episode, 2, 65536)] for seed in seeds]
        np.testing.assert_array_equal(envs.opponent, expected)
        envs.reset()


@pytest.mark.parametrize("mode", MODES)
def test_an_episode_keeps_its_draw(mode):
    envs = make(autoreset_mode=mode, num_envs=64, opponents={"maker": [TIGHT, WIDE, leaning]}, stagger=True)
    envs.reset(seed=1)
    episode, before, changed = envs.simulator.tensors["episode"].clone(), envs.opponent.clone(), 0
    for _ in range(40):
        step(envs)
        new = envs.simulator.tensors["episode"] != episode
        assert torch.equal(envs.opponent[~new], before[~new])
        changed += int((envs.opponent != before).sum())
        episode, before = envs.simulator.tensors["episode"].clone(), envs.opponent.clone()
    assert changed > 64


def test_draws_are_equally_likely_and_independent():
    many = 20000
    envs = make(
        num_envs=many, engine="cpu", warmup=0, bank_size=0, opponents={"trader": [[chasing] * 3, [chasing] * 2]}
    )
    envs.reset(seed=9)
    first = envs.opponent.clone()
    envs.reset()
    pairs = first[:, 0] * 2 + first[:, 1]
    later = first[:, 0] * 3 + envs.opponent[:, 0]
    for draws, kinds in ((pairs, 6), (later, 9)):
        counts = torch.bincount(draws, minlength=kinds).double()
        expected = many / kinds
        assert float(((counts - expected) ** 2 / expected).sum()) < 35  # chi squared, 8 degrees: below 1 in 20,000


@one_or_many
@pytest.mark.parametrize("mode", MODES)
def test_seeds_repeat(mode, markets):
    envs = make(num_envs=markets, autoreset_mode=mode, opponents=lists())
    runs = []
    for _ in range(2):
        envs.reset(seed=3)
        generator = torch.Generator().manual_seed(1)
        runs.append([step(envs, torch.rand(markets, 4, generator=generator))[1].clone() for _ in range(20)])
    assert all(torch.equal(one, two) for one, two in zip(*runs, strict=True))


# Who plays ------------------------------------------------------------------------------------------------------------


@covering
@every_engine
@one_or_many
@pytest.mark.parametrize("task", ["MarketMaking", "Execution", "Trading"])
def test_those_who_do_nothing_change_nothing(task, engine, markets):
    none = [policies.Hold(TASK)]
    one, two = make(task, engine, markets, opponents={"trader": [none, none]}), make(task, engine, markets)
    assert torch.equal(one.reset(seed=3)[0], two.reset(seed=3)[0])
    for action in torch.from_numpy(draw(two.action_space.shape)).to(one.device):
        mine, theirs = one.step(action), two.step(action)
        for a, b in zip(mine[:4], theirs[:4], strict=True):
            assert torch.equal(a, b)
        assert mine[4].keys() == theirs[4].keys()
        assert torch.equal(mine[4]["final_obs"], theirs[4]["final_obs"])
    assert torch.equal(one.simulator.bid, two.simulator.bid)


def test_numpy_and_torch_hand_out_the_same():
    one, two = make(opponents=lists(), account_info=True), make(opponents=lists(), account_info=True, output="numpy")
    np.testing.assert_array_equal(one.reset(seed=3)[0], two.reset(seed=3)[0])
    for action in draw((MARKETS, 4)):
        mine, theirs = one.step(torch.from_numpy(action)), two.step(action)
        for a, b in zip(mine[:4], theirs[:4], strict=True):
            assert b.dtype == host(a).dtype
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(mine[4]["account_info"]["value"], theirs[4]["account_info"]["value"])
    assert two.observation_space.contains(theirs[0])


def test_modules_are_given_no_gradients():
    module = torch.nn.Sequential(torch.nn.Linear(37, 4), torch.nn.Tanh())
    seen = []

    def watching(observation):
        seen.append((torch.is_grad_enabled(), observation.requires_grad))
        return module(observation)

    envs = make(opponents={"maker": [watching, module]})
    actions = (torch.zeros(MARKETS, 37) @ torch.zeros(37, 4).requires_grad_()).tanh()
    envs.reset(seed=1)
    results = step(envs, actions.detach())
    loss = module(results[0]).sum()  # the learner's own training goes on around it
    loss.backward()
    assert seen == [(False, False)] and torch.is_grad_enabled()
    assert module[0].weight.grad is not None and not results[1].requires_grad
    envs.step(actions.detach())


def test_what_a_policy_does_to_its_observation_stays_with_it():
    def rude(observation):
        return observation.mul_(0.0)[:, :4]

    envs, kind = make(opponents={"maker": [rude]}), make(opponents={"maker": [lambda seen: torch.zeros(MARKETS, 4)]})
    for one in (envs, kind):
        one.reset(seed=1)
        step(one)
    assert torch.equal(envs.core.tensors["observation"], kind.core.tensors["observation"])


# Lists that change ----------------------------------------------------------------------------------------------------


def test_running_episodes_keep_their_opponents_as_a_list_grows():
    envs = make(num_envs=64, opponents={"maker": [TIGHT]}, autoreset_mode="NEXT_STEP")
    envs.reset(seed=1)
    clone = envs.clone()
    envs.set_opponents({"maker": [TIGHT, WIDE]})
    for _ in range(6):
        mine, theirs = step(envs), step(clone)
        for one, two in zip(mine[:4], theirs[:4], strict=True):
            assert torch.equal(one, two)
    assert not envs.opponent.any()
    step(envs)
    assert {0, 1} == set(envs.opponent.flatten().tolist())
    envs.set_opponents({"maker": [WIDE]})
    assert not envs.opponent.any()


def test_what_joins_late_is_told_that_it_begins():
    class Told:
        def __init__(self):
            self.masks = []

        def reset(self, mask):
            self.masks.append(mask.clone())

        def __call__(self, observation):
            return torch.zeros(len(observation), 2)

    first, second = Told(), Told()
    envs = make(opponents={"trader": [first]})
    envs.reset(seed=1)
    step(envs)
    assert [mask.all().item() for mask in first.masks] == [True]
    envs.set_opponents({"trader": [first, second]})
    assert len(first.masks) == 1 and len(second.masks) == 1 and second.masks[0].all()
    for _ in range(5):
        step(envs)
    assert len(first.masks) == len(second.masks) == 2 and first.masks[1].all()


def test_the_slots_stay():
    envs = make(opponents={"maker": [TIGHT]})
    with pytest.raises(ValueError, match=r"opponents: expected slots of the roles \['maker'\], got \['trader'\]"):
        envs.set_opponents({"trader": [chasing]})
    with pytest.raises(ValueError, match="expected slots of the roles \\['maker'\\], got "):
        envs.set_opponents({"maker": [[TIGHT], [TIGHT]]})
    with pytest.raises(ValueError, match="set_opponents: expected an environment made with opponents, got one without"):
        make().set_opponents({"maker": [TIGHT]})


# States ---------------------------------------------------------------------------------------------------------------


@covering
@pytest.mark.parametrize("markets", [1, 32])
@pytest.mark.parametrize("mode", MODES)
def test_clones_and_states_go_on(mode, markets):
    """Memories of policies are cloned; no state has them."""
    given = {"maker": [TIGHT, leaning, WIDE], "trader": [[chasing, TIGHT_TRADER], [chasing]]}
    for opponents, copies in ((lists(), ("clone",)), (given, ("clone", "state"))):
        envs = make(autoreset_mode=mode, num_envs=markets, opponents=opponents, features=[own_feature])
        envs.reset(seed=2)
        actions = torch.from_numpy(draw((markets, 4)))
        for action in actions[:9]:
            step(envs, action)
        saved, clone = envs.state_dict(), envs.clone()
        expected = [[part.clone() for part in step(envs, action)[:4]] for action in actions[9:]]
        for way in copies:
            if way == "state":
                clone = make(autoreset_mode=mode, num_envs=markets, opponents=opponents, features=[own_feature])
                clone.load_state_dict(saved)
                assert torch.equal(clone.opponent, saved["opponent"])
            for action, results in zip(actions[9:], expected, strict=True):
                for one, two in zip(step(clone, action)[:4], results, strict=True):
                    assert torch.equal(one, two)


TIGHT_TRADER = policies.MomentumTrader(TASK)


def test_states_are_of_opponents_that_there_are():
    envs = make(num_envs=32, opponents={"maker": [TIGHT, WIDE]})
    envs.reset(seed=1)
    saved, fewer = envs.state_dict(), make(num_envs=32, opponents={"maker": [TIGHT]})
    fewer.reset(seed=5)
    before = fewer.state_dict()
    with pytest.raises(ValueError, match=r"state\['opponent'\]: expected less than the slots' policies, \[1\], got 1"):
        fewer.load_state_dict(saved)
    assert all(torch.equal(before[name], now) for name, now in fewer.state_dict().items())
    with pytest.raises(ValueError, match="got missing or unknown names"):
        make(num_envs=32).load_state_dict(saved)


def test_a_clone_has_opponents_of_its_own():
    envs = make(opponents=lists())
    envs.reset(seed=2)
    clone = envs.clone()
    before = envs.state_dict()
    for _ in range(9):
        step(clone)
    assert all(torch.equal(before[name], now) for name, now in envs.state_dict().items())


# Evaluation and libraries ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_loss", [None, 30.0])
def test_evaluate(max_loss):
    """The learner's figures are those of the same market with all slots learners, played by the same policies."""
    settings = {"engine": "cpu", "horizon": 30, "max_loss": max_loss, "warmup": 5}
    rival = policies.FixedSpread(ManyLearnersTask(horizon=30), 2.0)
    mine = policies.FixedSpread(MarketMakingTask(horizon=30), 3.0)
    envs = evaluation_env(64, replace="maker", opponents={"maker": [rival]}, **settings)
    found = evaluate(RecurrentMaker(mine), RecordEpisodeStatistics(envs), seed=5)
    many = BatchedParallelEnv(
        64, {"maker": 2}, autoreset_mode="DISABLED", stagger=False, warm_seed=HELD_OUT_WARM_SEED, **settings
    )
    expected = evaluate({"maker_0": mine, "maker_1": rival}, many, seed=5)["maker_0"]
    np.testing.assert_array_equal(found.episode_return, expected.episode_return)
    np.testing.assert_array_equal(found.traded, expected.traded)
    if max_loss is None:  # the learner's inventory is unwound alone
        observation, _ = many.reset(seed=5)
        for _ in range(30):
            answers = [one(observation["maker"][:, place]) for place, one in enumerate((mine, rival))]
            observation, *_ = many.step({"maker": torch.stack(answers, 1)})
        liquidate(many.simulator, slots=torch.tensor([[True, False]]).expand(64, 2))
        np.testing.assert_array_equal(found.pnl, many.simulator.money[:, 0])
    assert len(found.pnl) == 64 and np.isfinite(found.pnl).all()


class RecurrentMaker:
    def __init__(self, policy):
        self.policy, self.began = policy, 0

    def reset(self, mask):
        self.began += int(mask.sum())

    def __call__(self, observation):
        assert self.began >= len(observation)
        return self.policy(observation)


def test_evaluate_an_executor_among_others():
    task = ExecutionTask(horizon=20)
    given = {"maker": [policies.FixedSpread(ManyLearnersTask(horizon=20, inventory_limit=None), 1.0)]}
    envs = evaluation_env(64, "Execution", horizon=20, engine="cpu", opponents=given)
    with_makers = evaluate(policies.TimeWeighted(task), envs)
    alone = evaluate(policies.TimeWeighted(task), evaluation_env(64, "Execution", horizon=20, engine="cpu"))
    assert not np.array_equal(with_makers.pnl, alone.pnl)
    with_executor = {"executor": [policies.DoNothing(ManyLearnersTask(horizon=30))]}
    envs = evaluation_env(16, horizon=30, engine="cpu", opponents=with_executor)
    assert np.isfinite(evaluate(policies.FixedSpread(MarketMakingTask(horizon=30)), envs).pnl).all()


def test_stable_baselines():
    sb3 = pytest.importorskip("stable_baselines3")
    from kineticsim_env.adapters.sb3 import SB3VecEnv

    def snapshot(observation):
        with torch.no_grad():
            return model.policy._predict(observation, deterministic=True)

    env = SB3VecEnv("KineticSim/MarketMaking-v0", num_envs=8, horizon=16, opponents={"maker": [TIGHT]}, engine="cpu")
    model = sb3.PPO("MlpPolicy", env, n_steps=32, batch_size=64, n_epochs=1, device="cpu", seed=0)
    model.learn(256)
    env.env_method("set_opponents", {"maker": [TIGHT, lambda seen: snapshot(seen).clamp(-1, 1)]})
    model.learn(512, reset_num_timesteps=False)
    assert set(np.concatenate(env.get_attr("opponent")).tolist()) <= {0, 1}
    assert len(model.ep_info_buffer) > 0
    env.close()


def test_torchrl():
    pytest.importorskip("torchrl")
    from kineticsim_env.adapters.torchrl import TorchRLEnv

    env = TorchRLEnv("KineticSim/Trading-v0", num_envs=8, horizon=10, engine="cpu", opponents={"maker": [TIGHT, WIDE]})
    env.set_seed(1)
    rollout = env.rollout(25, break_when_any_done=False)
    assert rollout["next", "reward"].shape[:2] == (8, 25) and bool(rollout["next", "done"].any())
    env.close()


def test_scenarios_may_change_under_them():
    envs = make(opponents=lists(), randomise={"noise_spread": (2, 12)}, num_scenarios=3)
    envs.reset(seed=1)
    step(envs)
    envs.set_scenarios({"noise_spread": (4, 5)})
    envs.set_task(inventory_penalty=0.5)
    for _ in range(8):
        step(envs)
    envs.check_errors()


def test_specs_keep_policies_alive_but_json_does_not():
    given = {"maker": [TIGHT, leaning]}
    envs = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=2, opponents=given)
    kept = envs.spec.kwargs["opponents"]["maker"]
    assert kept[0] is TIGHT and kept[1] is leaning
    with pytest.raises((TypeError, ValueError)):
        EnvSpec.from_json(envs.spec.to_json())
    scripted = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=2, opponents={"maker": [TIGHT]})
    with pytest.raises(TypeError, match=r"opponents\['maker'\]\[0\]: expected a policy.*got"):
        gym.make_vec(EnvSpec.from_json(scripted.spec.to_json()), num_envs=2)


# Wrong ones -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([TIGHT], "opponents: expected a dict of lists of policies.*got"),
        ({}, r"opponents: expected 1 to 31 slots, or None, got 0"),
        ({"market": [TIGHT]}, "opponents: expected one of 'maker', .*, got the role 'market'"),
        ({"maker": TIGHT}, r"opponents\['maker'\]: expected a list of policies.*got FixedSpread"),
        ({"maker": []}, r"opponents\['maker'\]: expected .*, got an empty list"),
        ({"maker": [[TIGHT], []]}, r"opponents\['maker'\]\[1\]: expected .*, got an empty list"),
        ({"maker": [[TIGHT], TIGHT]}, r"opponents\['maker'\]\[1\]: expected a list.*got FixedSpread"),
        ({"maker": [TIGHT, 3]}, r"opponents\['maker'\]\[1\]: expected a policy.*got 3"),
        ({"maker": [[TIGHT]] * 3}, r"opponents\['maker'\]: expected up to 2, the built-in maker.*got 3 slots"),
        ({"trader": [[chasing]] * 32}, "opponents: expected 1 to 31 slots, or None, got 32"),
        ({"trader": [Counting()] * 2}, "opponents: expected a copy.*got the recurrent policy .*twice"),
    ],
)
def test_wrong_lists(given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make(opponents=given)


def test_a_learner_takes_a_place_too():
    make(opponents={"maker": [[TIGHT], [TIGHT]]})
    with pytest.raises(ValueError, match=r"opponents\['maker'\]: expected up to 1.*got 2 slots"):
        make(opponents={"maker": [[TIGHT], [TIGHT]]}, replace="maker")


def test_places_that_a_market_does_not_have():
    """The learner's is looked at first: what is left for opponents is never less than none."""
    market = ks.MarketConfig.preset("trading", maker=0.0, noise=0.8, momentum=0.1, fundamental=0.1)
    for opponents in (None, {"maker": [TIGHT]}):
        with pytest.raises(ValueError, match=r"replace: expected up to 0, the built-in maker.*got 'maker', one agent"):
            make(config=market, replace="maker", opponents=opponents)
    with pytest.raises(ValueError, match=r"opponents\['maker'\]: expected up to 0, the built-in maker.*got 1 slots"):
        make(config=market, opponents={"maker": [TIGHT]})
    with pytest.raises(ValueError, match="replace: expected up to 0.*got 'maker', one agent"):
        gym.make("KineticSim/MarketMaking-v0", config=market, replace="maker", **SMALL)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda seen: torch.zeros(len(seen), 2), r"expected float32 \[5, 4\].*got torch.float32 \[5, 2\] on cpu"),
        (lambda seen: torch.zeros(len(seen), 4).double(), "expected float32.*got .*float64"),
        (lambda seen: torch.full((len(seen), 4), float("nan")), "expected -1 to 1.*got nan"),
        (lambda seen: torch.full((len(seen), 4), 1.5), "expected -1 to 1.*got 1.5"),
        (lambda seen: None, "got None"),
    ],
)
def test_wrong_answers_name_the_policy_and_change_nothing(answer, message):
    for place, given in ((0, [answer]), (2, [TIGHT, WIDE, answer])):
        envs = make(opponents={"maker": given})
        envs.reset(seed=1)
        before = envs.state_dict()
        with pytest.raises((TypeError, ValueError), match=rf"actions of opponents\['maker'\]\[{place}\].*{message}"):
            step(envs)
        assert all(torch.equal(before[name], now) for name, now in envs.state_dict().items())
        envs.set_opponents({"maker": [TIGHT] * len(given)})
        step(envs)


def test_what_a_policy_raises_says_whose_it_is():
    def broken(observation):
        raise KeyError("mine")

    envs = make(opponents={"trader": [[chasing], [broken]]})
    envs.reset(seed=1)
    with pytest.raises(KeyError) as caught:
        step(envs)
    assert caught.value.__notes__ == ["raised by the policy given as opponents['trader'][1][0]"]
    assert torch.is_grad_enabled()


def test_compiled_programs_refuse_opponents():
    envs = make(engine="cpu", opponents={"maker": [TIGHT]})
    envs.reset(seed=1)
    with pytest.raises(Exception, match="no opponents in a compiled program, got .* or opponents"):
        torch.compile(lambda action: envs.step(action)[1], backend="eager", fullgraph=True)(torch.zeros(MARKETS, 4))


def test_the_tasks_of_all_slots():
    limited = MarketMakingTask(inventory_limit=12, max_qty=2)
    config = limited.market_config(ks.MarketConfig.preset("trading"))
    many = with_all_roles(limited, config)
    assert (many.max_target, many.block_qty, many.forced_qty, many.max_qty) == (12, 12, 2, 2)
    task = ExecutionTask(reward="risk_averse", block_qty=70)
    many = with_all_roles(task, task.market_config(ks.MarketConfig.preset("trading")))
    assert (many.execution_reward, many.block_qty, many.inventory_limit) == ("risk_averse", 70, None)


# On a GPU -------------------------------------------------------------------------------------------------------------


class Net(torch.nn.Module):
    """A module whose sums do not depend on how rows are batched."""

    def __init__(self, size):
        super().__init__()
        self.weights = torch.nn.Parameter(torch.linspace(-1, 1, 36 * size).view(size, 36))

    def forward(self, observation):
        return (observation[:, None, :36] * self.weights).sum(-1).sin()


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["SAME_STEP", "NEXT_STEP"])
@pytest.mark.parametrize("num_envs", [1, 5, 3000])
def test_a_captured_step_plays_on(mode, num_envs):
    """Draws and modules too: replays go on over the ends of episodes as steps do."""
    given = {"maker": [Net(4).cuda(), TIGHT, Net(4).cuda()], "trader": [chasing, Net(2).cuda()]}
    settings = {"engine": "cuda", "autoreset_mode": mode, "num_envs": num_envs, "stagger": True, "opponents": given}
    captured, eager = make(copy=False, account_info=True, **settings), make(account_info=True, **settings)
    captured.reset(seed=5)
    eager.reset(seed=5)
    actions = torch.zeros(num_envs, 4, device="cuda")
    eager.step(actions)
    graph, result = capture_step(captured, actions)
    for action in draw((num_envs, 4), 20):
        actions.copy_(torch.from_numpy(action))
        graph.replay()
        theirs = eager.step(actions)
        assert torch.equal(captured.opponent, eager.opponent)
        for one, two in zip(result[:4], theirs[:4], strict=True):
            assert torch.equal(one, two)
    captured.check_errors()
    assert num_envs < 3000 or len(captured.opponent[:, 0].unique()) == 3


@pytest.mark.gpu
def test_a_step_does_not_synchronise():
    envs = make(
        engine="cuda", num_envs=64, opponents={"maker": [Net(4).cuda(), TIGHT], "trader": [[chasing], [chasing]]}
    )
    envs.reset(seed=1)
    actions = torch.zeros(64, 4, device="cuda")
    envs.step(actions)
    assert_steps_wait_for_nothing(envs, actions)


@pytest.mark.gpu
def test_nan_on_a_gpu_raises_at_the_next_look_and_names_the_policy():
    def moody(observation):
        return torch.full((len(observation), 4), float("nan"), device=observation.device)

    envs = make(engine="cuda", opponents={"maker": [TIGHT, moody]})
    envs.reset(seed=2)
    envs.step(torch.ones(MARKETS, 4, device="cuda"))
    with pytest.raises(ks.MarketError, match=r"actions of opponents\['maker'\]\[1\]: .*got NaN"):
        envs.check_errors()
    envs.check_errors()


@pytest.mark.gpu
@pytest.mark.parametrize("mode", MODES)
def test_many_markets_have_the_cpus_bits(mode):
    settings = {"num_envs": 3000, "autoreset_mode": mode, "max_loss": 20.0, "stagger": True}
    one, two = (make(engine=engine, opponents=lists(), **settings) for engine in ("cuda", "cpu"))
    assert torch.equal(one.reset(seed=5)[0].cpu(), two.reset(seed=5)[0])
    for action in torch.from_numpy(draw((3000, 4), 12)):
        mine, theirs = step(one, action.cuda()), step(two, action)
        assert torch.equal(one.opponent.cpu(), two.opponent)
        for a, b in zip(mine[1:4], theirs[1:4], strict=True):
            assert torch.equal(a.cpu(), b)
