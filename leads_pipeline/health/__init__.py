"""Findings, figures, and the questions of `doctor` and `verify`."""
