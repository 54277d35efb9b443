r"""Mask secrets in messages, headers and other text, and leave the rest of it as it is.

A secret is known by its name (``"api_key": "…"``, ``PASSWORD=…``, ``Authorization: …``, ``--token …``), by its place
(``https://user:password@…``) or by its shape (``Bearer …``, the keys of well-known services, signed tokens). A text
without any of these is returned after a few quick searches.

JSON stays JSON, also within strings of JSON, where each quote has 1, 3, 7 or 15 backslashes; the group ``b`` of the
patterns stands for them. No pattern takes more than linear time: what a server says must not keep its recorder busy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256

from mcplumb.recording.word_search import search_for

__all__ = [
    "MASK",
    "StderrMask",
    "is_secret_header",
    "is_secret_name",
    "looks_secret",
    "mask_headers",
    "mask_session_ids",
    "mask_text",
    "may_have_secrets",
]

#: The replacement of a secret.
MASK = "***"

_SECRET_NAME = re.compile(
    r"(?i)pass(?:word|wd|phrase)|secret|credential|(?:api|access|private)[_-]?key|code[_-]?verifier|device[_-]?code|"
    r"(?:^|[_-])(?:pass|pwd|assertion)$|(?:authorization|cookies?)(?:[_-]?(?:header|value|code|jar|\d))?$|"
    r"(?:^|[_-]|access|refresh|bearer|auth|id|session)token$"
)
#: Parts of the names of settings and headers that may be secrets. Most names in messages that have them are harmless.
_SETTING_PARTS = ("key", "token", "secret", "passw", "pwd", "credential", "auth", "cookie", "session")
# Progress and page tokens are no secrets.
_HARMLESS = frozenset(("progresstoken", "pagetoken", "nexttoken"))

#: Parts, in lower case, of every text that has a secret with a name; and those of every text that has a well-known key.
_NAMES = (
    "passw", "passphrase", '"pass', "_pass", "-pass", "pwd", "secret", "credential", "apikey", "api_key", "api-key",
    "accesskey", "access_key", "access-key", "privatekey", "private_key", "private-key", "authorization", "cookie",
    "token", "assertion", "verifier", "device_code", "device-code", "devicecode",
)  # fmt: skip
_KEYS = (
    "sk-", "pk-", "k_live_", "k_test_", "ghp_", "gho_", "ghs_", "ghu_", "ghr_", "github_pat_", "glpat-", "xox", "xapp-",
    "AKIA", "ASIA", "AIza", "ya29.", "npm_", "pypi-", "hf_", "whsec_", "eyJ",
)  # fmt: skip

#: The parts, in lower case, one of which is in every text that has a secret.
_TRACES = (*_NAMES, *map(str.lower, _KEYS), "@", "code=", "bearer", "basic ", "private key")
_has_trace = search_for(_TRACES)

_BACKSLASHES = r"\\{0,15}"
_WORD = (
    r"[A-Za-z0-9_.\- /]{0,60}?(?:pass|pwd|secret|credential|api[_-]?key|access[_-]?key|private[_-]?key|authorization|"
    r"assertion|verifier|device[_-]?code|cookie|token)[A-Za-z0-9_.\- /]{0,60}"
)
# The inside of a JSON string. Before 3.11.5, Python matches possessive quantifiers of groups wrongly.
_STRING = r'(?:[^\\"]++|(?P=b)\\(?:[^\\"]|(?P=b)(?:\\|")))*'
_SPACE = r"(?:\s|\\{1,15}[nrt]){0,20}"
# A member of a JSON object whose name may be secret, and whose value is a string, a number, or a list of such. The end
# of the text ends a string, too: a line may be torn. In an invalid JSON string, the part before the error is masked.
_MEMBER = re.compile(
    rf'(?i)(?P<start>(?P<b>{_BACKSLASHES})"(?P<name>{_WORD})(?P=b)"{_SPACE}:{_SPACE})'
    rf'(?:(?P=b)"(?:(?P<text>{_STRING})(?:(?P=b)"|\\{{0,16}}\Z)|(?P<part>[^\\"]++))|(?P<number>-?\d[\d.e+-]*+)|'
    rf'(?P<list>\[(?:[^][{{}}\\"]++|\\{{1,15}}[nrt]|(?P=b)"{_STRING}(?P=b)")*\]))'
)
# A header or a variable as an object with a name and a value.
_PAIR = re.compile(
    rf'(?i)(?P<start>(?P<b>{_BACKSLASHES})"(?:name|key)(?P=b)"{_SPACE}:{_SPACE}(?P=b)"(?P<name>[^"\\]{{1,80}})'
    rf'(?P=b)"{_SPACE},{_SPACE}(?P=b)"value(?P=b)"{_SPACE}:{_SPACE}(?P=b)")(?P<text>{_STRING})'
)
# The start of an assignment: in a program's source or output with a quoted value; of a variable, or in an address; or
# in a log, if the value looks like no word. In JSON, a quote without backslashes would end the string, and after the
# end of a string within a string comes a comma, a colon or a bracket.
_ASSIGNED = (
    r"(?<![A-Za-z0-9_])(?P<name>[A-Za-z_][\w.-]{{0,60}}+)(?:"
    r"(?P<quoted>(?:\\{{0,15}}')?\s{{0,4}}[:=]\s{{0,4}}{quote})(?=[^\"'\\\s,:\]}}])|"
    r"(?P<equals>=)(?=[^\s\"'\\&;,]{{4}})|"
    r"(?P<colon>\s{{0,4}}:\s{{1,4}})(?=[^\s\"'\\\d]{{0,60}}\d)(?=[^\s\"'\\]{{6}}))"
)
_ASSIGNED_IN_JSON = re.compile(_ASSIGNED.format(quote=r"(?:'|(?<!\\)\\(?:\\\\){0,7}\")"))
_ASSIGNED_IN_TEXT = re.compile(_ASSIGNED.format(quote=r"(?:'|\\{0,15}\")"))
#: What is assigned, by the last group of the start.
_VALUES: dict[str | None, re.Pattern[str]] = {
    "quoted": re.compile(r"[^\"'\\]*"),
    "equals": re.compile(r"[^\s\"'\\&;,]*"),
    "colon": re.compile(r"[^\s\"'\\]*"),
}
# An option and its argument, in a command line or in a list.
_OPTION = re.compile(
    rf"(?P<start>(?<![\w-])--(?P<name>[A-Za-z][\w-]{{0,60}}+)(?:(?P<b>{_BACKSLASHES})\"{_SPACE},{_SPACE}(?P=b)\"|"
    r"\s{1,4}))(?P<text>[^\s\"'\\-][^\s\"'\\]*+)"
)
# A line of the head of an HTTP message, as programs log it.
_HEADER = re.compile(
    r"(?i)(?P<start>(?<![\w-])(?:(?:proxy-)?authorization|(?:set-)?cookie|x-[\w-]{0,40}(?:key|token|secret)|api-key)"
    r"\s{0,4}:\s{0,4}(?:(?:basic|bearer|token|digest|apikey|negotiate)\s{1,4})?)(?P<text>[^\s\"'\\][^\r\n\"'\\]*+)"
)
_HEADERS = ("authorization", "cookie", "api-key", "x-")
# The code that a sign-in gives, in the address or the form that brings it.
_CODE = re.compile(r"(?P<start>(?:\A|[?&])code=)[^\s&\"'\\]{6,}+")
_USER = re.compile(r"(?P<start>:\\?/\\?/)[^\s/\"'\\?#]{1,300}@")
# Both words are followed by other words, too: by the parameters of a challenge, and by those of a sentence.
_SCHEME = re.compile(
    r"\b((?i:bearer)\s{1,8}(?!(?i:auth[a-z]*+|tokens?|schemes?|format|credentials?)(?![\w~+/=-])|[a-z_]{1,40}=\\{0,15}\")|"
    r"(?i:basic)\s{1,8}(?=[a-z]{0,200}[A-Z0-9+/=]))[\w.~+/=-]{6,}+"
)
_KEY = re.compile(
    r"(?<![\w-])(?:[sp]k-[\w-]{16,}|[spr]k_(?:live|test)_\w{10,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|"
    r"glpat-[\w-]{16,}|xox[abeoprs]-[\w-]{10,}|xapp-[\w-]{10,}|A[KS]IA[0-9A-Z]{16}\b|AIza[\w-]{30,}|ya29\.[\w-]{20,}|"
    r"npm_\w{30,}|pypi-[\w-]{16,}|hf_\w{20,}|whsec_\w{16,}|eyJ[\w-]{8,}+\.eyJ[\w-]{8,}+\.[\w-]*)"
)
_PRIVATE_KEY = re.compile(r"(-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----)(?:(?!-----)[^\"'\\]|\\{1,15}[nrt])+")
#: The most lines of a private key: one of 16,384 bits has some 200.
_MAX_KEY_LINES = 250

#: Headers that say how to authenticate, which is no secret.
_CHALLENGES = frozenset(("www-authenticate", "proxy-authenticate", "authentication-info", "proxy-authentication-info"))
_SESSION_ID = re.compile(r"(?i)(?P<start>[?&]session_?id=)(?P<text>[^&#\s]+)")
_HASH_DIGITS = 6


def looks_secret(name: str) -> bool:
    """Return whether a setting of this name may be a secret: a variable, an option or a header."""
    lower = name.lower()
    return any(part in lower for part in _SETTING_PARTS) or is_secret_name(name)


def is_secret_name(name: str) -> bool:
    """Return whether a value of this name is a secret, wherever it is: in a message, too."""
    return _SECRET_NAME.search(name) is not None and name.lower().replace("_", "").replace("-", "") not in _HARMLESS


def may_have_secrets(text: str) -> bool:
    """Return whether `mask_text` has to look at a text. Texts can be asked about together, one on each line."""
    return _has_trace(_without_progress_tokens(text))


def _without_progress_tokens(text: str) -> str:
    """Return a text in lower case. Most messages have no other token than that of their progress."""
    return text.lower().replace("progresstoken", "")


def mask_text(text: str) -> str:
    """Return a message or another text with its secrets masked; the same object if it has none."""
    lower = _without_progress_tokens(text)
    if not _has_trace(lower):
        return text
    found = text
    if "@" in lower:
        found = _USER.sub(rf"\g<start>{MASK}@", found)
    if any(name in lower for name in _NAMES):
        found = _MEMBER.sub(_mask_member, found)
        if "value" in lower:
            found = _PAIR.sub(_mask_named, found)
        is_json = found.lstrip()[:1] in ("{", "[")
        found = _mask_assigned(_ASSIGNED_IN_JSON if is_json else _ASSIGNED_IN_TEXT, found)
        if "--" in lower:
            found = _OPTION.sub(_mask_named, found)
        if any(header in lower for header in _HEADERS):
            found = _HEADER.sub(_mask_value, found)
    if "code=" in lower:
        found = _CODE.sub(_mask_value, found)
    if "bearer" in lower or "basic " in lower:
        found = _SCHEME.sub(rf"\1{MASK}", found)
    if any(key in text for key in _KEYS):
        found = _KEY.sub(MASK, found)
    if "private key" in lower:
        found = _PRIVATE_KEY.sub(rf"\1{MASK}", found)
    return text if found == text else found


def _mask_member(match: re.Match[str]) -> str:
    start, name, quote = match["start"], match["name"], f'{match["b"]}"'
    if match["number"] is not None and name.lower() == "pass":
        return match[0]  # how many tests have passed
    if is_secret_name(name):
        mask = f"{quote}{MASK}{quote if match['part'] is None else ''}"
        return f"{start}{mask}" if match["list"] is None else f"{start}[{mask}]"
    if match["text"] is None:
        return match[0] if match["list"] is None else f"{start}{mask_text(match['list'])}"
    end = match[0][match.end("text") - match.start() :]
    return f"{start}{quote}{mask_text(match['text'])}{end}"


def _mask_named(match: re.Match[str]) -> str:
    return _mask_value(match) if is_secret_name(match["name"]) else match[0]


def _mask_assigned(pattern: re.Pattern[str], text: str) -> str:
    parts: list[str] = []
    kept = at = 0
    while (match := pattern.search(text, at)) is not None:
        at = match.end()  # not that of the value, which may have a secret: "url=https://host/?token=…"
        if is_secret_name(match["name"]) and (value := _VALUES[match.lastgroup].match(text, at)) is not None:
            parts += text[kept:at], MASK
            kept = at = value.end()
    return "".join((*parts, text[kept:]))


def _mask_value(match: re.Match[str]) -> str:
    return f"{match['start']}{MASK}"


class StderrMask:
    """Masks the lines of stderr. Unlike those of traffic, they may be parts of one text: of a private key."""

    def __init__(self) -> None:
        self._key_lines = 0

    def mask(self, line: str) -> str:
        """Return the next line with its secrets masked; the same object if it has none."""
        if self._key_lines:
            self._key_lines = 0 if "-----END" in line else self._key_lines - 1
            return MASK
        _, begin, rest = line.partition("-----BEGIN ")
        if begin and "PRIVATE KEY-----" in rest and "-----END" not in rest:
            self._key_lines = _MAX_KEY_LINES
        return mask_text(line)


def is_secret_header(name: str) -> bool:
    """Return whether the value of this HTTP header is a secret."""
    return looks_secret(name) and name.lower() not in _CHALLENGES


def mask_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Mask the secret values of HTTP headers. Equal values get equal masks, so that a session can be followed."""
    return [
        (name, _hashed(value) if is_secret_header(name) else mask_session_ids(mask_text(value)))
        for name, value in headers
    ]


def mask_session_ids(address: str) -> str:
    """Mask the session's id in an address of HTTP+SSE. Equal ids get equal masks."""
    return _SESSION_ID.sub(lambda match: f"{match['start']}{_hashed(match['text'])}", address)


def _hashed(value: str) -> str:
    return f"{MASK}{sha256(value.encode()).hexdigest()[:_HASH_DIGITS]}"
