"""The controller on a real API server with simulated nodes: how long, how many calls, how much CPU and memory.

``scenario`` says what is submitted, ``rig`` sets the stage, ``observer`` and ``audit`` look on, ``life`` and ``floor`` are the two
things that are timed, ``report`` shows them. The definitions of the figures are in ``bench/README.md``.
"""
