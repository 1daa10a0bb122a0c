-- One row per local day, scope, kind, market and source: how many leads came, from how many people?
-- lead_day: Local day on which the leads were submitted
-- scope: Scope whose window held them, e.g. branch-101
-- kind: applicant or appraisal
-- market: sales or lettings, from the enquiry's type or else the intent; unknown where neither says
-- source: Site that the leads came from, as the portal names it; unknown where it doesn't say
-- leads: Leads
-- people: Different people by e-mail address, or telephone number where there is none; leads with neither don't count

with source as (
    select 'applicant' as kind, lead_day, scope, enquiry_type, intent, lead_source, contact_email, contact_phone_number
    from applicant_leads
    union all
    select 'appraisal' as kind, lead_day, scope, enquiry_type, intent, lead_source, contact_email, contact_phone_number
    from appraisal_leads
),

cleaned as (
    select
        lead_day,
        scope,
        kind,
        case
            when enquiry_type = 'ENQUIRY_TYPE_SALES' then 'sales'
            when enquiry_type = 'ENQUIRY_TYPE_LETTINGS' then 'lettings'
            when regexp_matches(intent, '_(BUY|SELL)$') then 'sales'
            when regexp_matches(intent, '_(RENT|LET)$') then 'lettings'
            else 'unknown'
        end as market,
        coalesce(nullif(trim(lead_source), ''), 'unknown') as source,
        coalesce(
            nullif(lower(trim(contact_email)), ''),
            -- 07700 900123, +44 7700 900123 and 0044 (0)7700 900123 are one number
            nullif(regexp_replace(regexp_replace(contact_phone_number, '[^0-9]', '', 'g'), '^(00)?440?|^0', ''), '')
        ) as person
    from source
)

select
    lead_day,
    scope,
    kind,
    market,
    source,
    count(*) as leads,
    count(distinct person) as people
from cleaned
group by lead_day, scope, kind, market, source
order by lead_day, scope, kind, market, source
