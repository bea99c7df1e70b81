"""What `import kineticsim_env` loads, counted by modules, and the names that load when they are first used.

A fresh interpreter imports torch and Gymnasium once; each question is asked in a process forked from it.
"""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest
from thorough import slow

import kineticsim_env
from kineticsim_env.tasks import TASKS

ROOT = Path(__file__).parent.parent
MOST = 101  # modules beyond those of torch and Gymnasium; it was 214 when everything loaded at once
LATE = kineticsim_env._LATE
MODULES = kineticsim_env._LATE_MODULES
UNWANTED = (
    *"examples jax matplotlib numba pandas pettingzoo pyarrow pygame ray sbi scipy scripts tqdm triton".split(),
    "kineticsim_env.engines.numpy",
    "torch._dynamo",
    "torch.utils.cpp_extension",
    *(f"kineticsim_env.{name}" for name in (*MODULES, *"adapters cli commands evaluation play plots training".split())),
)
# Parts of modules that are written out after a plain import.
DEEP = "envs.parallel.parallel_env envs.single.TradingEnv envs.vector.TradingVectorEnv envs.core.EnvCore".split()
DEEP += "envs.counterfactual_episodes.env_counterfactual render.recorder.Moment statistics.arrays.returns".split()
DEEP += "statistics.facts calibration.targets counterfactuals.arms scorecards.Line sweeps.plans sweeps.store".split()
ASK = """
import json, os, sys, tempfile, traceback
import gymnasium, torch

def fork(work):
    process = os.fork()
    if not process:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)
    return os.waitpid(process, 0)[1]

def run(first, programs):
    os.dup2(out.fileno(), 1), os.dup2(out.fileno(), 2)
    exec(first, {})
    failed = [program for program in programs if fork(lambda: exec(program, {"__name__": "program"}))]
    assert not failed, failed

for line in sys.stdin:
    with tempfile.TemporaryFile("w+") as out:
        failed = fork(lambda: run(*json.loads(line)))
        out.seek(0)
        print(json.dumps((failed, out.read())), flush=True)
"""
# A module that asks for a late name while it loads could wait for another thread for ever: `once` refuses it.
ALONE = """
import importlib
import kineticsim_env as ks
from kineticsim_env.runtime import names

class Once:
    held = False
    def __enter__(self):
        assert not self.held, "asked for a late name while another loads"
        self.held = True
    def __exit__(self, *error):
        self.held = False

names._loading = Once()
name, place = {name!r}, {place!r}
assert name in dir(ks) and name not in vars(ks)
from kineticsim_env import {name} as imported
found = importlib.import_module(place)
assert imported is (found if found.__name__ == "kineticsim_env." + name else getattr(found, name))
assert vars(ks)[name] is imported is ks.{name}
"""
THREADS = """
import sys, threading, time
from gymnasium.envs.registration import load_env_creator
import kineticsim_env as ks

class Slow:  # every import waits for a moment, so that others come between
    @staticmethod
    def find_spec(name, path=None, target=None):
        time.sleep(0.002)

sys.meta_path.insert(0, Slow)
names = {names!r}
start, found = threading.Barrier(len(names)), []

def use(name):
    start.wait()
    found.append(load_env_creator(name) if ":" in name else getattr(ks, name))

threads = [threading.Thread(target=use, args=(name,)) for name in names]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(found) == len(names)
"""


@pytest.fixture(scope="module")
def ask():
    """A function that runs each program in a process that has imported torch and Gymnasium alone, and done `first`.

    It returns the lines that they print.
    """
    if not hasattr(os, "fork"):
        pytest.skip("this system has no fork")
    environment, pipe = {**os.environ, "PYTHONPATH": str(ROOT)}, subprocess.PIPE
    command = [sys.executable, "-c", ASK]

    def answer(*programs, first=""):
        process.stdin.write(json.dumps((first, programs)) + "\n")
        process.stdin.flush()
        failed, said = json.loads(process.stdout.readline())
        assert not failed, said
        return said.splitlines()

    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        yield answer


def test_an_import_loads_few_modules_and_none_that_are_used_later(ask):
    """It prints nothing, and leaves CUDA alone."""
    program = """
import json, sys
import torch
before = set(sys.modules)
import kineticsim_env
assert not torch.cuda.is_initialized()
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    (line,) = ask(program)
    new = json.loads(line)
    parents = {name: {".".join(name.split(".")[: n + 1]) for n in range(name.count(".") + 1)} for name in new}
    # The former names of modules are there, and load nothing.
    former = ("kineticsim_env.counterfactual", "kineticsim_env.scorecard", "kineticsim_env.envs.counterfactual")
    assert [name for name in new if parents[name] & set(UNWANTED) and not name.startswith(former)] == []
    assert len(new) <= MOST, f"{len(new)} modules, {MOST} at most: {' '.join(new)}"


def test_late_names_load_alone(ask):
    places = LATE | {name: f"kineticsim_env.{name}" for name in MODULES}
    programs = [ALONE.format(name=name, place=place) for name, place in places.items()]
    assert ask(*programs, first="import kineticsim_env") == []


def test_parts_of_late_modules_are_there_after_a_plain_import(ask):
    programs = [f"import kineticsim_env\nkineticsim_env.{part}" for part in DEEP]
    assert ask(*programs, first="import kineticsim_env") == []


def test_a_star_brings_every_public_name_and_loads_it(ask):
    program = """
before = {*globals(), "before"}
from kineticsim_env import *
print(*sorted({*globals()} - before))
"""
    (line,) = ask(program)
    assert line.split() == sorted(kineticsim_env.__all__)
    assert len(set(kineticsim_env.__all__)) == len(kineticsim_env.__all__)
    assert {*LATE, *MODULES, *kineticsim_env.__all__} <= set(dir(kineticsim_env))


@slow
def test_threads_may_use_late_names_first(ask):
    """All at once, and the environments of Gymnasium; without a lock some wait for each other, which Python refuses."""
    specs = [gymnasium.spec(f"KineticSim/{task}-v0") for task in TASKS]
    entries = [entry for spec in specs for entry in (spec.entry_point, spec.vector_entry_point)]
    assert ask(*[THREADS.format(names=[*LATE, *MODULES, *entries])] * 4) == []


def test_type_checkers_see_the_late_names_where_they_are():
    tree = ast.parse(Path(kineticsim_env.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    seen = {alias.asname: node.module for node in block.body for alias in node.names if alias.asname == alias.name}
    assert seen == LATE
