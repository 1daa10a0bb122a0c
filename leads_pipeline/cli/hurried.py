"""The code location of `demo-outage`: the same, but what failed waits for seconds, where it waits for minutes else.

Only Dagster loads it. Nobody should ask a real portal at this pace.
"""

from leads_pipeline import retry, sensors
from leads_pipeline.definitions import defs as defs

retry.FIRST_RETRY_SECONDS = 10.0
sensors.RETRY_INTERVAL_SECONDS = 30
