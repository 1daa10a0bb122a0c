-- One row per local day, scope, kind, market, source and portal_source: how many leads came, from how many people?
-- *lead_day: Local day on which the leads were submitted
-- scope: Scope whose window held them, e.g. branch-101
-- branch: Name of the branch, from LEADS_BRANCHES_FILE; the scope where that names none
-- kind: applicant or appraisal
-- market: sales or lettings, from the enquiry's type or else the intent; unknown where neither says
-- source: Site that the leads came from, one name over both kinds, readable, e.g. zoopla website; unknown where the portal doesn't say, … where it sends what may name a person
-- portal_source: Product of the portal that brought them, the campaign, readable, e.g. listing, prospectplus; likewise
-- leads: Leads
-- people: Different people of this row, by e-mail address, or telephone number where there is none; leads with neither don't count. Not additive, as one person can be in several rows: use `count(distinct person)` of mart_people_daily

with source as (
    select 'applicant' as kind, lead_day, scope, enquiry_type, intent, lead_source, portal_source, person
    from applicant_leads
    union all
    select 'appraisal' as kind, lead_day, scope, enquiry_type, intent, lead_source, portal_source, person
    from appraisal_leads
),

-- A dozen texts are read, and not one a lead.
texts as (
    select text, readable(text) as words
    from (
        select lead_source as text from source
        union
        select portal_source from source
    )
),

cleaned as (
    select
        lead_day,
        scope,
        kind,
        market_of(enquiry_type, intent) as market,
        sites.words as source,
        products.words as portal_source,
        person
    from source
    join texts as sites on lead_source is not distinct from sites.text
    join texts as products on source.portal_source is not distinct from products.text
)

select
    lead_day,
    scope,
    branch_of(scope) as branch,
    kind,
    market,
    source,
    portal_source,
    count(*) as leads,
    count(distinct person) as people
from cleaned
group by lead_day, scope, kind, market, source, portal_source
order by lead_day, scope, kind, market, source, portal_source
