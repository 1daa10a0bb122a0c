"""What holds for every test: no setting of the developer's own, and no deadline on a busy machine."""

import os

from hypothesis import settings

# A test must neither depend on the variables of whoever runs it nor reach their portal or their Dagster.
for name in list(os.environ):
    if name.startswith(("LEADS_", "INVENTORY_")) or name == "DAGSTER_HOME":
        del os.environ[name]

# Hypothesis' deadline of 200 ms for one example measures the machine, not the code.
settings.register_profile("leads_pipeline", deadline=None)
settings.load_profile("leads_pipeline")
