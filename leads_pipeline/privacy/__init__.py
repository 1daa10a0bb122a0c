"""The person behind the leads: where they lie, their requests, and what an answer to them holds.

Belongs here: the search of every file for them, requests, sweeping, retention, export, share. Doesn't: keys of a person
(domain/person.py), whom the list means (storage/suppression/), landing and publishing leads, arguments and exit codes
(cli/privacy.py).
"""
