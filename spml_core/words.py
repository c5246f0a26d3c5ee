"""Words of reports and messages: numbers with their nouns, and the name that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

SHOWN = 5  # names in a sentence


def count(number: int, noun: str) -> str:
    """`1 image`, `2,000 images`, `3 classes`, `2 copies`."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """Of the nouns that reports use; the last word is what changes."""
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"


def some(number: int, total: int, noun: str, one: str = "is", many: str = "are") -> str:
    """`1 of 28 images is`, `2 of 28 images are`: the verb agrees with the first number, the noun with the second."""
    return f"{number:,} of {count(total, noun)} {one if number == 1 else many}"


def listed(names: Sequence[str], shown: int = SHOWN) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - shown:,} more" if len(names) > shown else ""
    return ", ".join(map(str, names[:shown])) + more


def nearest(name: str, known: Iterable[str], number: int = 3, cutoff: float = 0.3) -> list[str]:
    """The known names that are likely meant; the one alone that differs in case, blanks and hyphens only."""
    known = list(known)
    same = [other for other in known if _plain(other) == _plain(name)]
    if same:
        return same
    by_plain = {_plain(other): other for other in known}
    return [by_plain[near] for near in difflib.get_close_matches(_plain(name), by_plain, number, cutoff)]


def did_you_mean(name: str, known: Iterable[str], number: int = 3, cutoff: float = 0.3) -> str:
    """`did you mean 'gr'?`, or nothing."""
    near = nearest(name, known, number, cutoff)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else ""


def _plain(name: str) -> str:
    return "".join(c for c in str(name).casefold() if c not in " -_")
