"""The exceptions that the package raises on its own account."""


class KineticSimError(Exception):
    """Base of every error of this package."""


class MarketError(KineticSimError, RuntimeError):
    """A market cannot go on: a side's quantity or its price left the range of the integers."""


class EngineUnavailable(KineticSimError, RuntimeError):
    """An engine cannot be built or loaded on this machine."""
