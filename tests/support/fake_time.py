"""Event loops whose time jumps to the next timer when nothing is left to do."""

import asyncio

import looptime

NOOP_CYCLES = 8
"""Iterations with nothing to do before a jump, in which sockets may still deliver; with looptime's 42, a third of the CPU went into them."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a loop that starts at 0, for tests that create their loops themselves."""
    return looptime.new_event_loop(start=0, noop_cycles=NOOP_CYCLES)
