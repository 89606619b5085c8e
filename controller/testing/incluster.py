"""``python -m controller`` as in a pod, where the ServiceAccount's files lie in another folder than the kubelet's.

    python -m controller.testing.incluster FOLDER [FLAG...]

Nothing else differs, and nothing more is imported: what it takes of memory is what the service takes.
"""

import sys
from pathlib import Path

from controller.cli import main
from controller.kube import connect

if __name__ == "__main__":
    connect.SERVICE_ACCOUNT = Path(sys.argv[1])
    sys.exit(main(["controller", *sys.argv[2:]]))
