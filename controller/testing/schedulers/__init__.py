"""The real Kueue and the real coscheduling scheduler, on loopback, against a control plane of the tests."""
