"""A control plane with operators, a load of jobs, exporters and a real Prometheus, for tests of dashboards and alerts."""
