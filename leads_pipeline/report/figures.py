"""A few figures of each mart: the UI plots them over the materializations, the report shows some.

Belongs here: which marts have figures. Doesn't: their queries (sql/figures/).
"""

from decimal import Decimal
from typing import Any, Final

from leads_pipeline.duck import statement
from leads_pipeline.warehouse import Reader

FIGURE_DAYS: Final = 30

_MARTS: Final = (
    "answers",
    "mart_answers",
    "branches",
    "mart_leads_daily",
    "mart_people_daily",
    "mart_hidden_valuations",
    "mart_people",
    "mart_hourly",
    "mart_appraisals",
    "mart_listing_demand",
    "mart_listing_daily",
    "mart_listing_stock",
    "mart_enquiry_mix",
    "mart_lead_properties",
    "mart_coverage",
    "drift",
)


def mart_figures(db: Reader) -> dict[str, dict[str, int | float]]:
    """The figures of every mart by name, without those that have no value yet. Raises StorageError."""
    return {mart: figures_of(db, mart) for mart in _MARTS}


def figures_of(db: Reader, mart: str) -> dict[str, int | float]:
    """The figures of one mart by name, without those that have no value yet. Raises StorageError."""
    names, [values] = of_days(db, f"figures/{mart}")
    return {
        name: float(value) if isinstance(value, Decimal | float) else int(value)
        for name, value in zip(names, values, strict=True)
        if value is not None
    }


def of_days(db: Reader, name: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Names and rows of a statement that goes on from figures/days. Raises StorageError."""
    return db.query(statement("figures/days") + statement(name), {"days": FIGURE_DAYS})
