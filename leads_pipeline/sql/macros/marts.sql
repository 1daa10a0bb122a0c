-- What marts use. They stay in the file, for analysts to use as well. {members}, {hidden} and {prefixes} come from the
-- contract.

-- A member of an enumeration that the contract or drift knows. Whatever else stands there may be a person's name.
create or replace macro as_member(v) as case
    when v in ({members}) or v in (select value from pipeline.drift_names where value is not null) then v
    when v <> '' then {hidden}
end;

-- CONSUMER_SITUATION_PROPERTY_TO_SELL reads "property to sell"; a new member likewise, with its prefix.
create or replace macro member_words(v) as lower(replace(regexp_replace(v, {prefixes}, ''), '_', ' '));

-- Nothing, nothing but spaces, and the portal's own UNSPECIFIED are one word. The member stands here once, as each mention
-- of it is a join with what drift knows: nullif has two.
create or replace macro readable(v) as
    coalesce(regexp_replace(member_words(as_member(trim(v))), '^(unspecified)?$', 'unknown'), 'unknown');

create or replace macro market_of(enquiry_type, intent) as case
    when enquiry_type = 'ENQUIRY_TYPE_SALES' then 'sales'
    when enquiry_type = 'ENQUIRY_TYPE_LETTINGS' then 'lettings'
    when ends_with(intent, '_BUY') or ends_with(intent, '_SELL') then 'sales'
    when ends_with(intent, '_RENT') or ends_with(intent, '_LET') then 'lettings'
    else 'unknown'
end;

create or replace macro column_of(v) as
    lower(regexp_replace(replace(v, '.', '_'), '([a-z0-9])([A-Z])', '\1_\2', 'g'));

create or replace macro branch_of(v) as coalesce((select name from branches where scope = v), v);

create or replace macro postcode_of(v) as nullif(regexp_replace(upper(v), '[^A-Z0-9]', '', 'g'), '');
