-- One row per lead of a person who asks about a listing
-- lead_day: Local day on which the lead was submitted
-- scope: Scope whose window held it, e.g. branch-101
-- branch: Name of the branch, from LEADS_BRANCHES_FILE; the scope where that names none
-- source: Site that the lead came from, readable, e.g. zoopla website; unknown where the portal doesn't say, … where it is no known one
-- person: Keyed hash of the person, under a key that nobody has; NULL where the lead names neither address nor number
-- market: sales or lettings, from the enquiry's type or else the intent; unknown where neither says
-- portal_source: Product of the portal that brought it, readable, e.g. listing
-- situation: What the person says of their own situation, readable, e.g. first time buyer
-- contact_method: How the person likes to be contacted, readable: phone or email
-- contact_time: When, readable, e.g. afternoon
-- property_use: residential or commercial
-- is_overseas: Whether the person asks about property abroad
-- wants_viewing: Whether the person wants a viewing
-- wants_details: Whether the person wants more details of the property
-- outward_code: First half of the person's postcode, e.g. SW1A
-- searched_outward_code: First half of the postcode searched for
-- searched_property_type: Kind of property searched for, readable, e.g. semi detached
-- searched_bedrooms: Fewest bedrooms searched for; 6 means 6 or more
-- searched_price_from: Highest price searched for, down to a step of 100,000, or 500 for a rent; 5,000,000 and 20,000 mean that or more
-- listing: Keyed hash of the listing asked about, under the same key
-- listing_status: Where the listing stands, readable, e.g. for sale
-- listing_property_type: Kind of property, readable, e.g. semi detached
-- listing_bedrooms: Bedrooms; 6 means 6 or more
-- listing_price_from: Price of the listing, or its rent, down to a step as above
-- listing_rent_frequency: What a rent is per, readable: per week or per month; unknown for a sale
-- listing_outward_code: First half of the listing's postcode

select
    lead_day,
    scope,
    branch_of(scope) as branch,
    words_of(lead_source) as source,
    hash_of('person', person::varchar) as person,
    market_of(enquiry_type, intent) as market,
    words_of(portal_source) as portal_source,
    words_of(consumer_situation) as situation,
    words_of(contact_preferences_method) as contact_method,
    words_of(contact_preferences_time) as contact_time,
    words_of(property_use) as property_use,
    is_overseas,
    organise_viewing as wants_viewing,
    request_property_details as wants_details,
    outward_of(consumer_postcode) as outward_code,
    outward_of(search_criteria_location_outcode) as searched_outward_code,
    words_of(search_criteria_property_type) as searched_property_type,
    step_of(search_criteria_minimum_bedrooms, 1, 6) as searched_bedrooms,
    price_step_of(search_criteria_maximum_price, market) as searched_price_from,
    hash_of('listing', nullif(trim(listing_details_id), '')) as listing,
    words_of(listing_details_life_cycle_status) as listing_status,
    words_of(listing_details_property_type) as listing_property_type,
    step_of(listing_details_bedrooms, 1, 6) as listing_bedrooms,
    price_step_of(listing_details_pricing_price, market) as listing_price_from,
    words_of(listing_details_pricing_rent_frequency) as listing_rent_frequency,
    outward_of(listing_details_address_postcode) as listing_outward_code
from applicant_leads
