-- The marts into the schema leads of a PostgreSQL database, by DuckDB's own ATTACH; all of them, or none.
--
--   cd where data/ lies; PGHOST=… PGDATABASE=… PGUSER=… PGPASSWORD=… duckdb < examples/sending_on/postgres.sql
--
-- The first time, DuckDB fetches its extension postgres from its own site. Readers wait for the end of it.
install postgres;
load postgres;

attach 'data/leads.duckdb' as portal (read_only);
attach '' as target (type postgres);

begin;
create schema if not exists target.leads;
drop table if exists target.leads.branches;
create table target.leads.branches as from portal.branches;
drop table if exists target.leads.mart_leads_daily;
create table target.leads.mart_leads_daily as from portal.mart_leads_daily;
drop table if exists target.leads.mart_people_daily;
create table target.leads.mart_people_daily as from portal.mart_people_daily;
drop table if exists target.leads.mart_hourly;
create table target.leads.mart_hourly as from portal.mart_hourly;
drop table if exists target.leads.mart_appraisals;
create table target.leads.mart_appraisals as from portal.mart_appraisals;
drop table if exists target.leads.mart_listing_demand;
create table target.leads.mart_listing_demand as from portal.mart_listing_demand;
drop table if exists target.leads.mart_listing_daily;
create table target.leads.mart_listing_daily as from portal.mart_listing_daily;
drop table if exists target.leads.mart_coverage;
create table target.leads.mart_coverage as from portal.mart_coverage;
commit;
