"""The metrics of the service, under the names that dashboards of training-operator and of controller-runtime query.

``families`` is the table of them, ``family`` says what a line of it is; ``passes``, ``requests`` and ``readings`` fill them, and
``service`` is what the service is given. Values of labels are listed in the table, series start at zero.
"""

from controller.telemetry.metrics.service import Metrics

__all__ = ("Metrics",)
