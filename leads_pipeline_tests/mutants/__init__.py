"""Broken promises: small faults that are put into the product on purpose, to see the tests catch them.

`broken.py` lists them. `.venv/bin/python -m leads_pipeline_tests.mutants` runs the tests of each. `patching.py` puts a
mutant into a process, and `site/` into each process that a test starts.
"""
