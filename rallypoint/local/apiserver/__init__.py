"""An API server in this process: Kubernetes on loopback, as far as training jobs and their users need it.

``server.ApiServer`` starts and stops it. ``serving`` answers HTTP requests, ``registry`` reads and writes objects of
the ``resources``, ``storage`` keeps them. The answers are those of kube-apiserver; the contract suite compares the two.
"""

from rallypoint.local.apiserver.server import ApiServer

__all__ = ["ApiServer"]
