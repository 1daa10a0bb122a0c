-- Figures of answers: one row, a column a figure.
select count(*) filter (problem is null) as answers, count(problem) as answers_that_do_not_count from answers
