"""The real Kueue, Volcano and coscheduling scheduler, on loopback, against a control plane of the tests."""
