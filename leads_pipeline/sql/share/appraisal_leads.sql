-- One row per lead of an owner who asks what a property is worth
-- lead_day: Local day on which the lead was submitted
-- scope: Scope whose window held it, e.g. branch-101
-- branch: Name of the branch, from LEADS_BRANCHES_FILE; the scope where that names none
-- source: Site that the lead came from, readable, e.g. zoopla website; unknown where the portal doesn't say, … where it is no known one
-- person: Keyed hash of the person, under a key that nobody has, as in applicant_leads; NULL where the lead names neither address nor number
-- market: sales or lettings: what the owner thinks of
-- portal_source: Product of the portal that brought it, readable, e.g. prospectplus
-- contact_method: How the owner likes to be contacted, readable: phone or email
-- contact_time: When, readable, e.g. afternoon
-- urgency: How soon the owner wants to act, readable, e.g. within 3 months
-- is_just_curious: Whether the owner says that they are just curious
-- property_type: Kind of property, readable, e.g. semi detached
-- bedrooms: Bedrooms; 6 means 6 or more
-- outward_code: First half of the property's postcode, e.g. SW1A
-- estimate_from: The portal's estimate, down to a step of 100,000; 5,000,000 means that or more
-- confidence: The portal's confidence in it: low, medium or high

select
    lead_day,
    scope,
    branch_of(scope) as branch,
    words_of(lead_source) as source,
    hash_of('person', person::varchar) as person,
    market_of(enquiry_type, intent) as market,
    words_of(portal_source) as portal_source,
    words_of(contact_preferences_method) as contact_method,
    words_of(contact_preferences_time) as contact_time,
    words_of(urgency) as urgency,
    just_curious as is_just_curious,
    words_of(property_details_property_type) as property_type,
    step_of(property_details_bedrooms, 1, 6) as bedrooms,
    outward_of(property_details_address_postcode) as outward_code,
    price_step_of(property_details_estimate_value, 'sales') as estimate_from,
    words_of(property_details_estimate_confidence_band) as confidence
from appraisal_leads
