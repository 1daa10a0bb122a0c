-- When do people want to see a property? Times that suit them, by weekday and part of the day, of the last 30 days.
select
    strftime(local_time(earliest), '%a') as weekday,
    case
        when hour(local_time(earliest)) < 12 then 'morning'
        when hour(local_time(earliest)) < 17 then 'afternoon'
        else 'evening'
    end as part_of_day,
    count(*) as times,
    count(distinct lead_id) as leads
from applicant_viewing_times
join applicant_leads using (lead_id)
where earliest is not null and lead_day between current_date - 30 and current_date - 1
group by all
order by times desc, weekday, part_of_day
