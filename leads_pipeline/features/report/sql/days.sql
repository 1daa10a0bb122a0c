-- Today, and the newest closed day: the week that the report is of ends with it.
select today, full_day from days
