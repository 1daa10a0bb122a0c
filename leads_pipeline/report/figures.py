"""A few figures of each mart: the UI plots them over the materializations, the report begins with some.

Belongs here: which marts have figures, and the headline. Doesn't: their queries (sql/figures/).
"""

from decimal import Decimal
from typing import Final

from leads_pipeline.duck import statement
from leads_pipeline.warehouse import Reader

FIGURE_DAYS: Final = 30

_MARTS: Final = (
    "mart_leads_daily",
    "mart_people_daily",
    "mart_hidden_valuations",
    "mart_people",
    "mart_hourly",
    "mart_appraisals",
    "mart_listing_demand",
    "mart_enquiry_mix",
    "mart_lead_properties",
    "mart_coverage",
    "drift",
)

_HEADLINE: Final = {
    "applicant_leads": "mart_leads_daily",
    "appraisal_leads": "mart_leads_daily",
    "people": "mart_people",
    "returning_people": "mart_people",
    "hidden_valuations": "mart_hidden_valuations",
    "contract_changes": "drift",
}
_NOT_LANDED: Final = ("windows_damaged", "windows_failed", "windows_missing")


def mart_figures(db: Reader) -> dict[str, dict[str, int | float]]:
    """The figures of every mart by name, without those that have no value yet. Raises StorageError."""
    return {mart: _figures(db, mart) for mart in _MARTS}


def headline(db: Reader) -> dict[str, int]:
    """What the report begins with: of the last 30 days, or of now. Raises StorageError."""
    figures = {mart: _figures(db, mart) for mart in {*_HEADLINE.values(), "mart_coverage"}}
    return {
        **{name: int(figures[mart].get(name, 0)) for name, mart in _HEADLINE.items()},
        "windows_not_landed": sum(int(figures["mart_coverage"][name]) for name in _NOT_LANDED),
    }


def _figures(db: Reader, mart: str) -> dict[str, int | float]:
    names, [values] = db.query(statement("figures/days") + statement(f"figures/{mart}"), {"days": FIGURE_DAYS})
    return {
        name: float(value) if isinstance(value, Decimal | float) else int(value)
        for name, value in zip(names, values, strict=True)
        if value is not None
    }
