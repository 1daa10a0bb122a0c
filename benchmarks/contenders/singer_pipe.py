# /// script
# dependencies = ["singer-sdk[msgspec]==0.54.9", "target-duckdb==0.8.0", "duckdb==2.0.0", "requests==2.34.2"]
# ///
"""Singer: a tap on the Meltano SDK, piped into target-duckdb, so that both run at once.

The SDK's streams ask for one window after the other; this one has its own get_records with requests side by side. Its
messages are encoded by msgspec, records aren't made to conform a second time, and the target flattens to any depth and
loads 100,000 rows at once. Lists are streams of their own, from the same answers, keyed by lead and position.
"""

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from itertools import product
from pathlib import Path

import duckdb
import msgspec
import requests
from requests.adapters import HTTPAdapter
from singer_sdk import Stream, Tap
from singer_sdk.contrib.msgspec import MsgSpecWriter
from singer_sdk.helpers.conform import TypeConformanceLevel

FOLDER = Path(os.environ["LEADS_DATA_DIR"])
BASE_URL = os.environ["LEADS_BASE_URL"]
AT_ONCE = int(os.environ["LEADS_MAX_CONCURRENCY"])
FILE = FOLDER / "leads.duckdb"

# Below which path, of which type, what. A tap has to declare all that it sends.
FIELDS = (
    ("", "string", "id enquiryType message portalLeadId portalBranchId portalCompanyId portalGroupId sourceBranchId"),
    ("", "string", "recipientEmail intent propertyUse consumerSituation consumerPostcode leadSource portalSource"),
    ("", "boolean", "isOverseas organiseViewing requestPropertyDetails"),
    ("contact", "string", "firstName lastName phoneNumber email"),
    ("contact.preferences", "string", "method time"),
    ("searchCriteria", "string", "priceFrequency propertyType propertySubType"),
    ("searchCriteria", "number", "radius minimumPrice maximumPrice"),
    ("searchCriteria", "integer", "minimumBedrooms maximumBedrooms"),
    ("searchCriteria.location", "string", "alias area areaStreet country countryCode countyArea district incode"),
    ("searchCriteria.location", "string", "outcode postTown postalArea region"),
    ("listingDetails", "string", "id branchId lifeCycleStatus propertyId propertyType sourceBranchId sourceId url"),
    ("listingDetails", "integer", "bedrooms bathrooms receptions uprn"),
    ("listingDetails.address", "string", "propertyNumberOrName streetName locality townOrCity postcode countryCode"),
    ("listingDetails.pricing", "string", "transactionType currencyCode rentFrequency"),
    ("listingDetails.pricing", "number", "price"),
    ("listingDetails.estimate", "integer", "lowerRange upperRange value confidence"),
    ("listingDetails.estimate", "string", "confidenceBand"),
)
TYPES: dict[str, dict] = {kind: {"type": ["null", kind]} for kind in ("string", "number", "boolean")}
TYPES["integer"] = {"type": ["null", "integer"], "maximum": 2**63 - 1}  # else the target takes 128 bits
MOMENT = {"type": ["null", "string"], "format": "date-time"}
ELEMENT = {"lead_id": TYPES["string"], "position": TYPES["integer"]}


def lead_schema() -> dict:
    """The fields' JSON schema."""
    schema: dict = {"properties": {"createdAt": MOMENT}}
    for path, kind, names in FIELDS:
        below = schema
        for key in path.split(".") if path else ():
            below = below["properties"].setdefault(key, {"type": ["null", "object"], "properties": {}})
        below["properties"].update(dict.fromkeys(names.split(), TYPES[kind]))
    return schema


class Rows(Stream):
    """One of the tables. The leads come first, by their name too, and leave the others' rows behind."""

    TYPE_CONFORMANCE_LEVEL = TypeConformanceLevel.NONE

    def get_records(self, context: object) -> Iterator[dict]:  # noqa: ARG002
        """The leads as they come, or what they left."""
        if self.name != "leads":
            yield from self._tap.left.pop(self.name)
            return
        for answer in answers():
            for lead in msgspec.json.decode(answer)["applicants"]:
                lead["createdAt"] = naive(lead["createdAt"])
                for time in lead["viewingTimes"] or ():
                    time.update({end: naive(moment) for end, moment in time.items()})
                lists = {
                    "viewing_times": lead.pop("viewingTimes"),
                    "listing_images": lead["listingDetails"].pop("images"),
                }
                for name, elements in lists.items():
                    keys = {"lead_id": lead["id"]}
                    self._tap.left[name] += [{**keys, "position": n, **one} for n, one in enumerate(elements or ())]
                yield lead


