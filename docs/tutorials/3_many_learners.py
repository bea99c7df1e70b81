"""
Several learners in one market
==============================

Makers, a momentum and a noise learner share a market through PettingZoo's parallel API; each of them takes the
place of a built-in agent.
"""

# %%
# Every learner stays in its role, and so has a space of its own. ``state()`` is what all of them see together, for a
# centralised critic.

import matplotlib.pyplot as plt
import numpy as np

import kineticsim_env as ks

env = ks.parallel_env(learners={"maker": 2, "momentum": 1, "noise": 1}, horizon=300)
observations, infos = env.reset(seed=3)
for agent in env.agents:
    print(f"{agent:11s} acts in {env.action_space(agent).shape}, sees {observations[agent].shape}")
print("state:", env.state().shape)

# %%
# Here nobody learns yet: one maker quotes close to the mid, the other further off, the momentum learner follows the
# price with small orders, and the noise learner works off the quantity that it was given, a little at a time.
#
# A maker's action is (bid offset, ask offset, bid size, ask size), the others' (aggression, size), each from -1 to 1.

actions = {
    "maker_0": np.array([-0.6, -0.6, 0.0, 0.0], np.float32),  # 2 ticks from the mid, half size
    "maker_1": np.array([-0.1, -0.1, 1.0, 1.0], np.float32),  # 4 or 5 ticks from the mid, full size
    "momentum_0": np.array([0.1, -0.8], np.float32),
    "noise_0": np.array([0.1, -0.8], np.float32),
}
prices, inventories, wealth = [], [], []
while env.agents:
    decided = {agent: actions[agent] for agent in env.agents}
    observations, rewards, terminated, truncated, infos = env.step(decided)
    mid = float(env.simulator.mid2[0]) / 2
    prices.append(mid)
    inventories.append([info["inventory"] for info in infos.values()])
    wealth.append([info["cash"] + info["inventory"] * mid for info in infos.values()])
print({agent: infos[agent]["inventory"] for agent in env.possible_agents})

# %%
# The simulator behind the environment is open, live: slot k belongs to ``possible_agents[k]``.

figure, panels = plt.subplots(3, 1, figsize=(8, 6.4), sharex=True)
panels[0].plot(prices, color="#444444", lw=1)
panels[0].set(ylabel="mid price, ticks", title="One episode")
for place, agent in enumerate(env.possible_agents):
    panels[1].step(range(300), np.array(inventories)[:, place], where="post", lw=1.2, label=agent)
    panels[2].plot(np.array(wealth)[:, place], lw=1.2, label=agent)
panels[1].set(ylabel="inventory, units")
panels[2].set(ylabel="wealth at the mid, ticks", xlabel="decision")
panels[2].legend(ncols=4, loc="upper left")
low, high = panels[2].get_ylim()
panels[2].set_ylim(low, high + 0.25 * (high - low))
plt.show()

# %%
# What did the second maker cost the first? The same seed gives the same random draws to all others, with or without it,
# so the difference is its doing alone.

final = {}
for quotes_of_the_other in (1.0, -1.0):  # full size, or none
    env.reset(seed=3)
    actions["maker_1"] = np.array([-0.1, -0.1, quotes_of_the_other, quotes_of_the_other], np.float32)
    while env.agents:
        *_, infos = env.step({agent: actions[agent] for agent in env.agents})
    cash, inventory = infos["maker_0"]["cash"], infos["maker_0"]["inventory"]
    final[quotes_of_the_other] = cash + inventory * float(env.simulator.mid2[0]) / 2
print(f"maker_0's wealth: {final[1.0]:.0f}; without the other's quotes: {final[-1.0]:.0f}")
