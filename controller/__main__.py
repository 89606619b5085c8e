"""``python -m controller``: the controller as the container runs it."""

import gc
import sys
from importlib import import_module

# Imported modules stay, so a garbage collection during the imports finds nothing: a seventh of their time.
gc.disable()
command = import_module("controller.command")
gc.enable()

sys.exit(command.main(sys.argv[1:]))
