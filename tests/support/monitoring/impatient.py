"""``python -m controller`` that compares its caches with the API server every few seconds, not every few minutes."""

import runpy

from controller.runtime import relist

if __name__ == "__main__":
    relist.PERIOD_SECONDS = (6.0, 8.0)
    relist.CHECK_SECONDS = (2.0, 3.0)
    relist.GRACE_SECONDS = 2.0
    runpy.run_module("controller", run_name="__main__")
