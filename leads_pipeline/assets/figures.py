"""A few figures of each mart, which the UI plots over the materializations.

Belongs here: which figures, one query a mart. Doesn't: what a mart counts (sql/), the page of figures (report.py).
"""

from decimal import Decimal
from typing import Final

from leads_pipeline.warehouse import Reader

# The same days as the report's, so that the figures are too.
FIGURE_DAYS: Final = 30

# A day under way would make every curve fall at its end, so the newest day that a pull has closed counts.
_DAYS: Final = """
with days as (
    select
        max(day) filter (state in ('landed', 'empty', 'partial')) as full_day,
        max(day) as today,
        max(day) - $days::integer as before
    from mart_coverage
    where is_configured
)
"""

# Each gives one row; a column's name is the figure's.
_QUERIES: Final = {
    "mart_leads_daily": """
        select
            coalesce(sum(leads) filter (lead_day = full_day), 0) as leads_of_last_full_day,
            coalesce(sum(leads) filter (kind = 'applicant' and lead_day > before), 0) as applicant_leads,
            coalesce(sum(leads) filter (kind = 'appraisal' and lead_day > before), 0) as appraisal_leads
        from mart_leads_daily, days""",
    "mart_people_daily": """
        select
            count(distinct person) filter (lead_day = full_day) as people_of_last_full_day,
            count(distinct person) filter (lead_day between full_day - 6 and full_day) as people_of_last_7_full_days
        from mart_people_daily, days""",
    "mart_hidden_valuations": """
        select count(*) as people, count(*) filter (lead_day > before) as hidden_valuations
        from mart_hidden_valuations, days""",
    "mart_people": """
        select
            count(*) filter (last_lead_day > before) as people,
            count(*) filter (last_lead_day > before and leads > 1) as returning_people,
            count(*) filter (last_lead_day > before and scopes > 1) as people_of_several_branches
        from mart_people, days""",
    "mart_hourly": """
        select arg_max(hour, leads) as busiest_hour, max(leads) as leads_of_busiest_hour
        from (select hour, sum(leads) as leads from mart_hourly group by hour order by hour)""",
    "mart_appraisals": """
        select
            coalesce(sum(leads) filter (lead_day = full_day), 0) as leads_of_last_full_day,
            round(sum(total_estimate) filter (lead_day > before) / sum(estimates) filter (lead_day > before))
                as mean_estimate
        from mart_appraisals, days""",
    "mart_listing_demand": """
        select count(*) as listings, max(leads) as leads_of_most_wanted_listing from mart_listing_demand""",
    "mart_enquiry_mix": """
        select
            round(100 * sum(leads) filter (situation = 'first time buyer') / sum(leads), 1)
                as first_time_buyers_percent,
            round(100 * sum(leads) filter (situation in ('property to sell', 'property to let')) / sum(leads), 1)
                as owners_percent
        from mart_enquiry_mix, days
        where lead_day > before""",
    "mart_lead_properties": """
        select round(100 * count(*) filter (match = 'address') / count(*), 1) as matched_by_address_percent
        from mart_lead_properties""",
    "mart_coverage": """
        select
            count(*) filter (state = 'landed') as windows_landed,
            count(*) filter (state = 'empty') as windows_empty,
            count(*) filter (state = 'open') as windows_open,
            count(*) filter (state = 'partial') as windows_partial,
            count(*) filter (state = 'damaged') as windows_damaged,
            count(*) filter (state = 'failed') as windows_failed,
            count(*) filter (state = 'missing') as windows_missing
        from mart_coverage
        where is_configured""",
    "drift": """
        select count(*) as contract_changes, coalesce(sum(leads), 0) as leads_with_changes from drift""",
}


def mart_figures(db: Reader) -> dict[str, dict[str, int | float]]:
    """The figures of every mart by name, without those that have no value yet. Raises StorageError."""
    found: dict[str, dict[str, int | float]] = {}
    for mart, query in _QUERIES.items():
        is_dated = "days" in query.split()
        names, [values] = db.query(f"{_DAYS if is_dated else ''}{query}", {"days": FIGURE_DAYS} if is_dated else None)
        found[mart] = {
            name: float(value) if isinstance(value, Decimal | float) else int(value)
            for name, value in zip(names, values, strict=True)
            if value is not None
        }
    return found
