"""Scripted policies with the parameters that were best on training seeds of a market, by name.

The commands `evaluate` and examples/tune_scripted_policies.py call it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kineticsim_env import policies
from kineticsim_env.runtime.values import check_choice, show
from kineticsim_env.tasks import TASKS

SCRIPTED = Path(__file__).with_name("scripted_policies.json")


def scripted(task: str, preset: str) -> dict[str, dict[str, Any]]:
    """Return the scripted policies of a task in a preset by name: `"policy"`, its class, and its `"parameters"`.

    None where none were searched.

    Args:
        task: One of `kineticsim_env.tasks.TASKS`.
        preset: Of the market.
    """
    return _entry(task, preset).get("policies", {})


def informed(task: str, preset: str) -> dict[str, Any] | None:
    """Return, as `scripted` does, the one that is told the fundamental price, for environments that show it."""
    return _entry(task, preset).get("informed")


def _entry(task: str, preset: str) -> dict[str, Any]:
    check_choice("task", task, TASKS)
    return json.loads(SCRIPTED.read_text(encoding="utf-8")).get(f"{task}, {preset}", {})


def make_scripted(one: Mapping[str, Any], task: Any) -> policies.Policy:
    """Return the policy of an entry of `scripted`, of a task's settings."""
    kind = getattr(policies, one["policy"], None)
    if kind is None:
        raise ValueError(f"policy: expected a class of kineticsim_env.policies, got {show(one['policy'])}")
    return kind(task, **one["parameters"])
