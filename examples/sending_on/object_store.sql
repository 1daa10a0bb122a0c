-- The marts as Parquet into a bucket, by DuckDB's own COPY; from there BigQuery, Snowflake, Redshift and Athena load them.
--
--   cd where data/ lies; BUCKET=s3://bucket/leads duckdb < examples/sending_on/object_store.sql
--
-- The first time, DuckDB fetches its extensions httpfs and aws from its own site. The key comes from where the AWS tools
-- keep it. A reader of the bucket can meet some marts of this time and some of the time before.
install httpfs;
load httpfs;
install aws;
load aws;
create secret (type s3, provider credential_chain);

attach 'data/leads.duckdb' as portal (read_only);
set variable bucket = getenv('BUCKET');

copy portal.branches to (getvariable('bucket') || '/branches.parquet');
copy portal.mart_leads_daily to (getvariable('bucket') || '/mart_leads_daily.parquet');
copy portal.mart_people_daily to (getvariable('bucket') || '/mart_people_daily.parquet');
copy portal.mart_hourly to (getvariable('bucket') || '/mart_hourly.parquet');
copy portal.mart_appraisals to (getvariable('bucket') || '/mart_appraisals.parquet');
copy portal.mart_listing_demand to (getvariable('bucket') || '/mart_listing_demand.parquet');
copy portal.mart_listing_daily to (getvariable('bucket') || '/mart_listing_daily.parquet');
copy portal.mart_coverage to (getvariable('bucket') || '/mart_coverage.parquet');
