"""Pure rules without input or output.

Belongs here: the contract, windows, what is due, cutting an answer into leads.
Nothing here reads a file, asks a service or knows Dagster.
"""
