"""The metrics of the service, with the names that dashboards of training-operator and of controller-runtime query.

``families`` declares them with the types of ``family``. ``reconciles``, ``requests`` and ``readings`` provide their values, and ``service``
combines them for the service. The table lists the values of labels; series start at zero.
"""

from controller.telemetry.metrics.service import Metrics

__all__ = ("Metrics",)
