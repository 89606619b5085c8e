"""An API server in this process: Kubernetes on loopback, as far as training jobs and their users need it.

``server.ApiServer`` is the door. Behind it: ``routing`` finds what a request is about, ``reading``, ``writing``
and ``watching`` answer it, ``store`` keeps the objects. What it answers is what a real server answers; the
contract suite holds the two side by side.
"""

from rallypoint.local.apiserver.server import ApiServer

__all__ = ["ApiServer"]
