-- One row per lead: which item of the inventory is the property that it is about? Matched by what is written, not by an id
-- kind varchar: applicant (the listing asked about) or appraisal (the owner's property)
-- lead_id varchar: The lead's own id
-- lead_day date: Local day on which the lead was submitted
-- scope varchar: Scope of the lead, e.g. branch-101
-- branch varchar: Name of the branch, from LEADS_BRANCHES_FILE; the scope if the file has no name for it
-- match varchar: address (postcode, street, number and flat agree: trust it), postcode only (a neighbour, or written too differently), none (no item at the postcode, or the lead names none). Measured on 3,500 made-up leads with addresses as people write them, and neighbours at each postcode: 98 % of the matches by address were right. Of the leads whose property is in the inventory, 87 % had such a match. With addresses as the inventory has them, both are 100 %
-- items bigint: Items that fit: at the address, or at the postcode alone
-- item_id varchar: The item at the address, the newest if there are several; NULL without a match by address
-- item_first_seen_day date: First day on which a search found that item

with leads as not materialized (
    select
        'applicant' as kind,
        lead_id as id,
        lead_day,
        scope,
        postcode_of(listing_details_address_postcode) as postcode,
        concat_ws(' ', listing_details_address_property_number_or_name, listing_details_address_street_name) as line
    from applicant_leads
    union all
    select
        'appraisal' as kind,
        lead_id as id,
        lead_day,
        scope,
        postcode_of(property_details_address_postcode) as postcode,
        concat_ws(' ', property_details_address_line1, property_details_address_line2, property_details_address_line3)
            as line
    from appraisal_leads
),

items as (
    select
        item_id,
        first_seen_day,
        postcode_of(address_postcode) as postcode,
        -- without a street, a number would fit every street; without a number, a street every house of it
        case
            when trim(address_street) <> '' and trim(concat_ws(' ', address_sub_dwelling, address_name_no)) <> ''
                then concat_ws(' ', address_sub_dwelling, address_name_no, address_street)
        end as line
    from inventory
    where postcode is not null
),

at_postcode as (
    select postcode, count(*) as items
    from items
    group by postcode
),

-- Few leads are about a place where the inventory has an item, and only those addresses are compared.
source as (
    select kind, id, postcode, line
    from leads
    where postcode in (select postcode from at_postcode)
    union all
    select 'inventory' as kind, item_id as id, postcode, line
    from items
),

words as (
    select
        kind,
        id,
        postcode,
        -- "Flat 2, 14 St. John's Road" is " flat 2 14 st johns road "
        ' ' || trim(regexp_replace(regexp_replace(strip_accents(lower(line)), '[''’]', '', 'g'), '[^a-z0-9]+', ' ', 'g'))
            || ' ' as line
    from source
),

normalised as (
    select
        kind,
        id,
        postcode,
        line
            .replace(' apartment ', ' flat ')
            .replace(' apt ', ' flat ')
            .replace(' unit ', ' flat ')
            .replace(' street ', ' st ')
            .replace(' saint ', ' st ')
            .replace(' road ', ' rd ')
            .replace(' avenue ', ' ave ')
            .replace(' av ', ' ave ')
            .replace(' lane ', ' ln ')
            .replace(' drive ', ' dr ')
            .replace(' close ', ' cl ')
            .replace(' court ', ' ct ')
            .replace(' crescent ', ' cres ')
            .replace(' gardens ', ' gdns ')
            .replace(' place ', ' pl ')
            .replace(' square ', ' sq ')
            .replace(' terrace ', ' terr ')
            as line
    from words
),

at_address as (
    select
        asked.kind,
        asked.id,
        count(*) as items,
        max_by(
            {'item_id': items.item_id, 'first_seen_day': items.first_seen_day},
            {'length': length(listed.line), 'first_seen_day': items.first_seen_day, 'item_id': items.item_id}
        ) as item
    from normalised as asked
    -- a lead may go on with a locality, so its line begins with the item's; both end with a space, after a whole word
    join normalised as listed on listed.postcode = asked.postcode and starts_with(asked.line, listed.line)
    join items on items.item_id = listed.id
    where asked.kind <> 'inventory' and listed.kind = 'inventory'
    group by asked.kind, asked.id
)

select
    leads.kind,
    leads.id as lead_id,
    leads.lead_day,
    leads.scope,
    branch_of(leads.scope) as branch,
    case
        when at_address.id is not null then 'address'
        when at_postcode.postcode is not null then 'postcode only'
        else 'none'
    end as match,
    coalesce(at_address.items, at_postcode.items, 0) as items,
    at_address.item.item_id,
    at_address.item.first_seen_day as item_first_seen_day
from leads
left join at_address on at_address.kind = leads.kind and at_address.id = leads.id
left join at_postcode on at_postcode.postcode = leads.postcode
