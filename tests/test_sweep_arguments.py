"""Every argument of a sweep with values that it should not have: refused by name, or taken, and never anything else."""

import inspect

import pytest

import kineticsim_env as ks
from kineticsim_env.sweeps import Sweep
from scripts.fuzz.calls import ALSO, judge
from scripts.fuzz.values import HUGE, WRONG

pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

VALID = {"space": {"noise_spread": [3]}, "intervals": 2, "statistics": ["volume"], "engine": "numpy", "progress": False}
LARGE = ("intervals", "warm_up", "replicates", "points")  # that a large number is right for, and takes hours
NAMES = list(inspect.signature(ks.sweep).parameters)


def complaint(function, name, **arguments):
    """Return what is wrong with a refusal, or with what was raised instead; nothing where nothing was refused."""
    try:
        function(**arguments)
    except Exception as error:  # judging every kind is the point
        return judge(error, [name, *ALSO.get(name, ())])
    return ""


def wrong_values(name):
    for label, make in WRONG.items():
        if label in HUGE and name in LARGE:
            continue
        if name == "ray" and isinstance(make(), str) and make():
            continue  # an address, which somebody might answer at
        yield label, make


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_argument_is_refused_by_its_name(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    complaints = {}
    for number, (label, make) in enumerate(wrong_values(name)):
        arguments = dict(VALID)
        if name in ("points", "design_seed"):
            arguments["design"] = "random"
            arguments["points"] = 2
        if name == "part":
            arguments["folder"] = tmp_path / str(number)
        said = complaint(ks.sweep, name, **{**arguments, name: make()})
        if said:
            complaints[label] = said
    assert not complaints


@pytest.mark.parametrize(
    "name", ["noise_spread", "tie", "num_levels", "regimes", "agents", "preset", "inventory_limit"]
)
def test_a_wrong_choice_of_a_name_is_refused(name):
    """As all there is to choose, as the only value, and as an end of a range."""
    complaints = {}
    for label, make in WRONG.items():
        for form in (
            lambda value: value,
            lambda value: [value],
            lambda value: (3, value),
            lambda value: {"low": value},
        ):
            said = complaint(ks.sweep, "space", **{**VALID, "space": {name: form(make())}})
            if said:
                complaints[label] = said
    assert not complaints


@pytest.mark.parametrize("function", [ks.open_sweep, Sweep])
def test_a_wrong_folder_is_refused(function, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    complaints = {label: complaint(function, "folder", folder=make()) for label, make in WRONG.items()}
    assert not {label: said for label, said in complaints.items() if said}


def test_wrong_columns_and_points_are_refused(tmp_path):
    found = ks.sweep(**VALID)
    for label, make in WRONG.items():
        assert not complaint(found.config, "point", point=make()), label
        assert not complaint(found.to_pandas, "columns", columns=make()), label
