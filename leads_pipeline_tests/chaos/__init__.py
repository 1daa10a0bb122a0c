"""Slow and destructive tests: killed processes, full disks, broken answers, wrong clocks, races
(`make chaos`).
"""
