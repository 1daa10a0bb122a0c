"""Durable bytes: a store of files, and the raw windows in it.

Belongs here: the verbs of a store (a folder or a bucket), raw files and their names, the state of each window.
Doesn't: fetching, reading what a lead says, publishing, Dagster.
"""
