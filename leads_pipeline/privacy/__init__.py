"""The person behind the leads: where they lie, and what an answer to them holds.

Belongs here: the search of every file for them, the export. Doesn't: who is meant (person/), reading or landing leads
for anybody else (lake/, flatten/, warehouse/), arguments and exit codes (cli/privacy.py).

The rooms import from each other, downwards: export, search, places.
"""
