"""Where users read the documentation. Messages link to it, because an installed package does not contain the pages."""

REPOSITORY_URL = "https://github.com/rallypoint-dev/rallypoint/blob/main"
DOCS_URL = f"{REPOSITORY_URL}/docs"
