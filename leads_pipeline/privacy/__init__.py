"""The person behind the leads: where they lie, and what an answer to them holds.

Belongs here: who is meant by an address, a number or a name, the search of every file for them, the export. Doesn't:
reading or landing leads for anybody else (lake/, flatten/, warehouse/), arguments and exit codes (cli/privacy.py).

The rooms import from each other, downwards: export, search, places, matching, identity.
"""
