"""``python -m controller`` as in a pod, where the ServiceAccount's files lie in another folder than the kubelet's.

    python -m rallypoint.testing.incluster FOLDER [FLAG...]

Nothing else differs, and nothing more is imported: what it takes of memory is what the service takes.
"""

import runpy
import sys
from pathlib import Path

from controller.kube import connect

if __name__ == "__main__":
    connect.SERVICE_ACCOUNT = Path(sys.argv.pop(1))
    runpy.run_module("controller", run_name="__main__")
