"""The controller on a real API server with simulated nodes: time, calls, CPU and memory.

``scenario`` defines the jobs, ``testbed`` the environment; ``observer`` and ``audit`` watch; ``job_run`` and ``baseline`` are
timed; ``report`` shows the results. ``bench/README.md`` defines the figures.
"""
