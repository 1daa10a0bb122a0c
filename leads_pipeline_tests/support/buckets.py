"""Empty buckets for tests, and a server that has some: moto's emulation of S3, which starts in a
second.

Belongs here: making them. Doesn't: what is to hold of a bucket (features/bucket).
"""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import httpx

from leads_pipeline.features.bucket.store import open_store
from leads_pipeline_tests.support.newcomer import wait_for
from leads_pipeline_tests.support.serving import free_port

KEYS: Final = {
    "AWS_ACCESS_KEY_ID": "tests",
    "AWS_SECRET_ACCESS_KEY": "a-secret",
    "AWS_REGION": "us-east-1",
}


def made_bucket(server: str) -> str:
    """The name of an empty bucket there, for whoever has the keys."""
    import boto3

    name = f"leads-{secrets.token_hex(8)}"
    key_id, secret, region = KEYS.values()
    client = boto3.client(
        "s3",
        endpoint_url=server,
        aws_access_key_id=key_id,
        aws_secret_access_key=secret,
        region_name=region,
    )
    client.create_bucket(Bucket=name)
    return name


def new_bucket(server: str) -> str:
    """The address of an empty bucket there. The test's variables lead to it."""
    os.environ.update(KEYS, AWS_ENDPOINT_URL=server)
    open_store.cache_clear()
    return f"s3://{made_bucket(server)}"


@contextmanager
def running_moto() -> Iterator[str]:
    """The address of a server, which lets anybody in; it is killed at the end."""
    port = free_port()
    options = f"-W ignore -m moto.server -H 127.0.0.1 -p {port}"
    # Else it would take the first word of any other name of this machine for a bucket.
    environment = {**os.environ, "S3_IGNORE_SUBDOMAIN_BUCKETNAME": "true"}

    server = subprocess.Popen(
        [sys.executable, *options.split()],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert server.poll() is None
        try:
            return httpx.get(f"{address}/moto-api/").is_success
        except httpx.TransportError:
            return False

    try:
        wait_for(answers)
        yield address
    finally:
        server.kill()
        server.wait()
