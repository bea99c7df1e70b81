"""
Market makers without training
==============================

Before a learner is trained it is good to know what it has to beat. This tutorial steps the environment, then compares
scripted makers in the same markets, with confidence intervals.
"""

# %%
# ``make_vec`` opens many markets with one maker each. An action is four numbers from -1 to 1: how far from the mid to
# bid and to offer, and how much. With ``output="torch"`` they go in and come out as tensors.

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np
import torch

import kineticsim_env  # registers the environments
from kineticsim_env import evaluation, policies

name = "KineticSim/MarketMaking-v0"
envs = gym.make_vec(name, num_envs=512, output="torch", reward="pnl", reward_scale=1.0)
observation, _ = envs.reset(seed=0)
total = torch.zeros(512, device=observation.device)
generator = torch.Generator().manual_seed(0)
for _ in range(200):
    action = torch.rand((512, 4), generator=generator).to(observation.device) * 2 - 1
    observation, reward, terminated, truncated, _ = envs.step(action)
    total += reward
print(f"a maker that quotes at random: {total.mean():.0f} ticks in 200 decisions")

# %%
# ``evaluate`` plays one whole episode in every market. What it counts is *liquidated* profit: the cash that is left
# after the maker's inventory was unwound through the market, so that nothing is earned on paper. A policy is any
# function of observations; these are scripted, see :mod:`kineticsim_env.policies`.

markets = evaluation.evaluation_env(512, horizon=300)
task = markets.core.task
makers = {
    "no trade": policies.NoTrade(task),
    "random quotes": policies.RandomQuotes(task),
    "1 tick from the mid": policies.FixedSpread(task, half_spread=1),
    "2 ticks from the mid": policies.FixedSpread(task, half_spread=2),
    "8 ticks from the mid": policies.FixedSpread(task, half_spread=8),
    "Avellaneda-Stoikov": policies.AvellanedaStoikov(task, risk=0.02, kappa=0.5),
}
results = {name: evaluation.evaluate(policy, markets) for name, policy in makers.items()}
for name, result in results.items():
    mean, half_width = result.pnl_interval()
    print(f"{name:30s} {mean:6.0f} ± {half_width:3.0f} ticks, deviation {result.pnl.std():4.0f}")

# %%
# Near the mid a maker earns the spread while nothing happens, and pays for it when there is news: informed agents hit
# stale quotes. Far from the mid there is little but news. Moving the quotes against the inventory, as the last one
# does, takes risk out: compare the deviations. They are several times the means, so that it takes many markets to tell
# makers apart; :func:`~kineticsim_env.evaluation.grid_search` finds better parameters.

colours = plt.get_cmap("tab10")
figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.6), width_ratios=(1, 1.15))
names = list(results)
for place, name in enumerate(names):
    mean, half_width = results[name].pnl_interval()
    left.errorbar(mean, place, xerr=half_width, fmt="o", capsize=3, color=colours(place))
left.axvline(0, color="#999999", lw=0.8)
left.set_yticks(range(len(names)), names)
left.set(xlabel="liquidated PnL, ticks", title="Mean, 95% interval")
left.invert_yaxis()
for place, name in enumerate(names[2:], start=2):
    bins = np.arange(-8000, 8001, 500)
    right.hist(results[name].pnl, bins=bins, histtype="step", lw=1.6, color=colours(place))
right.set(xlabel="liquidated PnL, ticks", ylabel="episodes", title="The last four")
plt.show()

# %%
# All makers met the same markets: market m has the same random stream whoever trades in it. So they can be compared
# market by market, which takes out what the markets have in common.

difference = results["Avellaneda-Stoikov"].pnl - results["8 ticks from the mid"].pnl
mean, half_width = evaluation.confidence_interval(difference)
print(f"the last less 8 ticks: {mean:.0f} ± {half_width:.0f} ticks per episode")

# %%
# A learner is compared in the same way. ``examples/ppo_market_maker.py`` trains one by PPO, which takes seconds on a
# GPU and minutes on two cores: :doc:`/studies/baselines`.
