-- One row per scope and listing that people asked about: which listings, and which price bands, are in demand?
-- scope: Scope whose window held the leads, e.g. branch-101
-- branch: Name of the branch, from LEADS_BRANCHES_FILE; the scope where that names none
-- *listing_id: Id of the listing; leads that name none don't count
-- market: sales or lettings, as the newest lead has it
-- price: Price of the listing in its newest lead
-- rent_frequency: What a rent is per: per week or per month
-- price_band: The price's band: 100,000 wide for a sale, 500 for a rent, e.g. 300,000 to 399,999
-- price_band_from: Lower end of that band, to order by
-- property_type: Kind of property, readable, e.g. semi detached
-- bedrooms: Bedrooms
-- town: Town or city
-- status: Where the listing stands, readable, e.g. for sale
-- leads: Leads about it
-- people: Different people among them; leads without e-mail address and telephone number don't count. Not additive, as one person can ask about several listings: use `count(distinct person)` of applicant_leads
-- viewings: Leads that ask for a viewing
-- first_lead_day: Local day of the first lead
-- last_lead_day: Local day of the last lead

with source as (
    select
        scope,
        listing_details_id as listing_id,
        count(*) as leads,
        count(distinct person) as people,
        count(*) filter (organise_viewing) as viewings,
        min(lead_day) as first_lead_day,
        max(lead_day) as last_lead_day,
        max_by(
            {
                'market': market_of(enquiry_type, intent),
                'price': listing_details_pricing_price,
                'rent_frequency': listing_details_pricing_rent_frequency,
                'property_type': listing_details_property_type,
                'bedrooms': listing_details_bedrooms,
                'town': listing_details_address_town_or_city,
                'status': listing_details_life_cycle_status
            },
            {
                'lead_day': lead_day,
                'created_at': coalesce(created_at, '-infinity'::timestamptz),
                'lead_id': lead_id
            }
        ) as newest
    from applicant_leads
    where listing_details_id is not null
    group by scope, listing_details_id
),

cleaned as (
    select
        *,
        if(newest.market = 'lettings', 500, 100000) as band_width,
        floor(newest.price / band_width)::bigint * band_width as price_band_from
    from source
)

select
    scope,
    branch_of(scope) as branch,
    listing_id,
    newest.market,
    newest.price,
    nullif(readable(newest.rent_frequency), 'unspecified') as rent_frequency,
    format('{:,} to {:,}', price_band_from, price_band_from + band_width - 1) as price_band,
    price_band_from,
    readable(newest.property_type) as property_type,
    newest.bedrooms,
    newest.town,
    readable(newest.status) as status,
    leads,
    people,
    viewings,
    first_lead_day,
    last_lead_day
from cleaned
order by scope, leads desc, listing_id
