"""What is odd about a data set's files and labels, before anything is trained on them."""

from __future__ import annotations

import hashlib
import io
import statistics
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from multiprocessing.pool import ThreadPool
from pathlib import Path

import numpy as np
from PIL import Image
from tqdm.auto import tqdm

from spml_core import words
from spml_core.data.dataset import SPLITS
from spml_core.data.files import decoding, table
from spml_core.data.listing import Listing

LEAK = 0.01  # share of the val or test images that may also be train images before results are wrong, not just odd
SPARE = "left out"  # in place of a split: of images that the options took away


@dataclass
class Report:
    """The result of `audit`. Lists of files hold paths, or ids where labels are meant; all of it is JSON.

    Attributes:
        wrong: sentences; training on this would stop or give wrong results.
        odd: sentences; worth knowing.
        images: split -> number of rows.
        problems: "missing", "zero-byte", "truncated", "unreadable" -> lines "path" or "path: what the decoder says".
        extra: image files in the data set's folders that no row names.
        duplicates: groups of [split, path]: equal bytes, or else equal pixels.
        across_splits: those of the groups with images of more than one split.
        unlabeled: split -> ids of images without a positive label.
        lines: id of such an image -> its line in labels.csv (the header is line 1), where there is such a file.
        published: split as published -> {"expected": images of the published data set, "here": images listed}.
        similar_classes: groups of class names that are probably one.
        no_positives, no_negatives: split -> classes without a (known) positive, or negative.
        modes: colour mode -> number of images; rotated, animated: paths.
        formats: file format -> number of images.
        sizes: minimum, median, maximum of width and height, pixels.
    """

    name: str
    classes: int = 0
    wrong: list[str] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    images: dict[str, int] = field(default_factory=dict)
    problems: dict[str, list[str]] = field(default_factory=dict)
    extra: list[str] = field(default_factory=list)
    duplicates: list[list[list[str]]] = field(default_factory=list)
    across_splits: list[list[list[str]]] = field(default_factory=list)
    unlabeled: dict[str, list[str]] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    published: dict[str, dict[str, int]] = field(default_factory=dict)
    similar_classes: list[list[str]] = field(default_factory=list)
    no_positives: dict[str, list[str]] = field(default_factory=dict)
    no_negatives: dict[str, list[str]] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    rotated: list[str] = field(default_factory=list)
    animated: list[str] = field(default_factory=list)
    formats: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, list[int]] = field(default_factory=dict)
    notes: dict = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.wrong

    def as_json(self) -> dict:
        return {"ok": self.ok} | asdict(self)


@dataclass
class _Seen:
    """What one file is. `problem` is a key of `Report.problems`."""

    problem: str = ""
    says: str = ""
    digest: str = ""
    look: str = ""  # of its pixels at a small size: equal pixels look equal
    mode: str = ""
    form: str = ""
    size: tuple[int, int] = (0, 0)
    rotated: bool = False
    animated: bool = False


def audit(listing: Listing) -> Report:
    """Read every file of a listing once, decode it, and compare it with the others and with the labels.

    Equal bytes make two files duplicates; so do equal pixels, for files of the same size whose small decodings agree.
    Images that the loader's options left out are read too, since features are computed for them.

    Args:
        listing: of a data set's `read`, files not looked at yet.
    """
    spare = [path for path in listing.left_out if path.is_file()]
    paths = [*listing.paths, *spare]
    splits = [*listing.splits, *[SPARE] * len(spare)]
    bar = {"desc": f"check {listing.name}", "total": len(paths), "unit": " images"}
    with ThreadPool() as pool:  # reading and decoding leave the interpreter's lock
        seen = list(tqdm(pool.imap(look_at, paths, chunksize=16), **bar, leave=False, disable=None))
    report = Report(listing.name, len(listing.classes), notes=listing.notes)
    report.images = {split: splits.count(split) for split in (*SPLITS, SPARE) if split in splits}
    _files(report, listing, paths, seen)
    _duplicates(report, paths, splits, seen)
    _labels(report, listing)
    return report


def look_at(path: Path) -> _Seen:
    """Read and decode one file; never raises."""
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        return _Seen("missing")
    except OSError as error:
        return _Seen("unreadable", str(error))
    if not content:
        return _Seen("zero-byte")
    seen = _Seen(digest=hashlib.sha256(content).hexdigest())
    try:
        with Image.open(io.BytesIO(content)) as image:
            seen.mode, seen.form, seen.size = image.mode, image.format or "", image.size
            seen.rotated = image.getexif().get(0x0112, 1) not in (0, 1)
            seen.animated = getattr(image, "n_frames", 1) > 1
            seen.look = hashlib.sha256(decoding.small(image).tobytes()).hexdigest()
    except Exception as error:  # of as many types as there are decoders
        seen.problem, seen.says = _kind(error), str(error) or type(error).__name__
    return seen


def _kind(error: Exception) -> str:
    cut = (
        "truncated",
        "premature end",
        "unexpected end",
        "incomplete",
        "not enough image data",
        "broken data",
    )
    text = str(error).lower()
    return "truncated" if isinstance(error, EOFError) or any(words in text for words in cut) else "unreadable"


