"""Holds the controller against recordings of the Go operators on a real API server.

    case       what is done, and what came of it when it was recorded
    play       does it: ``observer`` and ``audit`` look on, ``kubelet`` writes what the pods of a case report
    record     what came of it now, in the words of a recording; ``normal`` and ``defaults`` take out what no two runs share
    compare    where the two differ, apart from what ``differs`` declares
    stage      the control plane that all cases share

``tests/parity/golden/README.md`` describes the recordings.
"""
