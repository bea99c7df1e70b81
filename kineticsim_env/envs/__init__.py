"""The environments: Gymnasium's and PettingZoo's interfaces over one core, which steps thousands of markets at once.

settings.py          what every environment is made with
scenarios.py         domain randomisation -> a table of scenarios; scenario_weights.py: which of them an episode has
task_values.py       settings of the task that differ -> rows of numbers
warm_starts.py       markets that ran for a while -> where episodes begin
live_task.py         all of these as the engine has them, and as they change
core.py              `EnvCore`: tensors, resets and steps; eager.py: a step with the fewest checks
own_functions.py     rewards, features, ends of episodes that users write; custom_tasks.py: tasks with memory, actions;
                     moments.py: what these are given; own_groups.py: the calls; own_step.py: a step with them;
                     own_state.py: what they should not keep
opponents.py         policies in other slots
state_dict.py        saved states; saved_states.py: the ranges of their numbers
copies.py            clones, and markets copied into others; forks.py: one market as rows; futures.py: with other words
base.py              what every environment offers beyond its library's interface
actions.py           checks of actions; action_masks.py: which are void; infos.py: what is known after a decision
vector.py            many markets of one learner; batch_results.py: what their steps return
single.py            one market of one learner
parallel.py          one market of many learners; agent_results.py: their names, what they see and are told
batched.py           many markets of many learners
registered.py        what Gymnasium's registry makes again
counterfactual_episodes.py  an environment with and without its learner's actions
"""

from kineticsim_env.runtime.names import finder, modules_in

__getattr__ = finder(__name__, {}, modules_in(__name__, __path__))
