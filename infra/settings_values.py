"""What a setting's value must be beyond its type, and the error that says what was wrong with it and where it stood."""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Iterable

import msgspec

from streams.core.failures import UsageError


class SettingsError(UsageError):
    """A value that is no setting, in one line for a person. `where` is the file and key, the variable or the flag."""

    def __init__(self, where: str, problem: str, *, needed: str = "", came: object = None, remedy: str = "") -> None:
        self.where, self.problem, self.needed, self.came, self.remedy = where, problem, needed, came, remedy
        parts = [f"{where}: {problem}"]
        if needed:
            parts.append(f"needed {needed}, came {show_raw(came)}")
        if remedy:
            parts.append(remedy)
        super().__init__("; ".join(parts))


class Given(msgspec.Struct, frozen=True):
    """One value that somebody set. `name` is dotted (`politeness.delay_ms` or `politeness.delay`)."""

    name: str
    value: object
    where: str  # "--delay", "HEADRACE_POLITENESS__DELAY", "headrace.toml [politeness] delay"


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint that names the most similar of `known`."""
    choices = list(known)
    near = difflib.get_close_matches(word, choices, n=1, cutoff=0.0)
    return f'did you mean "{near[0]}"?' if near else f"known: {', '.join(choices)}"


def show_raw(value: object) -> str:
    """A raw value as it came, cut to a line."""
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 120 else text[:117] + "..."


# RFC 9309 section 2.2.1 allows letters, "_" and "-" in the name that robots.txt groups are matched against.
_USER_AGENT = re.compile(r"([A-Za-z_-]{1,64})(?:/([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}))?(?:\s+\(\+?([!-'*-~]{1,200})\))?")


def user_agent_parts(text: str) -> tuple[str, str, str]:
    """Product token, version and contact of a checked user agent; what it does not carry is empty."""
    match = _USER_AGENT.fullmatch(text)
    assert match is not None, f"unchecked user agent: {text!r}"
    return match.group(1), match.group(2) or "", match.group(3) or ""


def _check_user_agent(text: str, one: Given) -> None:
    if _USER_AGENT.fullmatch(text) is None:
        needed = 'a product token of letters, "_" and "-", such as "MyBot" or "MyBot/1.0 (+https://example.org/bot)"'
        raise SettingsError(one.where, "not a user agent", needed=needed, came=text)


def _check_contact(text: str, one: Given) -> None:
    if re.fullmatch(r"[!-'*-~]{0,200}", text) is None:  # printable ASCII but for space and parentheses
        needed = "a URL or a mail address of at most 200 ASCII characters"
        raise SettingsError(one.where, "not a contact", needed=needed, came=text)


def _check_out(text: str, one: Given) -> None:
    if not text:
        raise SettingsError(one.where, "no output folder", needed="the path of a folder", came=text)


def _check_network(text: str, one: Given) -> None:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        needed = "an address or a network such as 127.0.0.0/8 or fd00::/8"
        raise SettingsError(one.where, "not a network", needed=needed, came=text) from error


def _check_server(text: str, one: Given) -> None:
    if split_server(text) is None:
        raise SettingsError(one.where, "not a DNS server", needed="ADDR, ADDR:PORT or [ADDR]:PORT", came=text)


def _check_resolve(text: str, one: Given) -> None:
    name, _, address = text.partition("=")
    if not name or address.strip("[]") == "" or not _is_address(address.removeprefix("[").removesuffix("]")):
        raise SettingsError(
            one.where, "not a fixed name", needed="NAME=ADDR, such as docs.example=127.0.0.1", came=text
        )


def split_server(text: str) -> tuple[str, int] | None:
    """The address and port (53 when none is given) of `ADDR`, `ADDR:PORT` or `[ADDR]:PORT`; None when it is neither."""
    match = re.fullmatch(r"\[([^\]]+)\](?::([0-9]{1,5}))?|([0-9.]+)(?::([0-9]{1,5}))?|([0-9A-Fa-f:.]+)", text, re.ASCII)
    if match is None:
        return None
    address = match.group(1) or match.group(3) or match.group(5)
    port = int(match.group(2) or match.group(4) or 53)
    return (address, port) if _is_address(address) and 0 < port < 65_536 else None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


TEXT_CHECKS = {"user_agent": _check_user_agent, "contact": _check_contact, "out": _check_out}
ENTRY_CHECKS = {
    "crawl.allow_addresses": _check_network,
    "dns.servers": _check_server,
    "dns.resolve": _check_resolve,
}