def _files(report: Report, listing: Listing, paths: list[Path], seen: list[_Seen]) -> None:
    problems = defaultdict(list)
    for path, one in zip(paths, seen, strict=True):
        if one.problem:
            problems[one.problem].append(f"{path}: {one.says}" if one.says else str(path))
    report.problems = {kind: problems[kind] for kind in ("missing", "zero-byte", "truncated", "unreadable")}
    report.extra = [str(path) for path in listing.extra]
    good = [(path, one) for path, one in zip(paths, seen, strict=True) if not one.problem]
    report.modes = dict(Counter(one.mode for _, one in good).most_common())
    report.formats = dict(Counter(one.form for _, one in good).most_common())
    report.rotated = [str(path) for path, one in good if one.rotated]
    report.animated = [str(path) for path, one in good if one.animated]
    for axis, name in enumerate(("width", "height")):
        values = [one.size[axis] for _, one in good]
        report.sizes[name] = [min(values), round(statistics.median(values)), max(values)] if values else []
    for kind, lines in report.problems.items():
        if lines:
            report.wrong.append(f"{words.some(len(lines), len(paths), 'image')} {kind}")
    report.wrong += listing.problems
    if report.problems["missing"] and report.extra:
        named = {_stem(path) for path in report.problems["missing"]}
        like = [path for path in report.extra if _stem(path) in named]
        if like:
            named_like = (
                "file is named like a missing one" if len(like) == 1 else "files are named like missing ones"
            )
            report.odd.append(
                f"{len(like)} extra {named_like} but for folder, case, blanks, accents or suffix, such as {like[0]}"
            )
    if report.extra:
        verb = "is" if len(report.extra) == 1 else "are"
        report.odd.append(
            f"{words.count(len(report.extra), 'image file')} {verb} in the folders but in no row"
        )
    if left := listing.notes.get("missing_images", {}).get("count"):
        was = "row was left out because its" if left == 1 else "rows were left out because their"
        report.odd.append(f"{left:,} {was} file is missing (allow_missing)")


def _stem(path: str) -> str:
    """A file's name without what systems treat differently: some store an accent as a character of its own."""
    return table.normal(Path(path).stem).casefold()


def _duplicates(report: Report, paths: list[Path], splits: list[str], seen: list[_Seen]) -> None:
    by_content, by_look = defaultdict(list), defaultdict(list)
    for n, one in enumerate(seen):
        if not one.problem:
            by_content[one.digest].append(n)
    for group in by_content.values():
        one = seen[group[0]]
        by_look[one.size, one.look].append(group)
    groups = []
    for alike in by_look.values():
        joined = _same_pixels(paths, alike) if len(alike) > 1 else alike
        groups += [group for group in joined if len(group) > 1]
    groups.sort()
    report.duplicates = [[[splits[n], str(paths[n])] for n in group] for group in groups]
    across = [group for group in groups if len({splits[n] for n in group} - {SPARE}) > 1]
    report.across_splits = [[[splits[n], str(paths[n])] for n in group] for group in across]
    if groups:
        copies = sum(map(len, groups))
        report.odd.append(
            f"{copies:,} images are copies of each other, in {words.count(len(groups), 'group')}"
        )
    if across:
        held_out = [n for group in across for n in group if splits[n] in ("val", "test")]
        of = sum(split in ("val", "test") for split in splits)
        lie = "lies" if len(across) == 1 else "lie"
        held = words.some(len(held_out), of, "val and test image", "has", "have")
        text = f"{len(across):,} of the groups {lie} across splits: {held} a copy in another split"
        (report.wrong if len(held_out) > LEAK * of else report.odd).append(text)


def _same_pixels(paths: list[Path], groups: list[list[int]]) -> list[list[int]]:
    """Groups of equal files, joined where their pixels are equal at full size."""
    joined = defaultdict(list)
    for group in groups:
        with Image.open(paths[group[0]]) as image:
            joined[hashlib.sha256(decoding.rgb(image).tobytes()).digest()] += group
    return [sorted(group) for group in joined.values()]


def _labels(report: Report, listing: Listing) -> None:
    splits = np.array(listing.splits)
    report.odd += listing.odd
    report.published = {k: {"expected": whole, "here": n} for k, (n, whole) in listing.published.items()}
    report.similar_classes = listing.notes.get("similar_classes", [])
    for split in SPLITS:
        rows = np.flatnonzero(splits == split)
        if not len(rows):
            if split != "test":
                report.wrong.append(f"there are no {split} images")
            continue
        full = listing.full[rows]
        known = len(rows) if listing.known is None else listing.known[rows].sum(0)
        positives = (full == 1).sum(0)
        empty = rows[~(full == 1).any(1)]
        report.unlabeled[split] = [listing.ids[n] for n in empty]
        if listing.lines is not None:
            report.lines |= {listing.ids[n]: listing.lines[n] for n in empty}
        report.no_positives[split] = [listing.classes[c] for c in np.flatnonzero(positives == 0)]
        report.no_negatives[split] = [
            listing.classes[c] for c in np.flatnonzero((positives == known) & (positives > 0))
        ]
        if not positives.any():
            report.wrong.append(f"no {split} image has a label")
            continue
        if found := len(report.unlabeled[split]):
            report.odd.append(
                f"{words.some(found, len(rows), f'{split} image', 'has', 'have')} no label: "
                f"{words.listed([listing.where(n) for n in empty])}"
            )
        for text, lacking in (("positive", report.no_positives), ("negative", report.no_negatives)):
            classes = lacking[split]
            if classes:
                verb = "has" if len(classes) == 1 else "have"
                found = words.count(len(classes), "class")
                report.odd.append(f"{found} {verb} no {text} in {split}: {words.listed(classes)}")
