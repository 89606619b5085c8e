"""The controller on a real API server with simulated nodes: how long, how many calls, how much CPU and memory.

``scenario`` says what is submitted, ``testbed`` sets the stage, ``observer`` and ``audit`` look on, ``job_run`` and ``floor`` are the two
things that are timed, ``report`` shows them. The definitions of the figures are in ``bench/README.md``.
"""