def naive(moment: str | None) -> str | None:
    """In UTC, without its zone: with one, the target's COPY takes a file's first row for a header and loses it."""
    return moment and datetime.fromisoformat(moment).astimezone(UTC).replace(tzinfo=None).isoformat()


def answers() -> Iterator[bytes]:
    """Each window's answer, some requested in advance."""
    http = requests.Session()
    http.mount("http://", HTTPAdapter(pool_maxsize=AT_ONCE))
    form = {"grant_type": "client_credentials", "audience": BASE_URL}
    form |= {f"client_{part}": os.environ[f"LEADS_CLIENT_{part.upper()}"] for part in ("id", "secret")}
    token = http.post(f"{BASE_URL}/oauth2/token", data=form, timeout=60)
    token.raise_for_status()
    http.headers["Authorization"] = f"Bearer {token.json()['access_token']}"

    def fetch(day: date, branch: str) -> bytes:
        ends = {"from-time": f"{day}T00:00:00Z", "to-time": f"{day + timedelta(days=1)}T00:00:00Z"}
        response = http.get(f"{BASE_URL}/applicant-leads", params={**ends, "branch-id": branch}, timeout=60)
        response.raise_for_status()
        return response.content

    first, last = (date.fromisoformat(os.environ[f"BENCH_{which}_DAY"]) for which in ("FIRST", "LAST"))
    days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
    asked: deque = deque()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for day, branch in product(days, os.environ["LEADS_BRANCH_IDS"].split(",")):
            asked.append(pool.submit(fetch, day, branch))
            if len(asked) > 4 * AT_ONCE:
                yield asked.popleft().result()
        while asked:
            yield asked.popleft().result()


class Portal(Tap):
    """The tap. The SDK syncs its streams in the order of their names."""

    name = "tap-portal"
    config_jsonschema: dict = {"properties": {}}  # noqa: RUF012
    message_writer_class = MsgSpecWriter

    def discover_streams(self) -> list[Stream]:
        """All three."""
        self.left: dict[str, list] = {"viewing_times": [], "listing_images": []}
        times = {"properties": {**ELEMENT, "earliest": MOMENT, "latest": MOMENT}}
        texts = dict.fromkeys(("original", "cdnUrl", "filename"), TYPES["string"])
        streams = [Rows(self, lead_schema(), "leads")]
        streams += [Rows(self, times, "viewing_times"), Rows(self, {"properties": ELEMENT | texts}, "listing_images")]
        for stream in streams:
            stream.primary_keys = ["id"] if stream.name == "leads" else ["lead_id", "position"]
        return streams


def main() -> None:
    """Both ends of the pipe, then the tables are copied out."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    config = FOLDER / "target.json"
    settings = {"path": str(FILE), "default_target_schema": "main", "data_flattening_max_level": 10}
    config.write_text(json.dumps(settings | {"batch_size_rows": 100_000, "temp_dir": str(FOLDER)}))
    target = [str(Path(sys.executable).parent / "target-duckdb"), "--config", str(config)]
    with subprocess.Popen([sys.executable, __file__, "tap"], stdout=subprocess.PIPE) as tap:
        subprocess.run(target, stdin=tap.stdout, stdout=subprocess.DEVNULL, check=True)
    if tap.returncode:
        sys.exit(f"The tap ended with {tap.returncode}.")
    with duckdb.connect(str(FILE)) as db:
        for table in ("leads", "viewing_times", "listing_images"):
            db.execute(f"copy {table} to '{FOLDER}/{table}.parquet' (format parquet, compression zstd)")


if __name__ == "__main__":
    Portal(config={}).sync_all() if sys.argv[1:] == ["tap"] else main()
