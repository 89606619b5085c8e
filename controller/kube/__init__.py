"""The only access to the API server: connection, client and error tree."""
