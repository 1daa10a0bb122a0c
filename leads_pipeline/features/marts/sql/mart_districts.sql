-- One row per local day, scope, kind, market and postcode district: where are the properties that people ask about?
-- by lead_day
-- lead_day date: Local day on which the leads were submitted
-- scope varchar: Scope of the leads, e.g. branch-101
-- branch varchar: Name of the branch, from LEADS_BRANCHES_FILE; the scope if the file has no name for it
-- kind varchar: applicant (the listing asked about) or appraisal (the owner's property)
-- market varchar: sales or lettings, from the enquiry's type or else the intent; unknown if neither says
-- district varchar: First half of the property's postcode, e.g. YO1; unknown if none is given, or it isn't a British postcode
-- leads bigint: Leads
-- people bigint: Different people of this row; leads without e-mail address and telephone number don't count. Not additive, as one person can be in several rows: use `count(distinct person)` of mart_people_daily
-- viewings bigint: Leads that ask for a viewing

with source as (
    select
        lead_day,
        scope,
        kind,
        market_of(enquiry_type, intent) as market,
        coalesce(
            district_of(listing_details_address_postcode),
            district_of(property_details_address_postcode),
            'unknown'
        ) as district,
        person,
        organise_viewing
    from every_lead
)

select
    lead_day,
    scope,
    branch_of(scope) as branch,
    kind,
    market,
    district,
    count(*) as leads,
    count(distinct person) as people,
    count(*) filter (organise_viewing) as viewings
from source
group by lead_day, scope, kind, market, district
