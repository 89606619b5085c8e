"""``python -m controller.crds``."""

import sys

from controller.crds.command import main

sys.exit(main(sys.argv[1:]))
