"""A made-up person, and leads that show them."""

from typing import Any

EMAIL, PHONE = "jane.roe@people.example", "07700 900123"


def lead(lead_id: str, *, email: str = "", phone: str = "", name: str = "", **more: Any) -> dict[str, Any]:
    first, _, last = name.partition(" ")
    contact = {"firstName": first, "lastName": last, "phoneNumber": phone, "email": email}
    return {"id": lead_id, "contact": contact, **more}
