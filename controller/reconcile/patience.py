"""How long a job whose children cannot be made or deleted is left before that is tried again.

Only the writes wait. Passes go on, so that the end of a job, its deadline and its pods are seen all the same.
"""

import asyncio

from controller.runtime.backoff import LONGEST_SECONDS, PerKey

TICK_SECONDS = 0.001
"""A rest that no timer can wait for counts as none."""


class Patience:
    """By job UID: not before when, and for which generation of the job's spec; another one is tried at once."""

    def __init__(self) -> None:
        self._backoff = PerKey[str](longest_seconds=LONGEST_SECONDS)
        self._until: dict[str, tuple[int, float]] = {}

    def failed(self, uid: str, generation: int) -> None:
        self._until[uid] = generation, asyncio.get_running_loop().time() + self._backoff.failed(uid)

    def left(self, uid: str, generation: int) -> float:
        """Seconds still to wait, 0 if it may be tried."""
        failed_for, until = self._until.get(uid, (generation, 0.0))
        left = until - asyncio.get_running_loop().time()
        return left if failed_for == generation and left > TICK_SECONDS else 0.0

    def forget(self, uid: str) -> None:
        """It went well, or there is no such job any more."""
        self._backoff.forget(uid)
        self._until.pop(uid, None)
