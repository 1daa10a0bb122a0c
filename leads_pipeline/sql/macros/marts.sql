-- What marts use. They stay in the file, for analysts to use as well. DuckDB 1.1.3 has to read them, so there is no `if`.
create or replace macro words_of(v) as
    regexp_replace(lower(replace(regexp_replace(v, {prefix}, ''), '_', ' ')), '^(unspecified)?$', 'unknown');

-- A member in the portal's form shows at once. Any other value may be a person's words until three people have sent it.
-- pipeline.words has the values of nearly all leads. To match each with the pattern would take four times as long.
create or replace macro readable(v) as
    coalesce(
        (select words from pipeline.words where value = trim(v)),
        case
            when coalesce(trim(v), '') = '' then 'unknown'
            when regexp_full_match(trim(v), {member}) then words_of(trim(v))
            else '…'
        end
    );

create or replace macro market_of(enquiry_type, intent) as case
    when enquiry_type = 'ENQUIRY_TYPE_SALES' then 'sales'
    when enquiry_type = 'ENQUIRY_TYPE_LETTINGS' then 'lettings'
    when ends_with(intent, '_BUY') or ends_with(intent, '_SELL') then 'sales'
    when ends_with(intent, '_RENT') or ends_with(intent, '_LET') then 'lettings'
    else 'unknown'
end;

create or replace macro branch_of(v) as coalesce((select name from branches where scope = v), v);

create or replace macro postcode_of(v) as nullif(regexp_replace(upper(v), '[^A-Z0-9]', '', 'g'), '');

create or replace macro local_time(v) as timezone({zone}, v);
