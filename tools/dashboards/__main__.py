"""Writes the dashboards, as Grafana imports them, to ``manifests``.

    .venv/bin/python -m tools.dashboards [FOLDER]

A kustomization beside them makes the ConfigMaps that Grafana's sidecar loads.
"""

import json
import sys
from pathlib import Path

from tools.dashboards.job import JOB
from tools.dashboards.jobs import JOBS
from tools.dashboards.operator import OPERATOR

FOLDER = Path(__file__).parents[2] / "manifests" / "components" / "monitoring" / "dashboards"
DASHBOARDS = (OPERATOR, JOBS, JOB)


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0]) if arguments else FOLDER
    for dashboard in DASHBOARDS:
        path = folder / f"{dashboard.name}.json"
        path.write_text(json.dumps(dashboard.to_json(), indent=1) + "\n", encoding="utf-8")
        print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
