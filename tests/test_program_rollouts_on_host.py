"""The kernel of rollouts with programs in all slots, or in those beside a network's, with a fiber per lane on a CPU."""

import pytest
import torch
from build_helpers import PROGRAM_KERNELS, needs_compiler
from env_helpers import assert_same
from slot_programs import fixed, looks_at_all, patient, plain_maker
from test_rollouts import make, network_for, taken
from test_rollouts_on_host import launched_by, roll_out
from thorough import covering

from kineticsim_env.envs import rollouts
from kineticsim_env.policies.rollouts import ProgramShape

pytestmark = needs_compiler
FIELDS = ("rows", "action", "reward", "terminated", "truncated", "played", "last_rows")


def roll_out_program(library, core, program, steps, kind):
    """Do what a rollout of a program does, but for the launch, which is the library's."""
    if core.learner_program is not program:
        core.set_slot_policies(core.programs | {0: program})
    shape = ProgramShape(core.observation_size(core.roles[0]), tuple(core.played.quotes.shape[2:]))
    part = rollouts._empty(core, shape, steps, kind)
    launched_by(library, core)
    rollouts._play_inside(core, [], part, torch.tensor([0]), noise=True)
    return part


@covering
@pytest.mark.parametrize("kernel", PROGRAM_KERNELS)
@pytest.mark.parametrize("program", [patient, looks_at_all], ids=repr)
@pytest.mark.parametrize("markets", [3, 32, 37])
@pytest.mark.parametrize("mode", ["SAME_STEP", "NEXT_STEP", "DISABLED"])
def test_markets_are_those_of_the_engine(kernels, kernel, program, markets, mode):
    several = "-DKS_SLOTS=2" in PROGRAM_KERNELS[kernel]
    others = {"opponents": {"maker": [fixed], "trader": [plain_maker]}, "max_loss": 30.0} if several else {}
    how = {"markets": markets, "preset": "news", "autoreset_mode": mode, "stagger": True, **others}
    inside, played = (make(**how).unwrapped for _ in range(2))
    kind = torch.bfloat16 if "-DKS_POLICY_ROWS16=1" in PROGRAM_KERNELS[kernel] else torch.float32
    network = network_for(inside) if "network" in kernel else None
    for steps in (8, 3):
        if network is None:
            part = roll_out_program(kernels[kernel], inside.core, program, steps, kind)
            wanted = played.rollout(program, steps, observations=kind)
            for name in FIELDS:
                assert torch.equal(getattr(part, name), getattr(wanted, name)), name
        else:
            part = roll_out(kernels[kernel], inside.core, network, steps, kind)
            played.core.lets_stand = True
            for t in range(steps):
                assert torch.equal(played.step(taken(part, t))[1], part.reward[t])
        assert_same([inside.core, played.core], f"after {steps} decisions")
