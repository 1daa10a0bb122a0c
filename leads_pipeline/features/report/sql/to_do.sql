-- What needs a person: owners who asked in the period and want no valuation yet, and changes of what the portal sends.
select
    (
        select count(*)
        from mart_hidden_valuations, period
        where lead_day between last_day - 6 and last_day and ($scope::varchar is null or scope = $scope)
    ) as owners_to_call,
    (select count(*) from drift) as contract_changes
