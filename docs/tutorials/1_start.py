"""
Start
=====

From the first market to a market maker that has learned: step markets, watch one, play a scripted maker, train one by
PPO, and compare them on episodes that neither has seen.
"""

# %%
# Many markets
# ------------
#
# ``make_vec`` opens many markets with one market maker in each. An action is four numbers from -1 to 1: how far from
# the mid to bid and to offer, and how much. With ``output="torch"`` tensors go in and come out, and on a GPU nothing
# leaves it. Here the makers quote at random.

import sys
import tempfile
from pathlib import Path

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np
import torch

import kineticsim_env as ks
from kineticsim_env import evaluation, policies, zoo

name = "KineticSim/MarketMaking-v0"
envs = gym.make_vec(name, num_envs=256, output="torch", reward="pnl", reward_scale=1.0)
observation, info = envs.reset(seed=0)
print("observation:", list(observation.shape), observation.dtype)

generator = torch.Generator().manual_seed(0)
total = torch.zeros(256, device=observation.device)
for _ in range(200):
    action = (torch.rand((256, 4), generator=generator) * 2 - 1).to(observation.device)
    observation, reward, terminated, truncated, info = envs.step(action)  # finished episodes start anew
    total += reward
print(f"quotes at random make {total.mean():.0f} ticks in 200 decisions, in the mean")

# %%
# Watch one
# ---------
#
# One market, with a scripted maker that quotes two ticks from the mid. On the left of the picture is the book around
# the mid, with the maker's own quotes on the outer sides; on the right prices, its trades, inventory and PnL.

env = gym.make(name, render_mode="rgb_array")
maker = policies.FixedSpread(env.get_wrapper_attr("core").task, half_spread=2)
observation, info = env.reset(seed=3)
for _ in range(120):
    action = maker(torch.from_numpy(observation)[None])[0].numpy()
    observation, reward, terminated, truncated, info = env.step(action)
print({key: info[key] for key in ("inventory", "cash", "bought", "sold")})

plt.figure(figsize=(8, 5))
plt.imshow(env.render())
plt.axis("off")
plt.show()

# %%
# Scripted makers
# ---------------
#
# ``evaluate`` plays one whole episode in every market, on seeds that no training run comes to. What it counts is
# *liquidated* profit: the cash that is left when the inventory has been unwound through the market, so that nothing is
# earned on paper. These makers have the parameters that were best in this market.

markets = evaluation.evaluation_env(512)
task = markets.core.task
results = {
    label: evaluation.evaluate(zoo.make_scripted(entry, task), markets)
    for label, entry in zoo.scripted("MarketMaking", "news").items()
}
for label, result in results.items():
    mean, half_width = result.pnl_interval()
    print(f"{label:31s} {mean:6.0f} ± {half_width:3.0f} ticks per episode, deviation {result.pnl.std():5.0f}")

# %%
# Near the mid a maker earns the spread while nothing happens, and pays when there is news, as the informed hit quotes
# that have not moved yet. ``quiet quotes`` stays away for a while after large moves. Three of the others have ended up
# at the same quotes. Deviations are larger than most means: it takes many episodes to tell makers apart.
#
# Train one
# ---------
#
# ``examples/ppo_market_maker.py`` is PPO in one file. Its parts are used here as they are, for 100 updates of 16,384
# decisions, which take half a minute on two cores. What is learned differs a little from machine to machine, as sums of
# floating-point numbers do; what markets do is the same to the bit.

sys.path += [str(folder / "examples") for folder in Path.cwd().parents]  # one of them is the checkout
import ppo_market_maker as ppo

settings, updates = ppo.Args(num_envs=256), 100
torch.manual_seed(settings.seed)
envs = gym.make_vec(name, num_envs=settings.num_envs, output="torch", reward_scale=settings.reward_scale)
sizes = envs.single_observation_space.shape[0], envs.single_action_space.shape[0]
networks = ppo.ActorCritic(*sizes, settings.hidden, settings.initial_std).to(envs.device)
optimizer = torch.optim.Adam(networks.parameters(), lr=settings.learning_rate, eps=1e-5)

observation, _ = envs.reset(seed=ks.run_seed(settings.seed))
curve = [evaluation.evaluate(networks.act, markets).pnl_interval()]
for update in range(updates):
    optimizer.param_groups[0]["lr"] = settings.learning_rate * (1 - 0.9 * update / updates)
    rollout, observation = ppo.play(settings, envs, networks, observation)
    with torch.no_grad():
        gain = ppo.advantages(rollout, networks.value(observation), settings.gamma, settings.gae_lambda)
    ppo.update(settings, networks, optimizer, rollout, gain)
    if update % 10 == 9:
        curve.append(evaluation.evaluate(networks.act, markets).pnl_interval())
print(f"{updates * gain.numel():,} decisions")

# %%
# The learning curve, beside the makers above. Nothing was chosen by these episodes, so they are held out still.

middle, half_widths = np.array(curve).T
steps = np.linspace(0, updates * gain.numel() / 1e6, len(curve))
figure, axes = plt.subplots(figsize=(8.4, 3.6))
axes.errorbar(steps, middle, yerr=half_widths, fmt="o-", ms=4, capsize=2, color="#1f6fb4", label="PPO")
for label, style in (("quiet quotes", "-"), ("fixed spread", "--"), ("no trade", ":")):
    axes.axhline(results[label].pnl.mean(), color="#555555", lw=1, ls=style, label=label)
axes.set(xlabel="decisions, millions", ylabel="liquidated PnL, ticks", title="Means of 512 episodes, 95% intervals")
axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
plt.show()

# %%
# Save it, load it, compare it
# ----------------------------
#
# A file of a trained policy is safetensors, so that nothing in it can run. ``ks.load_policy`` reads and checks one; it
# also takes the names of the policies that come with the package, such as one that had 600 million decisions. All
# makers met the same markets, so they are compared market by market, which takes out what the markets have in common.

network = ks.NetworkPolicy(networks.actor, networks.critic, log_std=networks.log_std)
with tempfile.TemporaryDirectory() as folder:
    network.save(f"{folder}/maker.safetensors", task="market_making", preset="news")
    learned = ks.load_policy(f"{folder}/maker.safetensors")
results["PPO"] = evaluation.evaluate(learned, markets)  # these figures differ from machine to machine
results["PPO of the zoo"] = evaluation.evaluate(ks.load_policy("news/market_making/ppo"), markets)
for label in ("PPO", "PPO of the zoo", "quiet quotes", "fixed spread"):
    found = results[label].figures()
    print(f"{label:14s} {found['mean'].mean:5.0f} ± {found['mean'].interval():3.0f} ticks per episode", end=", ")
    print(f"Sharpe ratio {found['sharpe_ratio'].mean:.2f}, mean of the worst 5% {found['cvar'].mean:6.0f}")
for label in ("quiet quotes", "fixed spread"):
    lead = evaluation.difference(results["PPO"], results[label])
    print(f"PPO less {label}: {lead.mean:.0f} ± {lead.interval():.0f} ticks")

# %%
# Where to go on
# --------------
#
# - The other tasks, execution and trading, and what the numbers of an observation are: :doc:`/environments/index`.
# - Longer training, on GPUs, and the other learners: :doc:`/training`. With a library: :doc:`/libraries`.
# - What learned policies reach, beside linear and scripted ones: :doc:`/studies/baselines`.
# - Markets without a learner, their statistics and what orders do to prices: the tutorial on market research.
