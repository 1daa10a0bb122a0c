-- Hidden valuations of the last $days days, windows that should be there and are not, changes of the contract.
select
    (select count(*) from mart_hidden_valuations where lead_day > before) as hidden_valuations,
    (
        select count(*) from mart_coverage where is_configured and state in ('failed', 'missing')
    ) as windows_not_landed,
    (select count(*) from drift) as contract_changes
from days
