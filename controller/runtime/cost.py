"""Measures for how long a coroutine keeps the event loop from other work, without the time for which it waits."""

import types
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class Cost:
    """What the steps of one coroutine cost. Tasks that it starts do not count."""

    def __init__(self, cpu_time: Callable[[], float]) -> None:
        self._cpu_time = cpu_time
        self.busy_seconds = 0.0

    @types.coroutine
    def measured(self, work: Awaitable[T]) -> Generator[Any, Any, T]:
        """Await the work, and add the time of its steps."""
        steps = work.__await__()
        step: Callable[[], Any] = partial(next, steps)
        while True:
            started = self._cpu_time()
            try:
                waits_for = step()
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                self.busy_seconds += self._cpu_time() - started
            try:
                yield waits_for
            except BaseException as error:  # noqa: BLE001 - such as a cancellation, which the work handles
                step = partial(_throw, steps, error)
            else:
                step = partial(next, steps)


def _throw(steps: Generator[Any, Any, Any], error: BaseException) -> Any:
    return steps.throw(error)
