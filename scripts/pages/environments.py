"""`python -m scripts.pages.environments` writes the environments' pages of docs/ from the docstrings of their tasks.

A task's page is stated once, in the source: `help()` shows it, and so does a code host, where the written page is.
`tests/test_pages.py` says when one is not current.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import gymnasium

from kineticsim_env.envs import parallel
from kineticsim_env.tasks import ExecutionTask, ManyLearnersTask, MarketMakingTask, TradingTask

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "environments"
WRITTEN = "<!-- Written by `python -m scripts.pages.environments` from {source}; edit that instead. -->"
TASKS = {  # page: title, task, id, the example that trains it
    "market_making": ("Market making", MarketMakingTask, "KineticSim/MarketMaking-v0", "ppo_fast.py"),
    "execution": ("Execution", ExecutionTask, "KineticSim/Execution-v0", "ppo_executor.py"),
    "trading": ("Trading", TradingTask, "KineticSim/Trading-v0", "ppo_trader.py"),
}
_SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields):$")


def head(documented: Any) -> list[str]:
    """Return the lines of a docstring, which are Markdown, before its first Google section."""
    lines = inspect.cleandoc(documented.__doc__).splitlines()
    end = next((index for index, line in enumerate(lines) if _SECTION.match(line)), len(lines))
    return lines[:end]


def linked(lines: list[str], own: str = "") -> list[str]:
    """Return the lines with the names of other pages' tasks as links."""
    pages = {task.__name__: name for name, (_, task, *_) in TASKS.items() if name != own}
    names = re.compile(f"`({'|'.join(pages)})`")
    return [names.sub(lambda match: f"[{match[0]}]({pages[match[1]]}.md)", line) for line in lines]


def spaces_table(name: str) -> list[str]:
    """Return a table of what an environment's id makes, asked of the environment itself."""
    spaces = []
    for action_type in ("continuous", "discrete"):
        with gymnasium.make(name, action_type=action_type, engine="numpy", bank_size=0) as env:
            spaces.append((env.action_space, env.observation_space))
    (continuous, observation), (discrete, _) = spaces
    return [
        "| | |",
        "|---|---|",
        f'| one market | `gymnasium.make("{name}")` |',
        f'| many | `gymnasium.make_vec("{name}", num_envs=...)` |',
        f"| action space | `{continuous}`, or `{discrete}` |",
        f"| observation space | `Box(-1, 1, {observation.shape}, {observation.dtype})` |",
    ]


def task_page(name: str) -> str:
    """Return the page of a task with one learner per market."""
    title, task, identity, example = TASKS[name]
    source = f"the docstring of `{task.__name__}`"
    default = "../../examples/studies/presets/README.md#news"
    market = f"What the default market pays, and to whom: [the default market]({default})."
    example = f"[`examples/{example}`](../../examples/{example})"
    learned = f"[What is learned](../../examples/studies/baselines/README.md) by {example}, beside scripted policies."
    results = ["## Results", "", market, learned]
    body = ["", *spaces_table(identity), "", *linked(head(task), name), "", *results]
    return "\n".join([f"# {title}", "", WRITTEN.format(source=source), *body]).rstrip() + "\n"


def many_learners_page() -> str:
    """Return the page of the environments with several learners per market."""
    text = head(parallel)
    body = linked(text[text.index("") + 1 :])  # without the line that names the module
    source = "the docstrings of `kineticsim_env.envs.parallel` and `ManyLearnersTask`"
    arguments = ["", "## Arguments", "", *linked(head(ManyLearnersTask)), ""]
    more = "Further arguments: those of [`MarketParallelEnv` and `BatchedParallelEnv`](../api/environments.rst)."
    guide = "How to work with it: [several learners](../multi_agent.md)."
    return "\n".join(["# Many learners", "", WRITTEN.format(source=source), "", guide, "", *body, *arguments, more, ""])


def pages() -> dict[str, str]:
    """Return the text of every page by its name."""
    return {name: task_page(name) for name in TASKS} | {"many_learners": many_learners_page()}


def main() -> None:
    """Write them all."""
    for name, text in pages().items():
        (FOLDER / f"{name}.md").write_text(text)


if __name__ == "__main__":
    main()
