"""Mask what is secret in a text before it leaves a node.

The control host masks its own environment with it, too, before a fact is made of it. Time is linear in the
length of a text, whatever it holds.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Pattern

MASK = "***"
# What stands behind a word like these, or is kept under it, is nobody else's business. NCCL_IB_PKEY is none.
_SECRET = (
    r"(?:TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|BEARER|AUTHORIZATION"
    r"|(?:API|ACCESS|ACCOUNT|PRIVATE|SHARED|AUTH|SIGNING)[_-]?KEY"
    r"|(?<![A-Za-z])(?:PASS|PWD|AUTH|PSK)(?![A-Za-z]))"
)
# token=…, "password": "…", Authorization: Bearer …, --hf-token …: what follows is masked up to the next
# blank, as there is no separator that a password cannot hold. A colon counts only with a blank or a quote
# beside it: /opt/tokenizers:/opt/lib is a search path.
_GIVEN = (
    "(" + _SECRET + r"""[\w-]{0,40}(?:["']?\s{0,4}=|["']\s{0,4}:|:(?=[\s"']))\s{0,4}"""
    r"(?:(?:Bearer|Basic|Token)\s+)?"
    r"|(?<!\S)--?[\w-]{0,40}?" + _SECRET + r"[\w-]{0,40}\s{1,4}(?!-)"
    r"|\b(?:Bearer|Basic)\s{1,4}(?=[\w+/=.~-]{16}))"
    r"""("[^"]{0,4096}"\S*|'[^']{0,4096}'\S*|\S+)"""
)
# One of these is in whatever `_GIVEN` finds; looking for them first is several times as fast.
_HINTS = ("token", "secret", "pass", "credential", "cookie", "bearer", "basic", "key", "pwd", "auth", "psk")
# How providers write their keys: Hugging Face, GitHub, GitLab, OpenAI and others, Slack, NVIDIA, npm, PyPI,
# AWS, Google, Databricks, JSON web tokens.
_KNOWN = (
    r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{16,}|gh[oprsu]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|sk-(?:[a-z0-9]{2,8}-){0,2}\w{20,}|xox[a-z]-[\w-]{10,}|nvapi-[\w-]{16,}|npm_[A-Za-z0-9]{20,}"
    r"|pypi-[\w-]{16,}|A[KS]IA[A-Z0-9]{16}|AIza[\w-]{30,}|ya29\.[\w-]{16,}|dapi[0-9a-f]{32}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?)"
)
# One of these is in whatever `_KNOWN` finds.
_GITHUB = ("ghp_", "gho_", "ghr_", "ghs_", "ghu_", "github_pat_")
_OTHERS = ("glpat-", "sk-", "xox", "nvapi-", "npm_", "pypi-", "akia", "asia", "aiza", "ya29.", "dapi", "eyj")
_BEGINNINGS = ("hf_", *_GITHUB, *_OTHERS)
_PEM = r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY.*"
# joe:secret@host, and neither /sw/gcc@12/lib:/sw/ucx@1/lib nor host:/path@2
_PLAIN_USER = r"([^\s/:@]+:)(?![/.]).*@"
_PROXIES = frozenset(("http_proxy", "https_proxy", "ftp_proxy", "all_proxy"))


_compiled = {}  # type: dict[str, Pattern[str]]


def _pattern(text: str, flags: str = "") -> "Pattern[str]":
    """Return a compiled pattern. `re` is imported when first needed, which on most nodes is never."""
    if text not in _compiled:
        import re

        _compiled[text] = re.compile("(?%s)%s" % (flags, text) if flags else text)
    return _compiled[text]


def _holds(small: str, words: "tuple[str, ...]") -> bool:
    return any(word in small for word in words)


def is_secret(name: str) -> bool:
    """Say whether a variable of this name holds a secret, whatever its value."""
    return _holds(name.casefold(), _HINTS) and _pattern(_SECRET, "i").search(name) is not None


def masked_variable(name: str, value: str) -> str:
    """Return what may be reported of a variable: ``set``, or its value with what is secret in it masked."""
    if is_secret(name):
        return "set"
    if name.lower() in _PROXIES:
        # Whatever a password holds: curl takes the last @ for the end of it, and needs no scheme.
        scheme, found, _ = value.rpartition("@")[0].partition("://")
        prefix = scheme + found if found and scheme.isalnum() else ""
        value = (prefix + MASK + "@" if "@" in value else "") + value.rpartition("@")[2]
    return masked(value)


def masked(text: str) -> str:
    """Return the text with passwords in URLs, what is given for a secret, and keys of known forms masked."""
    if "@" in text:
        text = "".join(map(_without_user, _pattern(r"(\s+)").split(text)))
    small = text.casefold()
    if _holds(small, _HINTS):
        text = _pattern(_GIVEN, "i").sub(r"\1" + MASK, text)
    if _holds(small, _BEGINNINGS):
        text = _pattern(_KNOWN).sub(MASK, text)
    return _pattern(_PEM, "s").sub(MASK, text) if "PRIVATE KEY" in text else text


def _without_user(word: str) -> str:
    """Return ``scheme://***@host`` of a URL with a user, ``joe:***@host`` where there is no scheme."""
    end = word.rfind("@")
    start = word.find("://", 0, end)
    if start >= 0:
        return word[: start + 3] + MASK + word[end:]
    found = _pattern(_PLAIN_USER).match(word)
    return found.group(1) + MASK + word[end:] if found else word


def masked_in(value: "Any") -> "Any":
    """Return plain data with every string in it masked, keys of objects included."""
    try:
        # Looking once through all of it is several times as fast as looking at each string.
        small = repr(value).casefold()
    except (RecursionError, ValueError):
        return _masked_in(value)
    return _masked_in(value) if "@" in small or _holds(small, _HINTS + _BEGINNINGS) else value


def _masked_in(value: "Any") -> "Any":
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, dict):
        return {_masked_in(key): _masked_in(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_masked_in(item) for item in value]
    return value


def process_name(title: str) -> str:
    """Return the first word of a process's name: a title that it has set may hold its arguments."""
    return masked((title.split() or [""])[0].rstrip(":"))
