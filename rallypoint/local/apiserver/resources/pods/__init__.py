"""Defaults and validation of pods and pod templates."""
