-- One row per local day, scope, market, urgency, confidence and curiosity: which valuations are asked for, worth what?
-- by lead_day
-- lead_day date: Local day on which the leads were submitted
-- scope varchar: Scope of the leads, e.g. branch-101
-- branch varchar: Name of the branch, from LEADS_BRANCHES_FILE; the scope if the file has no name for it
-- market varchar: sales or lettings: what the owners consider
-- urgency varchar: How soon the owners want to act, readable, e.g. within 3 months; unknown if they don't say
-- confidence varchar: The portal's confidence in its estimates: low, medium or high; unknown if it doesn't say
-- is_just_curious boolean: Whether the owners say that they are just curious; NULL if they don't say
-- leads bigint: Leads
-- people bigint: Different people of this row; leads without e-mail address and telephone number don't count. Not additive, as one person can be in several rows: use `count(distinct person)` of appraisal_leads
-- estimates bigint: Leads with an estimate of the portal's
-- total_estimate bigint: Sum of these estimates: divided by the sum of `estimates` it is the mean of any rows
-- lowest_estimate bigint: Lowest of these estimates
-- highest_estimate bigint: Highest of these estimates

with source as (
    select
        lead_day,
        scope,
        market_of(enquiry_type, intent) as market,
        readable(urgency) as urgency,
        readable(property_details_estimate_confidence_band) as confidence,
        just_curious as is_just_curious,
        person,
        property_details_estimate_value as estimate
    from appraisal_leads
)

select
    lead_day,
    scope,
    branch_of(scope) as branch,
    market,
    urgency,
    confidence,
    is_just_curious,
    count(*) as leads,
    count(distinct person) as people,
    count(estimate) as estimates,
    try_cast(sum(estimate) as bigint) as total_estimate,
    min(estimate) as lowest_estimate,
    max(estimate) as highest_estimate
from source
group by lead_day, scope, market, urgency, confidence, is_just_curious
