"""`EagerStep` plays the very tensor that an engine takes, and leaves everything else to a step with all checks."""

import warnings

import pytest
import torch

from kineticsim_env.engines.base import Engine
from kineticsim_env.envs.batch_results import host_copies
from kineticsim_env.envs.eager import EagerStep
from kineticsim_env.envs.vector import TradingVectorEnv
from kineticsim_env.runtime.layout import ladder_sizes

M = 5


class Willing(Engine):
    """An engine that notes the steps that it is asked for, and plays them all."""

    plays_at_once = True

    def __init__(self):
        super().__init__(torch.device("cpu"), {"M": M, "L": 8, "K": 1} | ladder_sizes(1), {})
        self.played = []

    def step_at_once(self, given):
        self.played.append(given)
        return True


def make(closed=False):
    engine = Willing()
    eager = EagerStep(engine, closed=closed)
    eager.expect((M, 4), torch.float32)
    return eager, engine


def test_the_tensor_that_is_expected_is_handed_on_as_it_is():
    eager, engine = make()
    actions = torch.zeros(M, 4)
    assert eager.step(actions) is True
    assert [given is actions for given in engine.played] == [True]


REFUSED = {
    "an array": lambda: torch.zeros(M, 4).numpy(),
    "another dtype": lambda: torch.zeros(M, 4, dtype=torch.float64),
    "another shape": lambda: torch.zeros(M, 3),
    "other strides": lambda: torch.zeros(4, M).T,
    "a gradient": lambda: torch.zeros(M, 4, requires_grad=True),
    "a subclass": lambda: torch.nn.Parameter(torch.zeros(M, 4), requires_grad=False),
    "a negative view": lambda: torch._neg_view(torch.zeros(M, 4)),
    "another device": lambda: torch.zeros(M, 4, device="meta"),
    "nothing": lambda: None,
}


@pytest.mark.parametrize("case", REFUSED)
def test_anything_else_is_left_to_the_step_with_all_checks(case):
    eager, engine = make()
    assert not eager.step(REFUSED[case]())
    assert engine.played == []


def test_a_nested_tensor_is_left_to_the_step_with_all_checks():
    eager, engine = make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nested tensors are a prototype
        given = torch.nested.nested_tensor([torch.zeros(4)] * M)
    assert not eager.step(given)
    assert engine.played == []


def test_one_that_is_closed_plays_nothing():
    eager, engine = make(closed=True)
    assert not eager.step(torch.zeros(M, 4))
    assert engine.played == []
    envs = TradingVectorEnv(M, engine="numpy", warmup=1, bank_size=2)
    validated = TradingVectorEnv(M, engine="numpy", warmup=1, bank_size=2, validate=True)
    assert not envs.core.eager.closed and validated.core.eager.closed
    envs.close()
    assert envs.core.eager.closed


def test_copies_are_those_of_the_outputs_that_were_asked_for():
    eager, _ = make()
    rewards, flags = torch.arange(M), torch.ones(M, dtype=torch.bool)
    eager.expect((M,), torch.int64, [rewards, flags])
    copies = eager.copies()
    rewards += 1
    assert [tensor.tolist() for tensor in copies] == [[0, 1, 2, 3, 4], [True] * M]
    assert eager.outputs[0] is rewards and eager.outputs[1] is flags


@pytest.mark.parametrize("markets", [1, 3, 8, 31])
def test_arrays_that_come_from_a_gpu_in_one_copy_are_those_tensors(markets):
    """Whatever is beside each other: numbers of 8 bytes begin behind flags, and rows have strides."""
    wide = torch.arange(markets * 39, dtype=torch.float32).view(markets, 39)
    flags = torch.arange(markets) % 3 == 0
    tensors = [
        wide[:, :37],
        flags,
        torch.arange(markets) / 7,
        flags.clone(),
        torch.arange(15.0 * markets, dtype=torch.float64),
    ]
    arrays = host_copies(tensors)
    for array, tensor in zip(arrays, tensors, strict=True):
        assert array.dtype == tensor.numpy().dtype and array.shape == tuple(tensor.shape)
        assert (array == tensor.numpy()).all()
