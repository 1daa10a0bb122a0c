-- Figures of mart_answers: one row, a column a figure.
select count(answered_at) as leads_answered, median(minutes) as median_minutes from mart_answers, days where lead_day > before
