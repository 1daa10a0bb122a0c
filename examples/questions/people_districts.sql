-- Where do the people live who ask? By the postcode that they gave.
select
    district_of(consumer_postcode) as district,
    count(*) as leads,
    count(distinct person) as people
from applicant_leads
where lead_day between current_date - 30 and current_date - 1
group by district
order by leads desc, district
