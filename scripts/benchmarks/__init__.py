"""What is timed or counted: the paper's suite with its baselines, and the scripts behind docs/performance.md.

`python -m scripts.benchmarks` is the suite; `performance`, `training_rate` and `sweep_speed` time other things, and
`auction_parts` and `instruction_counts` count instructions. All run from a checkout.
"""
