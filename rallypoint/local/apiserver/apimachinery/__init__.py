"""What every resource shares: object metadata, names, selectors and the errors of the API."""
