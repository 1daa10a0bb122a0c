"""The figures of delivery."""

from collections import Counter

from leads_pipeline.features.delivery.ledger import ledger_names, reading_ledger
from leads_pipeline.features.delivery.questions import counts, last_delivered
from leads_pipeline.health.figures import CountedByState
from leads_pipeline.raw.data_folder import DataFolder


def figures(data: DataFolder) -> CountedByState:
    """Count the versions of leads, and say when one was last delivered. Raises StorageError."""
    by_place: dict[str, dict[str, int]] = {}
    together: Counter[str] = Counter()
    moments = []
    for name in ledger_names(data.folder):
        with reading_ledger(data.folder, name) as ledger:
            if ledger is None:
                continue
            by_place[name] = {state.value: count for state, count in counts(ledger).items()}
            together.update(by_place[name])
            moments.append(last_delivered(ledger))
    return CountedByState(
        name="deliveries",
        what="versions of leads, by state of delivery",
        by_state=dict(together),
        last_name="last_delivery",
        last_what="a lead was last delivered",
        last_at=max(filter(None, moments), default=None),
        place="destination",
        by_place=by_place,
    )
