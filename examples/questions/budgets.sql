-- What do searchers want to spend? By the highest price or monthly rent that they search for, in the last 30 days.
select
    market,
    budget_band,
    sum(leads) as leads
from mart_searches
where lead_day between current_date - 30 and current_date - 1 and budget_band_from is not null
group by market, budget_band, budget_band_from
order by market, budget_band_from
