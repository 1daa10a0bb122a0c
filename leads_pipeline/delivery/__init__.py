"""Delivery: every new lead, and every new version of one, to the agency's own endpoint.

    due.py        which versions are due: those that landed and were not delivered
    ledger.py     what was delivered and what waits, in SQLite
    message.py    a version as JSON, signed by the Standard Webhooks specification
    sending.py    sending what is due, and what an answer means

Doesn't belong here: when it is done (orchestration/sensors.py, cli/deliver.py).
"""
