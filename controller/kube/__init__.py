"""The one door to the API server: connection, client and error tree."""
