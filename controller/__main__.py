"""``python -m controller``: the entry point of the container."""

import gc
import sys
from importlib import import_module

# Imported modules stay in memory, so garbage collection during the imports finds nothing and takes a seventh of their time.
gc.disable()
command = import_module("controller.command")
gc.enable()

sys.exit(command.main(sys.argv[1:]))
