"""URLs of storages: parse them, and keep their passwords out of everything that is printed."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote, unquote_plus

import sqlalchemy
import sqlalchemy.exc

from tuner.core.errors import InputError
from tuner.core.text import shown

MASK: Final = "***"

_USERINFO: Final = re.compile(r"(?P<before>(?:[a-zA-Z][\w+.-]*:)?/*[^:@]*:(?!//))(?P<secret>.*)@", re.DOTALL)
"""A user and a password, which lasts until the last @, because it may contain any character."""

_OPTION: Final = re.compile(r"(?P<before>[?&;](?P<name>[^=&;]*)=)(?P<secret>[^&;]*)", re.DOTALL)
_SECRET_NAME: Final = re.compile(r"pass|pwd|secret|token|key|credential", re.IGNORECASE)
_SECRET_VALUE: Final = re.compile(r"(pass\w*|pwd|secret|token)\s*=", re.IGNORECASE)

_MIN_SECRET: Final = 4
"""Characters of the shortest password that is masked inside other words."""


def parse(url: str) -> sqlalchemy.URL:
    """Return the parts of a storage's URL. Raise an `InputError` without its password if it is malformed."""
    if not re.match(r"[a-z][a-z0-9+]*://", url):
        raise InputError(
            f"--storage {shown(masked(url))} is not a URL such as sqlite:///study.db or postgresql://host/name."
        )
    try:
        parts = sqlalchemy.make_url(url)
    except (sqlalchemy.exc.ArgumentError, ValueError):
        raise InputError(
            f"--storage {masked(url)} is malformed: write postgresql://user:password@host:port/name, with a number as "
            "port and special characters of the password escaped (%40 for @, %2F for /)."
        ) from None
    if "@" in (parts.host or ""):
        raise InputError(f"--storage {masked(url)} has more than one @; write %40 for an @ in the user or password.")
    return parts


def masked(url: str) -> str:
    """Return a URL, malformed or not, without its password and without options that may hold one.

    >>> masked("postgresql://me:pa@ss/word@db/studies?sslmode=require&password=x")
    'postgresql://me:***@db/studies?sslmode=require&password=***'
    """
    hidden = _USERINFO.sub(lambda match: f"{match['before']}{MASK}@", url, count=1)
    return _OPTION.sub(lambda match: match["before"] + (MASK if _is_secret(match) else match["secret"]), hidden)


def without_secrets(message: str, url: str) -> str:
    """Return a message of a driver without the secrets of the URL, as they are spelt there or decoded."""
    secrets = {match["secret"] for match in _OPTION.finditer(url) if _is_secret(match)}
    if userinfo := _USERINFO.match(url):
        secrets.add(userinfo["secret"])
    spellings = {spelling for secret in secrets for spelling in (secret, unquote(secret), unquote_plus(secret))}
    for spelling in sorted(spellings, key=len, reverse=True):
        if len(spelling) >= _MIN_SECRET:
            message = message.replace(spelling, MASK)
        elif spelling:
            message = re.sub(rf"(?<!\w){re.escape(spelling)}(?!\w)", MASK, message)
    return message


def _is_secret(option: re.Match[str]) -> bool:
    """Return whether an option of a URL may hold a secret: `password=...`, `options=-c%20password%3D...`."""
    return bool(_SECRET_NAME.search(unquote(option["name"])) or _SECRET_VALUE.search(unquote_plus(option["secret"])))
