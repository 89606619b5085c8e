"""The Helm chart in ``deploy/helm/rallypoint``, generated from ``manifests``: both ways to install have the same objects.

    .venv/bin/python -m tools.chart                                       # writes deploy/helm/rallypoint
    .venv/bin/python -m tools.chart package --output DIR --version 0.2.0  # and an archive of it, the same bytes each time

``values`` is the table of values, from which values.yaml, its schema and the README follow. ``templates`` makes templates of the
objects. ``files`` has what is written by hand.
"""
