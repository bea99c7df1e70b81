"""The commands of `python -m kineticsim_env` that play markets of one config: `simulate`, `evaluate`, `impact`, ...

Each file adds its command to the parser of `cli.py` and does it; `shared.py` has what is the same in all. The other
commands stand beside what they call: `sweeps/command.py`, `calibration/command.py`, `play` and `runtime/doctor.py`.
"""
