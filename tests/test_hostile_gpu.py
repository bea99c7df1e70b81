"""What a careless or hostile caller does on a GPU: odd memory, other devices, streams, threads and captured graphs.

`make sanitize` runs this file under compute-sanitizer's memcheck, too.
"""

import threading

import gymnasium as gym
import hostile_clock
import pytest
import torch

import kineticsim_env as ks
from scripts.fuzz import shapes

pytestmark = pytest.mark.gpu
SMALL = {"preset": "trading", "bank_size": 4, "warmup": 5, "horizon": 30}


def make(engine="cuda", num_envs=64, **changes):
    settings = {"engine": engine, "output": "torch", **SMALL, **changes}
    return gym.make_vec("KineticSim/MarketMaking-v0", num_envs=num_envs, **settings).unwrapped


def misaligned(tensor):
    """The same values four bytes further, as a slice of a flat buffer of parameters has them."""
    moved = shapes.TENSORS["misaligned tensor"](tensor.to("cuda"), None)
    assert moved.data_ptr() % 16 and moved.is_contiguous()
    return moved


def same_state(one, two):
    for name, tensor in two.items():
        assert torch.equal(one[name].cpu(), tensor.cpu()), name


@pytest.mark.parametrize("num_envs", [3, 64, 20000])
def test_misaligned_tensors(num_envs):
    envs, wanted = make(num_envs=num_envs), make("cpu", num_envs=num_envs)
    generator = torch.Generator().manual_seed(1)
    for env in (envs, wanted):
        env.reset(seed=2)
    for _ in range(4):
        action = torch.rand((num_envs, 4), generator=generator) * 2 - 1
        results = envs.step(misaligned(action)), wanted.step(action)
        for ours, theirs in zip(*(result[:4] for result in results), strict=True):
            assert torch.equal(ours.cpu(), theirs)
    mask = torch.rand(num_envs, generator=generator) < 0.5
    mask[0] = True
    for env in (envs, wanted):
        given = misaligned(mask.to(env.device)) if env is envs else mask
        env.reset(options={"reset_mask": given}, seed=torch.arange(num_envs, device=env.device) * 3)
    same_state(envs.state_dict(), wanted.state_dict())


def test_misaligned_quotes():
    sims = [ks.Simulator(num_markets=9, slots=3, engine=engine) for engine in ("cuda", "cpu")]
    quotes = torch.tensor([60, 3, 66, 3], dtype=torch.int32).expand(5, 9, 3, 4).contiguous()
    for sim in sims:
        place = misaligned if sim.device.type == "cuda" else (lambda tensor: tensor)
        fills = sim.step(place(quotes[0])), sim.rollout(place(quotes), 2).fills
        assert fills[1].any()
    same_state(*(sim.state_dict() for sim in sims))


def test_other_devices():
    envs = make(num_envs=4)
    envs.reset(seed=1)
    before = envs.state_dict()
    others = ["cpu"] + ["cuda:1"] * (torch.cuda.device_count() > 1)
    for device in others:
        with pytest.raises(ValueError, match=r"actions: expected .* on cuda:0.*got torch.float32 \[4, 4\] on "):
            envs.step(torch.zeros(4, 4, device=device))
        with pytest.raises(ValueError, match="actions: expected torch.float32.*got torch.float32 "):
            envs.core.step(actions=torch.zeros(4, 4, device=device))
    same_state(envs.state_dict(), before)
    mask = torch.tensor([True, False, True, False])
    for device in others:  # masks, seeds and states may be anywhere
        envs.reset(seed=torch.tensor([5, 6, 7, 8], device=device), options={"reset_mask": mask.to(device)})
        assert envs.simulator.tensors["seed"].tolist() == [5, 2, 7, 4]
        envs.load_state_dict({name: tensor.to(device) for name, tensor in before.items()})
    same_state(envs.state_dict(), before)


def test_a_call_on_another_stream_comes_behind_the_last():
    """A long run on one stream, and at once a short call on another: they wrote to the same markets."""
    sim, wanted = (ks.Simulator(num_markets=4096, slots=1, engine="cuda") for _ in range(2))
    sim.run(1)  # compiled
    wanted.run(1)
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    quotes = torch.tensor([60, 3, 66, 3], dtype=torch.int32, device="cuda").expand(4096, 1, 4)
    for number in range(12):
        with torch.cuda.stream(streams[number % 3]):
            sim.run(200)
            if number % 2:
                sim.step(quotes)
            if number % 5 == 4:
                sim.reset()
        wanted.run(200)
        if number % 2:
            wanted.step(quotes)
        if number % 5 == 4:
            wanted.reset()
    torch.cuda.synchronize()
    same_state(sim.state_dict(), wanted.state_dict())


