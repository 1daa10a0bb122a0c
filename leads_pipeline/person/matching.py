"""Whose lead it is: what a row says of its person, held against who is sought.

Belongs here: the identifiers that are sought, what of them a text shows, and which lead falls into which group, without
any input or output. Doesn't: spelling (identity.py), files (privacy/).
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, partial
from typing import Final, Self

from leads_pipeline.errors import QuestionError
from leads_pipeline.person.identity import (
    disguises,
    email_keys,
    mailbox_of,
    name_key,
    national_digits,
    phone_keys,
    plain,
    postcode_key,
    unescaped,
    without_accents,
    without_quoting,
)
from leads_pipeline.person.showing import Evidence, PathAndText, shown_by

# An address or number under more names than this isn't one person's: a household's has two or three, an agency's more.
NAMES_MAX: Final = 3

# A shorter id is a number that stands anywhere: it is looked for in columns of ids alone.
ID_MIN: Final = 8

# A kind's name and a lead's id.
LeadKey = tuple[str, str]

# What is no letter and no digit, in JSON too, where a line ends with a letter.
_ROUGHLY: Final = 8
_STRANGE: Final = re.compile(r"[^\t\n\r\x20-\x7e]+")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_BETWEEN: Final = r"(?:[^0-9A-Za-z]|\\[bfnrt])"

# Escapes in JSON of what a key may have, or of what lies beyond Latin-1. Those of < and & are in every third message.
_ESCAPES: Final = (
    r"\\u(?:00(?:2[bdBDeE]|3[0-9]|[46][0-9a-fA-F]|[57][0-9aA]|[89][0-9a-fA-F]|[aA][08aAdDfF]|[bB][23489aA]|[dD][fF])"
    r"|0[1-9a-fA-F]|[1-9a-fA-F])"
)


class Group(StrEnum):
    """How sure it is that a lead is the person's."""

    GIVEN = "A"
    MAILBOX = "B"
    TELEPHONE = "C"
    MENTION = "D"
    PROPOSED = "P"


MEANINGS: Final[Mapping[Group, str]] = {
    Group.GIVEN: "what was given",
    Group.MAILBOX: "the same mailbox, written with another tag",
    Group.TELEPHONE: "the same telephone under another name, or under none where it is shared, or one that was cut out",
    Group.MENTION: "mentioned in what somebody wrote",
    Group.PROPOSED: "the same name or postcode alone",
}


