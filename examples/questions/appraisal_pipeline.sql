-- What may come to the market, how soon, and worth what? Valuations asked for in the last 30 days.
select
    branch,
    market,
    urgency,
    sum(leads) as leads,
    coalesce(sum(leads) filter (is_just_curious), 0) as just_curious,
    round(sum(total_estimate) / sum(estimates)) as mean_estimate
from mart_appraisals
where lead_day between current_date - 30 and current_date - 1
group by branch, market, urgency
order by branch, market, urgency
