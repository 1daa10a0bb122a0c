"""Findings, figures, alerts, and the questions of `doctor` and `verify`."""
