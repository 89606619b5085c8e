"""``python -m controller``: the service, as the container runs it. Takes the flags of ``rallypoint controller``."""

import sys

from controller.cli import main

sys.exit(main(["controller", *sys.argv[1:]]))
