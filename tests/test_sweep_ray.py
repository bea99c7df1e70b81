"""Sweeps on a real cluster of Ray: several machines (raylets) here, of which one is lost, and workers that die."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from agent_classes import trend_follower
from thorough import slow

import kineticsim_env as ks
from kineticsim_env.runtime import build
from kineticsim_env.statistics import of_series

ray = pytest.importorskip("ray")
pytest.importorskip("pyarrow")

pytestmark = [
    slow,
    pytest.mark.skipif(sys.platform != "linux", reason="Ray joins machines of one host on Linux only"),
    pytest.mark.skipif(bool(build.cpu_unavailable()), reason="no C++ engine"),
    pytest.mark.filterwarnings("ignore"),
]
ROOT = Path(__file__).parent.parent
SPACE = {"noise_spread": (2, 12), "trend_follower.lookback": (3, 30)}
MARKET = {"preset": "trading", "agents": {trend_follower: 3}}
GIVEN = {"market": MARKET, "design": "random", "points": 24, "replicates": 2, "batch": 2, "progress": False}
STATISTICS = ("volume", "volatility")


@pytest.fixture(scope="module")
def cluster():
    """A head without a place for tasks, and three machines of one core each, which find the modules of these tests."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests")]))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        made.machines = [made.add_node(num_cpus=1) for _ in range(3)]
        yield made
        made.shutdown()


@pytest.fixture(scope="module")
def wanted():
    return ks.sweep(SPACE, 500, STATISTICS, engine="cpu", **GIVEN).to_pandas()


def files_of(folder):
    return list(Path(folder).glob("batch-*.parquet"))


def wait_for(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_cluster_gives_what_one_machine_gives(cluster, wanted, tmp_path):
    found = ks.sweep(SPACE, 500, STATISTICS, folder=tmp_path, ray=cluster.address, **GIVEN)
    assert found.to_pandas().equals(wanted) and not ray.is_initialized()
    before = [path.stat().st_mtime_ns for path in found.files]
    again = ks.sweep(SPACE, 500, STATISTICS, folder=tmp_path, ray="nowhere:1", **GIVEN)  # nothing is left to do
    assert [path.stat().st_mtime_ns for path in again.files] == before


def test_a_connection_that_there_is_already_is_used_and_kept(cluster, wanted):
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        found = ks.sweep(SPACE, 500, STATISTICS, ray="auto", **GIVEN)
        assert found.to_pandas().equals(wanted) and ray.is_initialized()
    finally:
        ray.shutdown()


def killing(folder, times):
    """Return a statistic whose first `times` calls anywhere kill the worker that they are in."""

    def killer(prices):
        for number in range(times):
            try:
                (Path(folder) / f"killed-{number}").touch(exist_ok=False)
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.full((len(prices),), 1.0, dtype=torch.float64)

    return of_series(killer, "last_price")


def test_batches_of_workers_that_are_killed_are_done_again(cluster, wanted, tmp_path):
    statistics = {"volume": "volume", "volatility": "volatility", "killer": killing(tmp_path, 3)}
    found = ks.sweep(SPACE, 500, statistics, folder=tmp_path / "store", ray=cluster.address, **GIVEN)
    assert len(list(tmp_path.glob("killed-*"))) == 3
    table = found.to_pandas()
    assert table["point"].tolist() == list(range(24)) and (table["killer"] == 1).all()
    assert table[list(wanted)].equals(wanted)


def test_an_error_in_a_task_is_raised_here(cluster):
    def broken(prices):
        raise ArithmeticError("of a statistic")

    with pytest.raises(ArithmeticError, match="of a statistic"):
        ks.sweep(SPACE, 5, {"own": of_series(broken, "last_price")}, ray=cluster.address, **GIVEN)
    assert not ray.is_initialized()


def test_engines_that_a_cluster_has_not_are_refused(cluster):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ValueError, match="engine: .*got 'cuda' on a cluster without GPUs"):
        ks.sweep(SPACE, 5, STATISTICS, ray=cluster.address, engine="cuda", **GIVEN)
    with pytest.raises(ValueError, match="device: expected None with ray, got 'cuda:1'"):
        ks.sweep(SPACE, 5, STATISTICS, ray=cluster.address, device="cuda:1", **GIVEN)
    with pytest.raises(TypeError, match="ray: expected .*got 3"):
        ks.sweep(SPACE, 5, STATISTICS, ray=3, **GIVEN)


DRIVER = """
import sys
import kineticsim_env as ks
import test_sweep_ray as here
ks.sweep(here.SPACE, 20_000, here.STATISTICS, folder=sys.argv[1], ray=sys.argv[2], **here.GIVEN)
"""


def test_a_sweep_whose_own_program_is_killed_goes_on(cluster, tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    words = [sys.executable, "-c", DRIVER, str(tmp_path), cluster.address]
    process = subprocess.Popen(words, env=environment, start_new_session=True)
    try:
        wait_for(lambda: len(files_of(tmp_path)) >= 2 or process.poll() is not None)
        assert process.poll() is None, "it ended before it was killed"
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    before = {path.name: path.stat().st_mtime_ns for path in files_of(tmp_path)}
    assert len(before) < 12
    found = ks.sweep(SPACE, 20_000, STATISTICS, folder=tmp_path, ray=cluster.address, **GIVEN)
    assert found.is_complete
    assert {path.name: path.stat().st_mtime_ns for path in found.files if path.name in before} == before
    assert found.to_pandas().equals(ks.sweep(SPACE, 20_000, STATISTICS, engine="cpu", **GIVEN).to_pandas())


def test_a_machine_that_is_lost_loses_no_point(cluster, tmp_path):
    """Its tasks never end there: they wait for a file that is made when the machine is gone."""
    began, gone = tmp_path / "began", tmp_path / "gone"
    began.mkdir()

    def waiting(prices):
        (began / ray.get_runtime_context().get_node_id()).touch()
        end = time.monotonic() + 120
        while not gone.exists() and time.monotonic() < end:
            time.sleep(0.02)
        return torch.ones(len(prices), dtype=torch.float64)

    def lose_one():
        lost = cluster.machines[0]
        wait_for(lambda: (began / lost.node_id).exists())
        cluster.remove_node(lost, allow_graceful=False)
        gone.touch()

    losing = threading.Thread(target=lose_one)
    losing.start()
    statistics = {"volume": "volume", "waiting": of_series(waiting, "last_price")}
    found = ks.sweep(SPACE, 100, statistics, folder=tmp_path / "store", ray=cluster.address, **GIVEN)
    losing.join()
    assert gone.exists() and found.is_complete
    alone = ks.sweep(SPACE, 100, ("volume",), engine="cpu", **GIVEN).to_pandas()
    table = found.to_pandas()
    assert table["point"].tolist() == list(range(24)) and table["volume"].equals(alone["volume"])
