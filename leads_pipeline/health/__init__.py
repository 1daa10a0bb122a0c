"""Findings, figures, and the form of what `doctor` and `verify` see."""
