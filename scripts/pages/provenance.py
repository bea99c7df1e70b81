"""Which rules results were measured under: digests of what markets and environments do, and what a page says of them.

What measures calls `stamped`, which puts digests of `NEEDED` into the results; a page whose results have another digest
than this tree has the line of `notice` below its title. tests/test_provenance.py checks every file of results. A digest
is of behaviour: of short traces of the NumPy engine, which has the bits of all engines, and of what presets set.

    python -m scripts.pages.provenance             # renew the lines of all pages
    python scripts/pages/provenance.py --digests   # of the package on PYTHONPATH, an earlier commit's too
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import kineticsim_env as ks

ROOT = Path(__file__).resolve().parents[2]
STUDIES = ROOT / "examples" / "studies"
# These say what they are of in their own way, which tests and CI compare.
OWN_HASH = ("gpu_report", "instruction_counts", "mutants")
_LINE = "> Figures of `[^`]+` were measured under earlier rules .*\n"
MARKED = re.compile(rf"^{_LINE}(?:>\n{_LINE})*\n", re.MULTILINE)

PRESETS = ("paper", "trading", "continuous", "news", "realistic")
TASKS = ("MarketMaking", "Execution", "Trading")
CLOCK, WHATS = " on the clock", {"": "shown", " rewards": "paid"}
LEVERS: dict[str, Any] = {"tax": 1, "collar": 6, "tick_size": 2, "taker_offset": 2, "rounding": "coin", "fee": 250}
LEVERS |= {"reference": "fundamental"}
CONTINUOUS = {"arrivals": "clock", "mechanism": "continuous"}
SMALL: dict[str, Any] = {"num_agents": 20, "num_levels": 64, "init_price": 32}
EPISODES: dict[str, Any] = {"engine": "numpy", "horizon": 4, "bank_size": 2, "warmup": 8}


def _market(config: ks.MarketConfig) -> list[Any]:
    """Return what 16 markets end with; on the clock every interval has many events, so that fewer are enough."""
    simulator = ks.Simulator(config, 16, engine="numpy", seed=7)
    simulator.run(40 if getattr(config, "arrivals", "each") == "each" else 8)  # which an earlier config has not
    return [getattr(simulator, name) for name in ("bid", "ask", "last_price", "volume", "trades")]


def _preset(name: str) -> list[Any]:
    config = ks.MarketConfig.preset(name)
    plain = vars(ks.MarketConfig())
    set_ = {field: value for field, value in vars(config).items() if value != plain[field] and field != "agents"}
    return [json.dumps(set_, sort_keys=True, default=_listed), *_market(config)]


def _levers() -> list[Any]:
    forms = ({}, {"arrivals": "clock", "interval": 30}, CONTINUOUS | {"quote_latency": 3})
    return [part for form in forms for part in _market(ks.MarketConfig(**SMALL, **LEVERS, **form))]


def _added_agents() -> list[Any]:
    splitters = {"kineticsim_env.traders:order_splitter": 4}
    return [part for form in ({}, CONTINUOUS) for part in _market(ks.MarketConfig(**SMALL, agents=splitters, **form))]


def _steps(envs: Any, shapes: dict[str, tuple[int, ...]]) -> dict[str, list[Any]]:
    """Return what two short episodes of random actions show, and what they pay."""
    random, found = np.random.default_rng(5), {"shown": [envs.reset(seed=3)[0]], "paid": []}
    for _ in range(8):
        actions = {name: random.uniform(-1, 1, shape).astype(np.float32) for name, shape in shapes.items()}
        observed, reward, *ended = envs.step(actions.get("", actions))[:4]
        found["shown"] += [observed, *ended]
        found["paid"].append(reward)
        found = json.loads(json.dumps(found, default=_listed))  # what an environment lends is written over
    envs.close()
    return found


def _listed(value: Any) -> Any:
    return np.asarray(value).tolist()


@functools.cache
def _task(task: str, clock: bool) -> dict[str, list[Any]]:
    config = ks.MarketConfig(**SMALL, **(CONTINUOUS if clock else {}))
    envs = gym.make_vec(f"KineticSim/{task}-v0", num_envs=4, config=config, **EPISODES)
    return _steps(envs, {"": envs.action_space.shape or ()})


def _learners() -> dict[str, list[Any]]:
    roles = {"executor": 1, "maker": 2, "momentum": 1, "noise": 1}
    envs: Any = ks.BatchedParallelEnv(4, roles, config=ks.MarketConfig(**SMALL), **EPISODES)
    return _steps(envs, {role: (4, count, *envs.single_action_spaces[role].shape) for role, count in roles.items()})


def _orders() -> list[dict[str, list[Any]]]:
    """Return what makers with ladders show and are paid who may keep quotes, whatever ends their decisions."""
    config, found = ks.MarketConfig(**SMALL, **CONTINUOUS, orders_per_side=2), []
    for decide in ("interval", "fill", "touch"):
        how: dict[str, Any] = {"config": config, "keep": True, "decide": decide, **EPISODES}
        envs = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=4, **how)
        found.append(_steps(envs, {"": envs.action_space.shape or ()}))
    return found


PARTS: dict[str, Callable[[], Any]] = {
    **{name: functools.partial(_preset, name) for name in PRESETS},
    "levers": _levers,
    "added agents": _added_agents,
    "learners": _learners,
    "kept quotes, ladders and decisions at events": _orders,
    **{
        f"{task}{what}{CLOCK * clock}": lambda task=task, what=what, clock=clock: _task(task, clock)[WHATS[what]]
        for task in TASKS
        for what in WHATS
        for clock in (False, True)
    },
}


def _of_tasks(*tasks: str, rewards: bool = True) -> tuple[str, ...]:
    whats = list(WHATS) if rewards else [""]
    return tuple(f"{task}{what}{clock}" for task in tasks for what in whats for clock in ("", CLOCK))


NEEDED: dict[str, tuple[str, ...]] = {  # by the name of what measures, as `page_parser` has it for studies
    "adverse_selection": ("continuous", "added agents"),
    "attacks": ("trading", "continuous", *_of_tasks("MarketMaking", rewards=False)),
    "auction_parts": ("paper", "trading"),
    "baselines": ("trading", "news", *_of_tasks(*TASKS)),
    "benchmarks": ("paper", "trading", "MarketMaking", "MarketMaking rewards"),
    "calibration": ("trading",),
    "clearing": ("news", "continuous", "levers", "learners"),
    "continuous_learning": ("continuous", *(part for part in _of_tasks("MarketMaking", "Execution") if CLOCK in part)),
    "custom_steps": ("news", *_of_tasks("MarketMaking", rewards=False)),
    "event_calibration": ("continuous",),
    "execution": ("news", *_of_tasks("Execution", rewards=False)),
    "flow_rates": ("news",),
    "jax_rates": ("news", *_of_tasks("MarketMaking", rewards=False)),
    "leaderboard": ("news", *_of_tasks(*TASKS, rewards=False)),
    "mechanisms": ("continuous", "levers"),
    "nearest_agents": ("realistic",),
    "order_flow": ("continuous", "news", "realistic"),
    "orders": (
        *("continuous", "news", "kept quotes, ladders and decisions at events"),
        *(part for part in _of_tasks("MarketMaking") if CLOCK in part),
    ),
    "own_tasks": ("news", "Trading on the clock", "Trading rewards on the clock"),
    "performance": ("paper", "trading", "continuous", "news", "learners", *_of_tasks(*TASKS)),
    "planning": ("news", *_of_tasks("Trading")),
    "policy_change": (*PRESETS, "levers"),
    "prediction": ("news", "MarketMaking on the clock"),
    "presets.continuous": ("trading", "continuous", "levers"),
    "presets.news": ("trading", "continuous", "news", *_of_tasks("MarketMaking", rewards=False)),
    "presets.news_search": ("continuous", "news"),
    "presets.trading": ("paper", "trading"),
    "price_impact": PRESETS,
    "realistic": PRESETS,
    "realistic.search": ("realistic",),
    "rewards": ("trading", "continuous", "news", *_of_tasks(*TASKS)),
    "rewards.learning": ("trading", "continuous", "news", *_of_tasks(*TASKS)),
    "scorecard": PRESETS,
    "self_play": ("trading", "learners"),
    "stylised_facts": ("paper", "levers"),
    "traders": ("trading", "added agents"),
    "training": ("paper", "trading", "news", *_of_tasks("MarketMaking")),
    "trainings": ("news", *_of_tasks("MarketMaking", "Trading")),
}


@functools.cache
def digest(part: str) -> str:
    """Return the digest of a part of the rules, of this package."""
    return hashlib.sha256(json.dumps(PARTS[part](), sort_keys=True, default=_listed).encode()).hexdigest()[:12]


def stamp(name: str) -> dict[str, Any]:
    """Return what results say that are measured now."""
    today, commit = datetime.date.today().isoformat(), _git("rev-parse", "--short", "HEAD").strip()
    return {"date": today, "commit": commit, "parts": {part: digest(part) for part in NEEDED[name]}}


def stamped(name: str, found: dict[str, Any]) -> dict[str, Any]:
    """Return results that were measured now, with the rules that they depend on."""
    return found | {"rules": stamp(name)}


def without(found: Any) -> Any:
    """Return results as they were measured, without the rules that they depend on."""
    return {name: part for name, part in found.items() if name != "rules"} if isinstance(found, dict) else found


def stamps(value: Any) -> Iterator[dict[str, Any]]:
    """Yield what results say of their rules: once, or for each record or run that they are of."""
    rules = value.get("rules") if isinstance(value, dict) else None
    if isinstance(rules, dict) and set(rules) == {"date", "commit", "parts"}:
        yield rules
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from stamps(one)


def results() -> list[Path]:
    """Return the committed files of results."""
    listed = _git("ls-files", "docs/*.json", "examples/studies/*.json").split()
    return [ROOT / name for name in listed if Path(name).stem not in OWN_HASH]


def notices(path: Path) -> set[str]:
    """Return the lines that pages of these results have: one for each measurement under other rules."""
    lines = set()
    for rules in stamps(json.loads(path.read_text())):
        if others := [part for part, then in rules["parts"].items() if part not in PARTS or then != digest(part)]:
            said = f"({rules['date']}, commit {rules['commit']}) of {', '.join(others)}; they may differ."
            lines.add(f"> Figures of `{path.name}` were measured under earlier rules {said}")
    return lines


def pages(path: Path) -> list[Path]:
    """Return the pages that show these results: a study's own, those beside them that name them, those with a path."""
    study = STUDIES in path.parents
    named = rf'results\("{path.stem}", "{path.parent.name}"\)|\b{path.parent.name}/{re.escape(path.name)}\b'

    def shows(page: Path, text: str) -> bool:
        beside = page.parent == path.parent
        own = study or f"{path.stem}_".startswith(f"{page.stem}_") or path.name in text
        return beside and own or bool(re.search(named, text))

    tracked = [ROOT / page for page in _git("ls-files", "docs/*.md", "examples/studies/*.md").split()]
    return [page for page in tracked if shows(page, page.read_text())]


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout


def renewed(text: str, lines: Iterable[str]) -> str:
    """Return a page with these lines below its title, and no others of their kind."""
    text, said = MARKED.sub("", text), "\n>\n".join(sorted(lines))
    title, _, rest = text.partition("\n\n")
    return "\n\n".join([title, said, rest]) if said else text


def renewals() -> dict[Path, str]:
    """Return the pages that lack a line, or have one without cause, as they should be."""
    expected: dict[Path, set[str]] = {}
    for path in results():
        for page in pages(path):
            expected.setdefault(page, set()).update(notices(path))
    texts = {page: renewed(page.read_text(), lines) for page, lines in expected.items()}
    return {page: text for page, text in texts.items() if text != page.read_text()}


def _digest_if_there(part: str) -> str | None:
    try:
        return digest(part)
    except Exception:  # a part that an earlier package does not have
        return None


if __name__ == "__main__":
    if "--digests" in sys.argv:
        print(json.dumps({part: _digest_if_there(part) for part in PARTS}))
    else:
        for page, text in renewals().items():
            page.write_text(text)
            print(f"renewed {page}")
