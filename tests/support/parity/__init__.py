"""Compares the controller with recordings of the Go operators on a real API server.

    case         the steps of a recorded case, and its records
    case_run     runs a case: ``observer`` and ``audit`` observe it, ``kubelet`` writes the status of its pods
    record       the result in the form of a recording; ``normal`` and ``defaults`` remove what no two runs share
    compare      the differences between two records, and the verdict: which of them are declared
    environment  the control plane of all cases

``tests/parity/golden/README.md`` describes the recordings.
"""
