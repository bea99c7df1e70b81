"""`make counts` sees what grew, compares nothing that cannot be compared, and its record is of what it counts."""

import copy
import json
import re
import shutil

import pytest

from scripts.benchmarks import instruction_counts as counts

NOW = {"compiler": "cc 1", "counts": {"work": {"executed": 1000}, "market": {"registers": 80, "instructions": 100}}}


def changed(name, kind, count, compiler="cc 1"):
    now = copy.deepcopy(NOW)
    now["counts"][name][kind] = count
    return {**now, "compiler": compiler}


@pytest.mark.parametrize(
    ("now", "grown"),
    [
        (NOW, 0),
        (changed("work", "executed", 1030), 0),
        (changed("work", "executed", 1031), 1),
        (changed("work", "executed", 10), 0),
        (changed("market", "registers", 81), 1),
        (changed("market", "instructions", 104), 1),
        (changed("market", "registers", 81, compiler="cc 2"), 0),
        ("no nvcc is found", 0),
    ],
)
def test_only_growth_under_the_same_compiler_is_an_error(capsys, now, grown):
    lines = counts.compare("kernel", now, NOW)
    assert len(lines) == grown
    said = capsys.readouterr().out
    assert ("not compared" in said) == (isinstance(now, dict) and now["compiler"] == "cc 2")
    assert ("not counted, as no nvcc" in said) == isinstance(now, str)


def test_growth_is_an_exit_status_and_what_cannot_be_counted_stays_on_record(tmp_path, monkeypatch):
    file = tmp_path / "counts.json"
    file.write_text(json.dumps({"C++ engine": NOW, "kernel": NOW}))
    monkeypatch.setattr(counts, "cpu_counts", lambda: NOW)
    monkeypatch.setattr(counts, "kernel_counts", lambda: changed("market", "registers", 81))
    assert counts.main(["--file", str(file)]) == 1
    assert counts.main(["--file", str(file), "--write"]) == 0
    assert counts.main(["--file", str(file)]) == 0
    monkeypatch.setattr(counts, "kernel_counts", lambda: "no nvcc is found")
    assert counts.main(["--file", str(file), "--write"]) == 0
    assert json.loads(file.read_text())["kernel"]["counts"]["market"]["registers"] == 81


def test_the_record_has_every_variant_and_every_workload():
    record = json.loads(counts.RECORD.read_text())
    assert set(record["kernel"]["counts"]) == set(counts.VARIANTS)
    shown = "\n".join(record["C++ engine"]["counts"])
    for name in re.findall(r'counted\(f?"([^"{]*)', counts.WORKLOADS):
        assert name in shown


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc is found")
def test_a_kernel_of_known_size(tmp_path, monkeypatch):
    """Each thread holds LIVE products at a time: eight times as many are about eight times the instructions."""
    (tmp_path / "kernel.cu").write_text(
        'extern "C" __global__ void __launch_bounds__(32) ks_market_kernel(float* x) {\n'
        "  float y[LIVE];\n"
        "#pragma unroll\n  for (int i = 0; i < LIVE; ++i) y[i] = x[i] * x[LIVE + i];\n  __syncthreads();\n"
        "#pragma unroll\n  for (int i = 0; i < LIVE; ++i) x[i] = y[i];\n}\n"
    )
    monkeypatch.setattr(counts.build, "cuda_dir", lambda: tmp_path)
    monkeypatch.setattr(counts.build, "KERNEL_SOURCE", "kernel.cu")
    nvcc = counts.nvcc.find()
    small, large, spilled = (counts.count_kernel(nvcc, {"LIVE": live}) for live in (25, 200, 300))
    assert 6 < large["instructions"] / small["instructions"] < 9
    assert 25 <= small["registers"] < 60 and 200 <= large["registers"] < 255
    assert small["spilled_bytes"] == large["spilled_bytes"] == 0 < spilled["spilled_bytes"]
