-- Where the listings lie that leads ask about, the newest first. An owner's postcode is their home, which isn't asked for
-- at another service without their asking; a listing is public.
select upper(trim(listing_details_address_postcode)) as postcode
from applicant_leads
where lead_day > $since and trim(listing_details_address_postcode) <> ''
group by postcode
order by max(created_at) desc nulls last, postcode
limit $most
