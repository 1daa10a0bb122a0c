-- One row per person, situation, and what mart_leads_daily has a row per: from how many different people did any of the leads come?
-- *lead_day: Local day on which the leads were submitted
-- scope: Scope whose window held them, e.g. branch-101
-- branch: Name of the branch, from LEADS_BRANCHES_FILE; the scope where that names none
-- kind: applicant or appraisal
-- market: sales or lettings, from the enquiry's type or else the intent; unknown where neither says
-- source: Site that the leads came from, one name over both kinds, readable, e.g. zoopla website; unknown where the portal doesn't say, … where it sends what may name a person
-- portal_source: Product of the portal that brought them, the campaign, readable, e.g. listing, prospectplus; likewise
-- situation: What the applicants say of their own situation, readable, e.g. first time buyer; unknown where they don't say, and for appraisals
-- person: Keyed hash of the e-mail address, or of the telephone number where there is none; NULL where neither is given. `count(distinct person)` is the number of different people of any rows
-- leads: Leads of that person, or of all whose person isn't known; `sum(leads)` is the number of leads of any rows

with source as (
    select 'applicant' as kind, lead_day, scope, enquiry_type, intent, lead_source, portal_source,
        consumer_situation, person
    from applicant_leads
    union all
    select 'appraisal' as kind, lead_day, scope, enquiry_type, intent, lead_source, portal_source,
        null as consumer_situation, person
    from appraisal_leads
),

-- A dozen texts are read, and not one a lead.
texts as (
    select text, readable(text) as words
    from (
        select lead_source as text from source
        union
        select portal_source from source
        union
        select consumer_situation from source
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
        situations.words as situation,
        person
    from source
    join texts as sites on lead_source is not distinct from sites.text
    join texts as products on source.portal_source is not distinct from products.text
    join texts as situations on consumer_situation is not distinct from situations.text
)

select
    lead_day,
    scope,
    branch_of(scope) as branch,
    kind,
    market,
    source,
    portal_source,
    situation,
    person,
    count(*) as leads
from cleaned
group by lead_day, scope, kind, market, source, portal_source, situation, person
order by lead_day, scope, kind, market, source, portal_source, situation
