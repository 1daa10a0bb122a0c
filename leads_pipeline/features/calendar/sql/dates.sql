-- One row per day, from the year before the first window to the year after the last one: which week and month is it in?
-- day date: The day. Join it with lead_day
-- weekday integer: Day of the week, 1 is Monday and 7 Sunday
-- weekday_name varchar: Mon, Tue, Wed, Thu, Fri, Sat or Sun
-- week date: Monday of its week
-- iso_week varchar: Its week by ISO 8601, e.g. 2026-W47
-- month date: First day of its month
-- quarter varchar: Its quarter, e.g. 2026-Q4
-- year integer: Its year
-- day_last_year date: The same weekday 52 weeks before
-- bank_holiday varchar: Name of the bank holiday, from LEADS_BANK_HOLIDAYS_FILE; NULL if it is none
-- is_working_day boolean: Whether it is a day from Monday to Friday, and no bank holiday

with days as (
    select
        unnest(
            generate_series(
                make_date(year(min(day))::integer - 1, 1, 1),
                make_date(year(max(day))::integer + 1, 12, 31),
                interval 1 day
            )
        )::date as day
    from pipeline.window_states
)

select
    days.day,
    isodow(days.day)::integer as weekday,
    strftime(days.day, '%a') as weekday_name,
    date_trunc('week', days.day)::date as week,
    strftime(days.day, '%G-W%V') as iso_week,
    date_trunc('month', days.day)::date as month,
    format('{}-Q{}', year(days.day), quarter(days.day)) as quarter,
    year(days.day)::integer as year,
    days.day - 364 as day_last_year,
    holidays.name as bank_holiday,
    isodow(days.day) < 6 and holidays.name is null as is_working_day
from days
left join pipeline.bank_holidays as holidays using (day)
