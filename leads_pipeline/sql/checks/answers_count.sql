-- What is wrong with rows of the agency's own answers, and with how many of them.
select problem, count(*) as answers from answers where problem is not null group by problem order by answers desc, problem
