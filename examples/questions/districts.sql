-- In which postcode districts are the properties that people ask about? The last 30 days, the ten busiest districts.
select
    district,
    sum(leads) as leads,
    sum(leads) filter (kind = 'appraisal') as appraisal_leads,
    sum(viewings) as viewings
from mart_districts
where lead_day between current_date - 30 and current_date - 1
group by district
order by leads desc, district
limit 10
