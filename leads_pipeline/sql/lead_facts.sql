-- One row per lead of any kind: the few columns that most figures need
-- by lead_day
-- kind varchar: applicant or appraisal
-- lead_id varchar: The lead's own id
-- lead_day date: Local day on which the lead was submitted
-- scope varchar: Scope of the lead, e.g. branch-101
-- created_at timestamptz: When the lead was submitted, UTC; NULL if the portal doesn't know
-- hour integer: Local hour of that moment, 0 to 23
-- market varchar: sales or lettings, from the enquiry's type or else the intent; unknown if neither says
-- source varchar: Site that the lead came from, one name over all kinds, readable, e.g. zoopla website; unknown if the portal doesn't say, … if it sends a value that may name a person
-- portal_source varchar: Product or campaign of the portal that brought it, readable, e.g. listing, prospectplus; unknown or … as in source
-- situation varchar: What an applicant says of their own situation, readable, e.g. first time buyer; unknown if they don't say, and for appraisals
-- listing_id varchar: Id of the listing that an applicant asks about; NULL if the lead names none
-- person uuid: Keyed hash of the e-mail address, or of the telephone number if there is none; NULL if neither is given
-- wants_viewing boolean: Whether an applicant asks for a viewing; NULL if they don't say
-- is_just_curious boolean: Whether an owner says that they are just curious; NULL if they don't say

select
    kind,
    lead_id,
    lead_day,
    scope,
    created_at,
    hour(local_time(created_at))::integer as hour,
    market_of(enquiry_type, intent) as market,
    readable(lead_source) as source,
    readable(portal_source) as portal_source,
    readable(consumer_situation) as situation,
    case when trim(listing_details_id) <> '' then listing_details_id end as listing_id,
    person,
    organise_viewing as wants_viewing,
    just_curious as is_just_curious
from every_lead
