-- A first query of each mart. docs/reference/tables.md shows them.

-- mart_answers
select branch, count(*) as leads, count(answered_at) as answered, median(minutes) as minutes
from mart_answers group by branch;

-- mart_appraisals
select urgency, sum(leads) as leads from mart_appraisals group by urgency order by leads desc;

-- mart_arrival_times
select branch, median(minutes_p50) as usual_day, max(minutes_p95) as worst_day from mart_arrival_times
where lead_day >= current_date - 30 group by branch;

-- mart_coverage
select state, count(*) as windows from mart_coverage where is_configured group by state;

-- mart_districts
select district, sum(leads) as leads from mart_districts group by district order by leads desc;

-- mart_enquiry_mix
select situation, sum(leads) as leads from mart_enquiry_mix group by situation;

-- mart_hidden_valuations
select branch, market, count(*) as people from mart_hidden_valuations group by branch, market;

-- mart_hourly
select hour, sum(leads) as leads from mart_hourly group by hour order by hour;

-- mart_lead_properties
select match, count(*) as leads from mart_lead_properties group by match;

-- mart_leads_daily
select lead_day, sum(leads) as leads from mart_leads_daily group by lead_day order by lead_day;

-- mart_listing_daily
select listing_id, sum(viewings) as viewings from mart_listing_daily
group by listing_id order by viewings desc;

-- mart_listing_demand
select price_band, sum(leads) as leads from mart_listing_demand group by price_band;

-- mart_listing_stock
select item_id, address, leads from mart_listing_stock where is_available order by leads;

-- mart_monthly
select branch, month, sum(leads) as leads from mart_monthly group by all order by all;

-- mart_opening_hours
select branch, sum(leads_while_closed) / sum(leads) as share from mart_opening_hours group by branch;

-- mart_outcomes
select branch, portal_source, sum(leads) as leads, sum(appointments) as appointments,
sum(instructions) as instructions from mart_outcomes group by all order by all;

-- mart_people
select days, count(*) as people from mart_people group by days order by days;

-- mart_people_daily
select branch, count(distinct person) as people from mart_people_daily
where lead_day >= current_date - 30 group by branch;

-- mart_searches
select market, budget_band, sum(leads) as leads from mart_searches
group by market, budget_band, budget_band_from order by market, budget_band_from;

-- mart_weekly
select branch, week, sum(leads) as leads from mart_weekly group by all order by all;
