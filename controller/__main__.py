"""``python -m controller``: the service, as the container runs it. Takes the flags of ``rallypoint controller``."""

import sys

# Found, structlog would load it: a tenth of what a start imports, and 4 MiB, for what only local mode shows.
sys.modules.setdefault("rich", None)  # type: ignore[arg-type] # the import system's way to say that there is none

from controller.cli import main  # noqa: E402 - after the line above

sys.exit(main(["controller", *sys.argv[1:]]))
