"""The person behind the leads: where they lie, their requests, and what an answer to them holds.

Belongs here: the search of every file for them, requests, sweeping, retention, export. Doesn't: who counts as the
person (domain/identity.py), whom the list means (storage/suppression/), landing and publishing leads, arguments and
exit codes (cli/privacy.py).
"""
