-- One row per item of the inventory: which ones do people ask about, and which does nobody?
-- item_id varchar: Id of the item, as in the table inventory
-- address varchar: Flat, house number or name, street, town and postcode, in one line; NULL if none is given
-- is_available boolean: Whether the newest day's search found it, so that it is still on offer
-- first_seen_day date: First day on which a search found it, not before your first pull of the inventory
-- last_seen_day date: Last day on which a search found it
-- leads bigint: Applicant leads about it, by address as mart_lead_properties has it; 0 if there is none
-- viewings bigint: Those of them that ask for a viewing
-- last_lead_day date: Local day of the newest of them; NULL if there is none

with leads as (
    select
        properties.item_id,
        count(*) as leads,
        count(*) filter (asked.organise_viewing) as viewings,
        max(asked.lead_day) as last_lead_day
    from mart_lead_properties as properties
    join applicant_leads as asked using (lead_id)
    where properties.kind = 'applicant' and properties.item_id is not null
    group by properties.item_id
)

select
    inventory.item_id,
    nullif(
        concat_ws(
            ', ',
            nullif(trim(concat_ws(' ', trim(address_sub_dwelling), trim(address_name_no), trim(address_street))), ''),
            nullif(trim(address_town), ''),
            nullif(trim(address_postcode), '')
        ),
        ''
    ) as address,
    last_seen_day = max(last_seen_day) over () as is_available,
    first_seen_day,
    last_seen_day,
    coalesce(leads.leads, 0) as leads,
    coalesce(leads.viewings, 0) as viewings,
    leads.last_lead_day
from inventory
left join leads using (item_id)
