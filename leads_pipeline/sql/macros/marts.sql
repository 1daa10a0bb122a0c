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

create or replace macro local_time(v) as timezone({zone}, v);

-- What an analyst reads: select function_name, parameters, comment from duckdb_functions() where comment is not null.
comment on macro words_of is 'The words of an enumerated value: end terrace of END_TERRACE. Shows anything that it is given; readable hides what may be a person''s words';
comment on macro readable is 'The words of an enumerated value, as marts show them: unknown if there is none, … if it may be a person''s words';
comment on macro market_of is 'sales or lettings, from the columns enquiry_type and intent of a lead; unknown if neither says';
comment on macro branch_of is 'Name of the branch with that scope; the scope if it has no name';
comment on macro local_time is 'A moment on the clocks of LEADS_TIMEZONE';
