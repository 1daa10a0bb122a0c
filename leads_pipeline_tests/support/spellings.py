"""What people write into a field: forms of addresses and numbers, alone and among other text."""

from collections.abc import Callable

from hypothesis import strategies as st

INVISIBLE = "\u200b\u200d\u2060\u00ad\ufeff\u200e\u202e\u2066\0\x1b"
LOCAL = st.from_regex(
    r"[a-z][a-z0-9_]{0,8}(?:\.[a-z0-9]{1,6}){0,2}(?:\+[a-z0-9]{1,5})?", fullmatch=True
)
DOMAIN = st.sampled_from(
    ["people.example", "gmail.com", "mail.people.example", "bücher.example", "straße.example"]
)
EMAILS = st.builds("{}@{}".format, LOCAL, DOMAIN)
NATIONAL = st.from_regex(r"(?:7[1-9]|20|1[2-9]|3[0-3]|8[0-7])[0-9]{8}", fullmatch=True)
FULL_WIDTH = str.maketrans(
    "0123456789@abcdefghijklmnopqrstuvwxyz",
    "０１２３４５６７８９＠ａｂｃｄｅｆｇｈｉｊｋｌｍｎｏｐｑｒｓｔｕｖｗｘｙｚ",
)

FORMS_OF_EMAIL: list[Callable[[str], str]] = [
    lambda text: text.replace("ß", "ẞ").upper(),
    str.title,
    lambda text: text.translate(FULL_WIDTH),
    lambda text: f"  <{text}>, ",
    lambda text: f"Jane Doe <mailto:{text}>.",
    lambda text: f"my address is {text} (home)",
    lambda text: INVISIBLE.join(text),
    lambda text: f"\u202e{text}\u202c",
    lambda text: text.replace("bücher", "xn--bcher-kva").replace("straße", "xn--strae-oqa"),
    lambda text: text.replace("@", "+homes@") if "+" not in text else text,
    lambda text: text.replace("@", "%40"),
    lambda text: text.replace("@", "&#64;"),
    lambda text: '"{}"@{}'.format(*text.split("@")),
]
FORMS_OF_PHONE: list[Callable[[str], str]] = [
    lambda digits: f"0{digits}",
    lambda digits: f"+44{digits}",
    lambda digits: f"+44 (0){digits}",
    lambda digits: f"+44(0) {digits[:2]} {digits[2:]}",
    lambda digits: f"0044{digits}",
    lambda digits: f"0044 (0) {digits}",
    lambda digits: f"(0{digits[:4]}) {digits[4:7]}-{digits[7:]}",
    lambda digits: f"0{digits} ext. 12",
    lambda digits: f"0{digits} x7",
    lambda digits: f"0{digits[:4]}_{digits[4:]}",
    lambda digits: f"tel: 0{digits[:3]}.{digits[3:]}",
    lambda digits: f"0{digits} (work)",
    lambda digits: f"0{digits[:4]} {digits[4:]} (eve)",
    lambda digits: f"0{digits} mobile",
    lambda digits: f"please call 0{digits} after 6pm",
    lambda digits: f"0{digits} (WhatsApp)",
    lambda digits: " ".join(f"0{digits}"),
    lambda digits: f"0{digits}".translate(FULL_WIDTH),
    lambda digits: "0" + INVISIBLE.join(digits),
    lambda digits: "٠" + digits.translate(str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")),
]

# An address in the punctuation of many scripts, which is no part of it.
_AROUND = st.sampled_from(
    [
        "“{}”",
        "‘{}’",
        "„{}“",
        "«{}»",
        "‹{}›",
        "「{}」",
        "『{}』",
        "【{}】",
        "《{}》",
        "（{}）",
        "({})",
        "[{}]",
        "<{}>",
        "{}’s flat",
        "{}—call me",
        "{}–or ring",
        "{}…",
        "{}。",
        "{}、",
        "{}！",
        "{}?",
        "¿{}?",
        "{}#x",
        "**{}**",
        "{};",
        "{}: ",
        "{}|",
        "E:{}",
        "me/{}",
        "{}です",
        "メール{}まで",
        "{}।",
        "{}؟",
        "mailto:{}",
        "~{}~",
        "{}-or ring",
    ]
)
FIELDS_WITH_ADDRESS = st.builds(
    lambda around, email: (around.format(email), email), _AROUND, EMAILS
)


# Words, prices, times, bedrooms and a second number, before or after a number.
_BESIDE_NUMBER = [
    "",
    "Jane",
    "mob:",
    "call after",
    "£450,000",
    "£1,200pcm",
    "2 bed",
    "3 bedrooms",
    "Flat 2",
    "SW1A 1AA",
    "9am-5pm",
    "10am",
    "18:30",
    "Mon-Fri 9-5pm",
    "(work)",
    "24/7 please",
    "on 19/11/2026",
    "jane@people.example",
    "no. 7,",
]
_SECOND = st.sampled_from(
    [("", ""), ("07700 900987", "+447700900987"), ("+33 6 12 34 56 78", "+33612345678")]
)
_FORMS_IN_WORDS = [
    lambda digits: f"0{digits}",
    lambda digits: f"0{digits[:4]} {digits[4:]}",
    lambda digits: f"0{digits[:4]} {digits[4:7]} {digits[7:]}",
    lambda digits: f"+44 {digits[:4]} {digits[4:]}",
    lambda digits: f"+44 (0){digits[:4]}-{digits[4:]}",
    lambda digits: f"(0{digits[:4]}) {digits[4:]}",
]


def _field_with_number(
    digits: str, form: Callable[[str], str], before: str, after: str, second: tuple[str, str]
) -> tuple[str, set[str]]:
    text = " ".join(filter(None, [before, form(digits), after, second[0]]))
    return text, {f"+44{digits}", second[1]} - {""}


FIELDS_WITH_NUMBER = st.builds(
    _field_with_number,
    NATIONAL,
    st.sampled_from(_FORMS_IN_WORDS),
    st.sampled_from(_BESIDE_NUMBER),
    st.sampled_from(_BESIDE_NUMBER),
    _SECOND,
)