@dataclass(frozen=True)
class Sought:
    """Who is sought, as keys. With ids alone, nothing but rows of these leads is found."""

    emails: frozenset[str] = frozenset()
    phones: frozenset[str] = frozenset()
    lead_ids: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    postcodes: frozenset[str] = frozenset()
    # Names as they stand in a text, in the order in which they were given.
    spoken: tuple[str, ...] = field(default=(), repr=False)
    # What stands in place of the address, or of the number, in leads whose personal fields were cut out.
    cut_emails: frozenset[str] = frozenset()
    cut_phones: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        emails: Iterable[str] = (),
        phones: Iterable[str] = (),
        lead_ids: Iterable[str] = (),
        names: Iterable[str] = (),
        postcodes: Iterable[str] = (),
    ) -> Self:
        """Read what was given. Raises QuestionError, which doesn't repeat it."""
        names = list(names)
        sought = cls(
            emails=_keys("e-mail address", emails, email_keys),
            phones=_keys("telephone number", phones, phone_keys),
            lead_ids=frozenset(plain(one).strip() for one in lead_ids) - {""},
            names=_keys("name", names, lambda text: _set(name_key(text))),
            postcodes=_keys("British postcode", postcodes, lambda text: _set(postcode_key(text))),
            spoken=tuple(plain(name) for name in names),
        )
        if not any((sought.emails, sought.phones, sought.lead_ids, sought.names, sought.postcodes)):
            raise QuestionError("Nobody is sought: give an e-mail address, a telephone number, a lead id or a name.")
        return sought

    @cached_property
    def mailboxes(self) -> frozenset[str]:
        """The addresses without their tags."""
        return frozenset(map(mailbox_of, self.emails))

    @property
    def ids_alone(self) -> bool:
        """Whether nothing but lead ids is sought."""
        return not (self.emails or self.phones or self.names or self.postcodes)

    @cached_property
    def _seen_pattern(self) -> str:
        """A regular expression that each text matches which shows them, once it is as a reader sees it."""
        return self._pattern_of(partial(_loosely, between=_BETWEEN), "[^@]{0,70}@")

    def _pattern_of(self, loosely: Callable[[str, int], str], domain: str) -> str:
        locals_ = [key.partition("@")[0] for key in self.mailboxes]
        parts = [loosely(local, 6) + domain for local in locals_]
        parts += [loosely(national_digits(key), 9) for key in self.phones]
        parts += [re.escape(address) for address in self.cut_emails | self.cut_phones]
        parts += [re.escape(lead_id) for lead_id in self.lead_ids]
        parts += [re.escape(max(_ascii_words(key), key=len, default=key)) for key in self.names]
        parts += [loosely(key, 3) for key in self.postcodes]
        return f"(?i:{'|'.join(parts)})"

    @cached_property
    def plain_pattern(self) -> str:
        """A regular expression for Python, Arrow and DuckDB: each ASCII text that shows them matches it.

        It is generous: what it finds is looked at more closely (`may_be_in`), then read in full (`evidence`).
        """
        # The case of the rest counts: the sign for Kelvin is a k to whoever ignores it.
        escapes = "" if self.ids_alone else r"|\\u" if self._has_accents else f"|{_ESCAPES}"
        return self._pattern_of(_roughly, "[^@]*@") + escapes

    @property
    def _has_accents(self) -> bool:
        """Whether a letter beyond ASCII may be one of a key's."""
        return bool(self.names) or not all(map(str.isascii, self.emails))

    @cached_property
    def pattern(self) -> str:
        """The same for any text, with the characters that can stand for others. It takes milliseconds to compile."""
        if self.ids_alone:
            return self.plain_pattern
        beyond = r"[^\x00-\x7f]" if self._has_accents else disguises()
        return f"{self.plain_pattern}|{beyond}"

    @cached_property
    def _patterns(self) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
        """Of any text, of one as a reader sees it, and of what could still be a key's there."""
        has_no_ascii = not all(map(_ascii_words, self.names))
        hidden = r"[^\x00-\x7f]" if has_no_ascii else disguises()
        return re.compile(self.pattern), re.compile(self._seen_pattern), re.compile(hidden)

    def may_be_in(self, text: str) -> bool:
        """Whether the text may show them. Most that match the pattern have an emoji, or its escape, and don't."""
        whole, seen_pattern, hidden = self._patterns
        if whole.search(text) is None:
            return False
        if self.ids_alone or seen_pattern.search(text):
            return True
        # As what is no JSON is read, and as what is.
        for seen in {unescaped(text), unescaped(without_quoting(text))}:
            strange = "".join(_STRANGE.findall(seen))
            # A character that neither stands for one of a key's nor goes from between them changes nothing.
            if self._has_accents or hidden.search(strange) or _CONTROL.search(strange):
                seen = plain(seen)
                if hidden.search("".join(_STRANGE.findall(seen))):
                    return True
            if seen_pattern.search(seen):
                return True
            if self._has_accents and seen_pattern.search(without_accents(seen)):
                return True
        return False

    @cached_property
    def _in_text(self) -> re.Pattern[str] | None:
        parts = [_loosely(national_digits(key), 4) + "(?![0-9])" for key in self.phones]
        parts += [rf"(?<![\w-]){re.escape(lead_id)}(?![\w-])" for lead_id in self.lead_ids if len(lead_id) >= ID_MIN]
        # In an address that wasn't given, letters may be a name's by chance: rows of leads aren't judged by it either.
        parts += [
            r"(?<!@)\b" + r"\W{1,3}".join(words) + r"\b(?![\w.+-]*@)"
            for name in self.spoken
            if len(words := _words(name)) > 1
        ]
        return re.compile("|".join(parts), re.IGNORECASE) if parts else None

    def mentions(self, text: str) -> int:
        """How often the text, of which nobody knows the form, shows an address, number, id or whole name."""
        if not self.may_be_in(text):
            return 0
        seen = plain(unescaped(text))
        count = len(self._in_text.findall(seen)) if self._in_text else 0
        return count + sum(mailbox_of(key) in self.mailboxes for key in email_keys(seen) if self.emails)

    def evidence(self, texts: Iterable[PathAndText]) -> Evidence:
        """What a row's texts show."""
        return shown_by(texts, lambda text: self.mentions(text) > 0)

    def sees(self, evidence: Evidence) -> bool:
        """Whether that is a reason to look at the lead."""
        return bool(
            evidence.is_mention
            or self.emails & evidence.emails
            or self.mailboxes & set(map(mailbox_of, evidence.emails))
            or self.phones & evidence.phones
            or (self.cut_emails | self.cut_phones) & evidence.emails
            or self._proposes([evidence])
        )

    def _proposes(self, rows: Sequence[Evidence]) -> bool:
        """Whether a lead has the name and the postcode that are sought, as far as both were given."""
        has_name = any(self.names & row.people for row in rows)
        has_postcode = any(self.postcodes & row.postcodes for row in rows)
        return (has_name or not self.names) and (has_postcode or not self.postcodes) and (has_name or has_postcode)

    def grouped(
        self, evidence: Mapping[LeadKey, Sequence[Evidence]], *, may_be_shared: bool = False
    ) -> dict[LeadKey, Group]:
        """Which group each lead falls into, by all of its versions.

        The same telephone is the person's where a version bears it under their name, or under none and nobody else has
        it. Whose name that is, versions with the given address say, or a given name; without either, a number under two
        names is nobody's for sure.
        Raises QuestionError where what was given is shared by many, unless it may be.
        """
        if not may_be_shared:
            self._refuse_what_is_shared([row for rows in evidence.values() for row in rows])
        names, is_shared = self.names_in(evidence), self.is_shared(evidence)
        groups = {key: self._group(key, rows, names, is_shared=is_shared) for key, rows in evidence.items()}
        return {key: group for key, group in groups.items() if group is not None}

    def is_shared(self, evidence: Mapping[LeadKey, Sequence[Evidence]]) -> bool:
        """Whether somebody of another name has the telephone too: what bears it without a name may be theirs."""
        names = self.names_in(evidence)
        return any(self.phones & row.phones and not row.people <= names for rows in evidence.values() for row in rows)

    def names_in(self, evidence: Mapping[LeadKey, Sequence[Evidence]]) -> frozenset[str]:
        """The names by which the person's leads are told from those of others on the same telephone.

        A lead that the portal gave to somebody else later bears their name as well, which isn't the person's.
        """
        shown = [
            row.people for rows in evidence.values() for row in rows if (self.emails | self.cut_emails) & row.emails
        ]
        of_ids = [
            frozenset[str]().union(*(row.people for row in rows))
            for (_, id_), rows in evidence.items()
            if id_ in self.lead_ids
        ]
        names = self.names.union(*shown, *(people for people in of_ids if len(people) == 1))
        on_phone = frozenset[str]().union(
            *(row.people for rows in evidence.values() for row in rows if self.phones & row.phones)
        )
        return on_phone if not names and len(on_phone) == 1 else names

    def _group(self, key: LeadKey, rows: Sequence[Evidence], names: frozenset[str], *, is_shared: bool) -> Group | None:
        if key[1] in self.lead_ids or any((self.emails | self.cut_emails) & row.emails for row in rows):
            return Group.GIVEN
        mailboxes = {mailbox_of(key) for row in rows for key in row.emails}
        on_phone = [row for row in rows if self.phones & row.phones]
        if any(self._is_own(row, names, is_shared=is_shared) for row in on_phone):
            return Group.GIVEN
        if self.mailboxes & mailboxes:
            return Group.MAILBOX
        # Whose name stood beside a number that was cut out, nobody knows any more.
        if on_phone or any(self.cut_phones & row.emails for row in rows):
            return Group.TELEPHONE
        if any(row.is_mention for row in rows):
            return Group.MENTION
        return Group.PROPOSED if self._proposes(rows) else None

    def _is_own(self, row: Evidence, names: frozenset[str], *, is_shared: bool) -> bool:
        """Whether a version that bears the number is the person's, as the suppression list has it."""
        if row.people:
            return row.people <= names
        return not is_shared and (not self.emails or set(map(mailbox_of, row.emails)) <= self.mailboxes)

    def _refuse_what_is_shared(self, rows: Sequence[Evidence]) -> None:
        people: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for row in rows:
            for what, keys in (("e-mail address", row.emails & self.emails), ("telephone", row.phones & self.phones)):
                for key in keys:
                    people[what, key] |= row.people
        for (what, _), names in people.items():
            if len(names) > NAMES_MAX:
                raise QuestionError(
                    f"The {what} that was given stands on leads of {len(names)} different names: it may be a "
                    "placeholder, an office's or the agency's own, and not one person's. Give something that is theirs "
                    "alone, or say --shared, and look at each lead."
                )
        if any(self.emails & row.recipients for row in rows):
            raise QuestionError(
                "The e-mail address that was given is one at the agent's, which leads are sent to. Give the person's "
                "own, or say --shared, and look at each lead."
            )


def _keys(what: str, given: Iterable[str], read: Callable[[str], frozenset[str]]) -> frozenset[str]:
    keys: set[str] = set()
    for number, text in enumerate(given, 1):
        if not (read_keys := read(text)):
            raise QuestionError(f"The {what} that was given as number {number} is none. Look at how it is written.")
        keys |= read_keys
    return frozenset(keys)


def _set(key: str | None) -> frozenset[str]:
    return frozenset() if key is None else frozenset({key})


def _words(name: str) -> list[str]:
    return [re.escape(word) for word in re.findall(r"[^\W\d_]+", name)]


def _ascii_words(key: str) -> list[str]:
    return [word for word in key.split() if word.isascii()]


def _roughly(text: str, _: int) -> str:
    """The last of them, with however many others between: Arrow compiles it for each file, in a fifth of the time."""
    return f"{_BETWEEN}*".join(re.findall("[0-9A-Za-z]", text)[-_ROUGHLY:])


def _loosely(text: str, most: int, between: str = "[^0-9A-Za-z]") -> str:
    """The text's letters and digits, with up to so many other characters between them."""
    return f"{between}{{0,{most}}}".join(re.findall("[0-9A-Za-z]", text))
