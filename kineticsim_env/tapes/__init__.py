"""Orders in and out of markets: tapes, LOBSTER's files, books from data, price paths."""

from kineticsim_env.tapes.tape import Tape

__all__ = ["Tape"]
