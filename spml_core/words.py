"""Text for reading and writing: numbers with nouns, suggestions for misspelt names, and YAML."""

import difflib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

SHOWN = 5  # names in a sentence


def count(number: int, noun: str) -> str:
    """Return `1 image`, `2,000 images`, `3 classes`, `2 copies`."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """Return the plural of a noun as reports use it; only the last word changes."""
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    sibilant = noun.endswith(("s", "x", "ch", "sh")) and not noun.endswith("epoch")
    return f"{noun}es" if sibilant else f"{noun}s"


def some(number: int, total: int, noun: str, one: str = "is", many: str = "are") -> str:
    """Return `1 of 28 images is`: the verb agrees with the first number, the noun with the second."""
    return f"{number:,} of {count(total, noun)} {one if number == 1 else many}"


def listed(names: Sequence[str], shown: int = SHOWN) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - shown:,} more" if len(names) > shown else ""
    return ", ".join(map(str, names[:shown])) + more


def nearest(name: str, known: Iterable[str], number: int = 3, cutoff: float = 0.3) -> list[str]:
    """Return the known names that were probably meant, at most `number`, by the first rule that finds any.

    1. They differ only in case, blanks and hyphens.
    2. One is short for the other ("lr" for "learning_rate") or a part of it.
    3. Their spelling is similar.
    """
    by_plain = {_plain(other): other for other in known}
    if _plain(name) in by_plain:
        return [by_plain[_plain(name)]]
    parts, short = _parts(name), _initials(name)
    related = [
        other
        for other in by_plain.values()
        if name.lower() in (*_parts(other), _initials(other)) or (len(parts) > 1 and other.lower() == short)
    ]
    near = difflib.get_close_matches(_plain(name), by_plain, number, cutoff)
    return related[:number] or [by_plain[plain] for plain in near]


def did_you_mean(name: str, known: Iterable[str], number: int = 3, cutoff: float = 0.3) -> str:
    """Return `did you mean 'gr'?`, or "" where no name is near."""
    near = nearest(name, known, number, cutoff)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else ""


def check_name(what: str, name: str, known: Iterable[str], kind: type[ValueError] = ValueError) -> None:
    """Raise an error for an unknown name: `unknown method 'grr': did you mean 'gr'? Known: an, em, ...`."""
    if name not in (known := list(known)):
        hint = did_you_mean(str(name), known)
        raise kind(f"unknown {what} {name!r}: {hint}{' ' * bool(hint)}Known: {', '.join(known)}.")


def _plain(name: str) -> str:
    return "".join(_parts(name))


def _parts(name: str) -> list[str]:
    return re.split("[-_ ]+", str(name).casefold())


def _initials(name: str) -> str:
    return "".join(part[:1] for part in _parts(name))


def read_yaml(source: str | Path):
    """Return the content of a YAML text, or of a YAML file if `source` is a Path.

    Numbers such as 1e-4 are read as numbers, as in YAML 1.2; PyYAML follows 1.1, where they are text.

    Raises:
        ValueError: not YAML; names file and line.
    """
    import yaml  # not at the top, since losses and label draws do not need it

    class Loader(yaml.SafeLoader):
        pass

    number = re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$")
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+.0123456789"))
    try:
        return yaml.load(source.read_text(encoding="utf-8") if isinstance(source, Path) else source, Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        reason = getattr(error, "problem", None) or " ".join(str(error).split())
        raise ValueError(f"{source} is not YAML{where}: {reason}") from error
