-- One row per local day, scope, market, budget band and district: what do searchers want to spend, and where? Of applicants whose lead has the criteria of their search
-- by lead_day
-- lead_day date: Local day on which the leads were submitted
-- scope varchar: Scope of the leads, e.g. branch-101
-- branch varchar: Name of the branch, from LEADS_BRANCHES_FILE; the scope if the file has no name for it
-- market varchar: sales or lettings, from the enquiry's type or else the intent; unknown if neither says
-- budget_band varchar: Band of the highest price or monthly rent searched for, as price_band of mart_listing_demand; unknown if there is none
-- budget_band_from bigint: Lower end of that band, to order by
-- district varchar: First half of the postcode searched for, e.g. YO1; unknown if none is given
-- leads bigint: Leads
-- people bigint: Different people of this row; leads without e-mail address and telephone number don't count. Not additive, as one person can be in several rows: use `count(distinct person)` of applicant_leads

with source as (
    select
        *,
        market_of(enquiry_type, intent) as market,
        market = 'lettings' as is_rent,
        nullif(search_criteria_maximum_price, 0) as price,
        readable(search_criteria_price_frequency) as frequency
    from applicant_leads
),

searches as (
    select
        lead_day,
        scope,
        market,
        is_rent,
        band_from(case when is_rent then monthly_rent_of(price, frequency) else price end, is_rent) as budget_band_from,
        district_of(search_criteria_location_outcode) as district,
        person
    from source
    where price is not null or search_criteria_location_outcode is not null
)

select
    lead_day,
    scope,
    branch_of(scope) as branch,
    market,
    band_of(budget_band_from, is_rent) as budget_band,
    budget_band_from,
    coalesce(district, 'unknown') as district,
    count(*) as leads,
    count(distinct person) as people
from searches
group by lead_day, scope, market, is_rent, budget_band_from, district
