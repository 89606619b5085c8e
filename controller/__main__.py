"""``python -m controller``: the service, as the container runs it. Takes the flags of ``rallypoint controller``."""

import gc
import sys
from importlib import import_module

# What is imported stays, so looking for garbage meanwhile finds none: a seventh of the time that it takes.
gc.disable()
# Found, structlog would load it: a tenth of what a start imports, and 4 MiB, for what only local mode shows.
sys.modules.setdefault("rich", None)  # type: ignore[arg-type] # the import system's way to say that there is none
import_module("rallypoint.cli.controller")
gc.enable()

sys.exit(import_module("rallypoint.cli").main(["controller", *sys.argv[1:]]))
