"""The figures of delivery."""

from leads_pipeline.features.delivery.ledger import reading_ledger
from leads_pipeline.health.figures import CountedByState
from leads_pipeline.raw.data_folder import DataFolder


def figures(data: DataFolder) -> CountedByState:
    """Count the versions of leads, and say when one was last delivered. Raises StorageError."""
    with reading_ledger(data.folder) as ledger:
        counts = ledger.counts() if ledger else {}
        last_at = ledger.last_delivered() if ledger else None
    return CountedByState(
        name="deliveries",
        what="versions of leads, by state of delivery",
        by_state={state.value: count for state, count in counts.items()},
        last_name="last_delivery",
        last_what="a lead was last delivered",
        last_at=last_at,
    )
