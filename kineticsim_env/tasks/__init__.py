"""Tasks: what a learned trader sees, may do and is paid for. The arithmetic itself is in `cuda/tasks.h`."""

from kineticsim_env.tasks.market_making import MarketMakingTask

__all__ = ["MarketMakingTask"]