def test_threads_with_streams_of_their_own():
    sim, wanted = (ks.Simulator(num_markets=512, slots=1, engine="cuda") for _ in range(2))
    errors = []

    def work():
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(50):
                    sim.run(3, record=("mid2",))
        except Exception as error:  # noqa: BLE001, looked at below
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    torch.cuda.synchronize()
    wanted.run(600)
    same_state(sim.state_dict(), wanted.state_dict())


def test_a_graph_captured_by_one_thread_and_replayed_by_another():
    envs, wanted = make(num_envs=1024, copy=False), make(num_envs=1024, copy=False)
    for env in (envs, wanted):
        env.reset(seed=4)
    wide = torch.rand((1024, 8), device="cuda") * 2 - 1
    action = wide[:, ::2]  # a view: the copy that the engine makes is part of the graph
    graph, shown, stream = torch.cuda.CUDAGraph(), [], torch.cuda.Stream()

    def capture():
        with torch.cuda.stream(stream):
            envs.step(action)  # warm
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            shown.extend(envs.step(action)[:4])

    def replay():
        torch.cuda.set_device(0)
        for _ in range(20):
            graph.replay()
        torch.cuda.synchronize()

    for work in (capture, replay):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    for _ in range(21):
        results = wanted.step(action.contiguous())
    for ours, theirs in zip(shown, results[:4], strict=True):
        assert torch.equal(ours, theirs)
    same_state(envs.state_dict(), wanted.state_dict())
    wide.uniform_(-1, 1)  # the graph reads what the view shows now
    graph.replay()
    wanted.step(action.contiguous())
    same_state(envs.state_dict(), wanted.state_dict())


def test_an_action_that_is_the_live_observation_in_a_graph():
    envs, wanted = make(num_envs=1, copy=False), make(num_envs=1)
    live, _ = envs.reset(seed=4)
    observation, _ = wanted.reset(seed=4)
    action = live[:, 30:34]
    assert action.is_contiguous()
    envs.step(action)
    observation = wanted.step(observation[:, 30:34])[0]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        envs.step(action)
    for _ in range(15):
        graph.replay()
        observation = wanted.step(observation[:, 30:34])[0]
    assert torch.equal(live, observation)


@pytest.mark.parametrize("preset", ["paper", "trading"])
@pytest.mark.parametrize("num_envs", [5, 300])
def test_any_number_in_live_tensors_is_safe(preset, num_envs):
    """Results mean nothing then, but no memory is touched that is not the market's; a reset makes all well again."""
    envs, generator = make(num_envs=num_envs, preset=preset), torch.Generator().manual_seed(3)
    for name, tensor in {**envs.simulator.tensors, **envs.core.tensors}.items():
        if name in ("seed", "scenario", "reward", "observation", "final_observation"):
            continue  # what a reset leaves alone, or a launch only writes
        envs.reset(seed=1)
        hostile_clock.scribble(tensor, generator)
        for _ in range(2):
            envs.core._engine.launch(0, auctions=2)
            envs.step(torch.rand((num_envs, 4), generator=generator).cuda() * 2 - 1)
        torch.cuda.synchronize()
        envs.simulator.tensors["error"].zero_()
        envs.reset(seed=1)
        fresh = make(num_envs=num_envs, preset=preset)
        fresh.reset(seed=1)
        envs.core.tensors["final_observation"].zero_()
        same_state({**envs.simulator.tensors, **envs.core.tensors}, {**fresh.simulator.tensors, **fresh.core.tensors})


@pytest.mark.parametrize("levers", [False, True])
@pytest.mark.parametrize("mechanism", hostile_clock.MECHANISMS)
@pytest.mark.parametrize("slots", hostile_clock.SLOTS)
def test_any_number_in_live_tensors_on_the_clock_is_safe(slots, mechanism, levers):
    hostile_clock.attack_simulator("cuda", mechanism, slots, levers)
    torch.cuda.synchronize()


@pytest.mark.parametrize("levers", [False, True])
@pytest.mark.parametrize("mechanism", hostile_clock.MECHANISMS)
def test_any_number_in_environments_on_the_clock_is_safe(mechanism, levers):
    hostile_clock.attack_environment("cuda", mechanism, levers)
    torch.cuda.synchronize()
