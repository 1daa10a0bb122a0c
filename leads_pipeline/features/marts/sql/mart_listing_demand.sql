-- One row per scope and listing that people asked about: which listings, and which price bands, are in demand?
-- scope varchar: Scope of the leads, e.g. branch-101
-- branch varchar: Name of the branch, from LEADS_BRANCHES_FILE; the scope if the file has no name for it
-- listing_id varchar: Id of the listing; leads without a listing don't count. mart_listing_daily has its leads by day
-- market varchar: sales or lettings, as the newest lead has it
-- address varchar: House number or name, street, town or city, and postcode, in one line; NULL if none is given
-- url varchar: Address of the listing's page; NULL if none is given
-- price decimal(18,2): Price of the listing in its newest lead, or the rent for one period of rent_frequency; NULL if it is 0 or not given
-- currency varchar: Currency of the price, e.g. GBP; NULL if it isn't given
-- rent_frequency varchar: Period of the rent: per week or per month; NULL for a sale, and if it isn't given
-- monthly_rent decimal(18,2): Rent of a month; for a rent per week, 52/12 of it; NULL if the period isn't known
-- price_band varchar: Band of the price, 100,000 wide up to 5,000,000 or more, or of the monthly rent, 500 wide up to 20,000 or more, e.g. 300,000 to 399,999; unknown if there is none
-- price_band_from bigint: Lower end of that band, to order by
-- property_type varchar: Kind of property, readable, e.g. semi detached; unknown if none is given
-- bedrooms bigint: Bedrooms
-- town varchar: Town or city; unknown if none is given
-- status varchar: Status of the listing, readable, e.g. for sale; unknown if that isn't given
-- leads bigint: Leads about it
-- people bigint: Different people among them; leads without e-mail address and telephone number don't count. Not additive, as one person can ask about several listings: use `count(distinct person)` of applicant_leads
-- viewings bigint: Leads that ask for a viewing
-- first_lead_day date: Local day of the first lead
-- last_lead_day date: Local day of the last lead

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
                'address': nullif(
                    concat_ws(
                        ', ',
                        nullif(
                            trim(
                                concat_ws(
                                    ' ',
                                    trim(listing_details_address_property_number_or_name),
                                    trim(listing_details_address_street_name)
                                )
                            ),
                            ''
                        ),
                        nullif(trim(listing_details_address_town_or_city), ''),
                        nullif(trim(listing_details_address_postcode), '')
                    ),
                    ''
                ),
                'url': nullif(trim(listing_details_url), ''),
                'price': nullif(listing_details_pricing_price, 0),
                'currency': listing_details_pricing_currency_code,
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
    where trim(listing_details_id) <> ''
    group by scope, listing_details_id
),

cleaned as (
    select *, nullif(readable(newest.rent_frequency), 'unknown') as rent_frequency, newest.market = 'lettings' as is_rent
    from source
),

priced as (
    select
        *,
        case when is_rent then monthly_rent_of(newest.price, rent_frequency) end as monthly_rent,
        band_from(case when is_rent then monthly_rent else newest.price end, is_rent) as price_band_from
    from cleaned
)

select
    scope,
    branch_of(scope) as branch,
    listing_id,
    newest.market,
    newest.address,
    newest.url,
    newest.price,
    nullif(regexp_extract(upper(trim(newest.currency)), '^[A-Z]{3}$'), '') as currency,
    rent_frequency,
    monthly_rent,
    band_of(price_band_from, is_rent) as price_band,
    price_band_from,
    readable(newest.property_type) as property_type,
    newest.bedrooms,
    coalesce(nullif(trim(newest.town), ''), 'unknown') as town,
    readable(newest.status) as status,
    leads,
    people,
    viewings,
    first_lead_day,
    last_lead_day
from priced
