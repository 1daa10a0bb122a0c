"""How both scripts ask: httpx side by side with one token."""

import asyncio
import os
from collections.abc import Callable
from datetime import date, timedelta

import httpx

BASE_URL = os.environ["LEADS_BASE_URL"]
FIRST, LAST = (date.fromisoformat(os.environ[f"BENCH_{which}_DAY"]) for which in ("FIRST", "LAST"))


# Keeps the text of a window's answer.
Keep = Callable[[date, str, bytes], None]


def fetch_all(keep: Keep | None = None) -> list[dict]:
    """All leads of the workload's windows. Leads at midnight come twice.

    With `keep`, which is called in threads, each lead says its scope.
    """
    return asyncio.run(_fetch(FIRST, LAST, os.environ["LEADS_BRANCH_IDS"].split(","), keep))


async def _fetch(first: date, last: date, branches: list[str], keep: Keep | None) -> list[dict]:
    async with httpx.AsyncClient(base_url=BASE_URL, timeout=60) as http:
        form = {
            "grant_type": "client_credentials",
            "client_id": os.environ["LEADS_CLIENT_ID"],
            "client_secret": os.environ["LEADS_CLIENT_SECRET"],
            "audience": BASE_URL,
        }
        token = (
            (await http.post("/oauth2/token", data=form)).raise_for_status().json()["access_token"]
        )
        http.headers["Authorization"] = f"Bearer {token}"
        at_once = asyncio.Semaphore(int(os.environ["LEADS_MAX_CONCURRENCY"]))

        async def window(day: date, branch: str) -> list[dict]:
            ends = {
                "from-time": f"{day}T00:00:00Z",
                "to-time": f"{day + timedelta(days=1)}T00:00:00Z",
            }
            async with at_once:
                response = await http.get("/applicant-leads", params={**ends, "branch-id": branch})
            leads: list[dict] = response.raise_for_status().json()["applicants"]
            if keep:
                await asyncio.to_thread(keep, day, branch, response.content)
                leads = [{**lead, "scope": f"branch-{branch}"} for lead in leads]
            return leads

        days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
        answers = await asyncio.gather(
            *(window(day, branch) for day in days for branch in branches)
        )
    return [lead for answer in answers for lead in answer]
