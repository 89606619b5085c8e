"""Structural schemas: types, defaults, validation and CEL rules."""
