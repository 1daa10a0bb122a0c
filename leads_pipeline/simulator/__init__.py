"""The portal's stand-in: leads, tokens, inventory and pushes by rule, with faults on demand.

Belongs here: everything that the portal does, written from the contract alone. Doesn't: anything of
the pipeline. Neither imports the other, because a shared mistake about the contract would make both
wrong together. Faults of sockets are made by the tests' raw server
(leads_pipeline_tests/support/raw_server.py).
"""
