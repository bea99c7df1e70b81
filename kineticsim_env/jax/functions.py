"""`Functions`: rewards, features and ends of episodes that users write for JAX, called within a step.

They are functions of arrays, as in environments of torch functions of tensors (docs/custom_task.md): `reward` and
`terminate` of `before` and `after` a decision, and features of `after`. Each is called for one learner of every market,
with numbers `[M]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from kineticsim_env.envs.infos import info_of_one
from kineticsim_env.envs.moments import After, Moment, Outcome
from kineticsim_env.envs.own_functions import Own, OwnFunctions
from kineticsim_env.jax.markets import MarketState

_BOOK = ("bid", "ask", "price_origin")


class Functions:
    """The functions of all learners; those of a role are the same.

    Attributes:
        pays: Whether any learner's reward is the user's.
    """

    def __init__(self, own: Own | None, roles: Sequence[str], sizes: Sequence[int], learners: int) -> None:
        """Take the functions by role, and how many built-in numbers each slot sees; learners have the first slots."""
        self._roles, self._sizes, self._learners = tuple(roles), tuple(sizes), learners
        self._of: Mapping[str, OwnFunctions] = {} if own is None else own.by_role
        self.pays = own is not None and own.pays

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._of)

    def known(self, state: MarketState, slot: int) -> dict[str, Any]:
        """Return `account_info` of a learner, by name, `[M]`; without `episode_return` where the user pays."""
        found = info_of_one(state["info"], len(self._roles), slot)
        return {name: row for name, row in found.items() if not (self.pays and name == "episode_return")}

    def features(self, state: MarketState, slot: int) -> jax.Array:
        """Return the user's features of a learner, float32 `[M, n]`."""
        parts = self._of[self._roles[slot]].features if self else ()
        events = state.arrays.get("decision_events")
        if events is not None:
            events = jnp.where(state["elapsed"] > 0, events, 0)  # as an episode begins there were none
        after = After(self._after(state, slot, events))
        rows = [_checked("features", one(after), (len(after.bid),), jnp.float32) for one in parts]
        return jnp.concatenate(rows, axis=1) if rows else jnp.zeros((len(after.bid), 0), jnp.float32)

    def _after(self, state: MarketState, slot: int, events: jax.Array | None) -> dict[str, Any]:
        found = self.known(state, slot) | {name: state[name] for name in _BOOK}
        found |= {"quotes": state["quotes"][:, slot], "observation": state["observation"][:, slot, : self._sizes[slot]]}
        return found | ({} if events is None else {"decision_events": events})

    def scored(self, before: MarketState, state: MarketState) -> MarketState:
        """Return the state after a decision with what the functions say: who terminates, and what is paid."""
        arrays = {name: state.arrays[name] for name in ("terminated", "truncated", "over", "ended", "reward")}
        idle = state.arrays["idle"]
        for slot in range(self._learners):
            functions = self._of[self._roles[slot]]
            seen = self._after(state, slot, state.arrays.get("decision_events"))

            def outcome(seen: dict[str, Any] = seen, slot: int = slot) -> Outcome:
                said: dict[str, Any] = {name: arrays[name][:, slot] for name in ("reward", "terminated", "truncated")}
                return Outcome({**seen, **said})

            moment = Moment(self.known(before, slot))
            if functions.terminate:
                ends = _checked("terminate", functions.terminate(moment, outcome()), (len(idle),), jnp.bool_)
                ends &= ~idle[:, slot]
                for name in ("terminated", "over", "ended"):
                    arrays[name] = arrays[name].at[:, slot].set(arrays[name][:, slot] | ends)
                arrays["truncated"] = arrays["truncated"].at[:, slot].set(arrays["truncated"][:, slot] & ~ends)
            if functions.reward:
                paid = _checked("reward", functions.reward(moment, outcome()), (len(idle),), jnp.float32)
                arrays["reward"] = arrays["reward"].at[:, slot].set(jnp.where(idle[:, slot], 0.0, paid))
        if any(functions.terminate for functions in self._of.values()):
            arrays["done"] = jnp.all(arrays["ended"], axis=1)
        return state.replace(**arrays)


def _checked(name: str, found: Any, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Return what a function returned; of features one number or several per market."""
    array = jnp.asarray(found)
    is_bool = array.dtype == jnp.bool_
    allowed = is_bool if dtype == jnp.bool_ else jnp.issubdtype(array.dtype, jnp.floating)
    if name == "features" and array.ndim == 1:
        array = array[:, None]
    if not allowed or array.shape[:1] != shape or array.ndim != len(shape) + (name == "features"):
        wanted = f"{jnp.dtype(dtype)} {list(shape)}"
        raise ValueError(f"{name}: expected {wanted} from the function, got {array.dtype} {list(array.shape)}")
    return array.astype(dtype)
