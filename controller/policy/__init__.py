"""The rules that all kinds share: restarts and replacements, deadlines and limits, cleanup, suspension, gang scheduling."""
