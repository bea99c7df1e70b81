"""The tables of training on docs/performance.md and README.md, from invented rates of `training_rate.py`."""

import json
from pathlib import Path

from scripts.benchmarks import training_rate
from scripts.pages import performance
from scripts.pages import performance_training as pages

ROOT = Path(__file__).parent.parent
FORMER = [["before", "1 M", "2 M", "3 M"]]


def invented(rate=1e6, gpu="NVIDIA H200"):
    """Return a file of rates, each variant ten times as fast with the fused update."""
    found = {"machine": {"date": "2031-01-02T", "gpu": gpu, "driver": "D"}, "markets": "all alike"}
    for at, name in enumerate(training_rate.SHOWN):
        speed = rate * (1 + at / 100) * (1 if "torch.compile" in name else 10)
        parts = {"rollout": 1.5, "estimate": 0.25, "learn": 2.0, "update": 1e9 / speed}
        row = {"step_only": 2e9, "step_and_inference": 1e9, "training": speed, "ns_per_step": parts}
        found[name] = row | {"compile_and_capture_seconds": 4.0}
    return found


def test_the_default_market_comes_first_with_what_there_was_before_below_it():
    found = invented()
    text = pages.training(found, {}, FORMER)
    assert "2031-01-02; NVIDIA H200, driver D" in " ".join(text.split()) and "Over several GPUs" not in text
    assert text.index("| `news`, fused | 10.0 M | 10.1 M | 10.2 M |") < text.index("| `trading`, fused")
    assert "| `news`, `torch.compile` | 1.03 M | 1.04 M |  |" in text and "| `news`, times | 9.71 | 9.71 |  |" in text
    assert "| `news`, 4 passes, fused | 0.50 | 1.50 | 0.25 | 2.00 | 100.00 | 4.0 s |" in text
    assert text.endswith("| before | 1 M | 2 M | 3 M |")
    found["news, default, torch.compile"] = {"failed": "why"}
    assert "| `news`, `torch.compile` |  | 1.04 M |  |" in pages.training(found, {}, FORMER)


def test_files_of_earlier_versions_have_former_rows_alone():
    old = {"machine": "a GPU", "default": {"training": 71e6}, "fast": {"training": 119e6}}
    text = pages.training(old, {}, FORMER)
    assert text.startswith("Earlier versions") and pages.readme_rows(old, "news") == []


def test_several_gpus_stand_beside_one():
    one, two = (
        {"engine": 5e9 * n, **{name: {"training": 100e6 * n} for name in training_rate.SCALED}} for n in (1, 1.9)
    )
    scaling = {"machine": invented()["machine"], "scaling": {"1": one, "2": two}}
    text = pages.training(invented(), scaling, FORMER)
    assert (
        "| training steps/s, `news`, 4 passes | 100 M | 190 M | 1.90 |" in text
        and "| engine, orders/s | 5.00 G |" in text
    )
    scaling["scaling"]["2"] = {"failed": "why"}
    assert "Over several GPUs" not in pages.training(invented(), scaling, FORMER)


def test_the_readme_and_the_targets_have_the_same_rates(tmp_path):
    page, readme, log, trained = (tmp_path / name for name in ("page.md", "README.md", "log.md", "training.json"))
    for path, name in ((page, "docs/performance.md"), (readme, "README.md"), (log, "docs/performance_log.md")):
        path.write_text((ROOT / name).read_text())
    trained.write_text(json.dumps(invented(23e6, "NVIDIA H100 80GB HBM3")))
    words = ["--page", str(page), "--readme", str(readme), "--log", str(log), "--training", str(trained)]
    performance.main(words)
    named = "training steps/s, PPO with 4 passes over each rollout"
    assert readme.read_text().count(f"| {named} | 230 M (H100 80GB HBM3) |") == 1
    assert "| training steps/s, CleanRL's settings | 50 M | **242 M** |" in page.read_text()
