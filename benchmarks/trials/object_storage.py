# /// script
# dependencies = [
#     "moto[s3,server]==5.2.5", "boto3==1.44.5", "polars==2.1.0", "pyarrow==26.0.1",
#     "duckdb==1.4.4", "duckdb-ext-httpfs==1.4.4.20260205", "duckdb-ext==0.1.2",
# ]
# ///
"""Staged Parquet on an S3-compatible server of this machine: copied there, then queried by DuckDB, Polars and pyarrow.

DuckDB is the version whose httpfs comes as a package: its own server of extensions can't be reached from everywhere.
"""

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
import duckdb
import polars as pl
import pyarrow.dataset as ds
import pyarrow.fs as fs
from moto.server import ThreadedMotoServer

BUCKET = "leads"
KEY, SECRET, REGION = "made-up", "made-up-secret", "eu-west-2"


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print how long it took."""
    began = time.perf_counter()
    yield
    print(f"{what}: {time.perf_counter() - began:.2f} s")


def main() -> None:
    """Copy the staged files there, and ask each engine how many leads each scope has."""
    staged = Path(os.environ["LEADS_DATA_DIR"]) / "staged"
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"{host}:{port}"
    s3 = boto3.client(
        "s3",
        endpoint_url=f"http://{endpoint}",
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        region_name=REGION,
    )
    s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
    files = sorted(staged.rglob("*.parquet"))
    with timed(f"{len(files)} files, {sum(file.stat().st_size for file in files) / 1e6:.1f} MB copied"):
        for file in files:
            s3.upload_file(str(file), BUCKET, file.relative_to(staged).as_posix())
    query = "select scope, count(*) as leads from read_parquet('{}/applicant_leads/*/*.parquet') group by scope"
    local = sorted(duckdb.execute(query.format(staged)).fetchall())
    with duckdb.connect() as db:
        extension = next(Path(sys.prefix).rglob("httpfs.duckdb_extension"))
        db.execute(f"load '{extension}'")
        db.execute(
            f"create secret (type s3, key_id '{KEY}', secret '{SECRET}', region '{REGION}', endpoint '{endpoint}', "
            "url_style 'path', use_ssl false)"
        )
        with timed("DuckDB httpfs"):
            assert sorted(db.execute(query.format(f"s3://{BUCKET}")).fetchall()) == local
    options = {
        "aws_access_key_id": KEY,
        "aws_secret_access_key": SECRET,
        "aws_region": REGION,
        "aws_endpoint_url": f"http://{endpoint}",
        "aws_allow_http": "true",
    }
    with timed("Polars"):
        found = (
            pl.scan_parquet(f"s3://{BUCKET}/applicant_leads/**/*.parquet", storage_options=options)
            .group_by("scope")
            .len()
            .collect()
        )
        assert sorted(found.rows()) == local
    with timed("pyarrow"):
        store = fs.S3FileSystem(
            access_key=KEY, secret_key=SECRET, region=REGION, endpoint_override=endpoint, scheme="http"
        )
        counted = ds.dataset(f"{BUCKET}/applicant_leads", filesystem=store, partitioning="hive").to_table(["scope"])
        assert counted.num_rows == sum(leads for _, leads in local)
    print(f"The local files, DuckDB, Polars and pyarrow agree: {counted.num_rows} leads of {len(local)} scopes.")
    server.stop()


if __name__ == "__main__":
    main()
