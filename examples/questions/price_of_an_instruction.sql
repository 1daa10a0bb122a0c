-- What does an instruction cost? Of the products that lead_prices.csv has a price for; rejected leads are paid, too.
select
    branch,
    portal_source,
    sum(leads) as leads,
    sum(instructions) as instructions,
    sum(price) as price,
    round(sum(price) / nullif(sum(instructions), 0), 2) as price_of_an_instruction
from mart_outcomes
where price is not null
group by branch, portal_source
order by branch, portal_source
