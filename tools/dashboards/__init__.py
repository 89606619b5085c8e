"""The source of the Grafana dashboards; ``python -m tools.dashboards`` writes them to ``manifests``."""
