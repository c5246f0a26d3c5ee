"""Report everything odd about a data set's files and labels, before anything is trained on them."""

import hashlib
import io
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image
from tqdm.contrib.concurrent import thread_map

from spml_core import words
from spml_core.data.files import decoding, table
from spml_core.data.listing import Listing

LEAK = 0.01  # above this share of val and test images with a copy in another split, the data are wrong, not just odd
PROBLEMS = ("missing", "zero-byte", "truncated", "unreadable")
# Findings about a file: `problem` is one of these, "" for a sound file; `look` is equal if pixels at a small size are.
SEEN = ("problem", "says", "digest", "look", "mode", "form", "width", "height", "rotated", "animated")
# Phrases by which decoders report that a file ends too early.
CUT = ("truncated", "premature end", "unexpected end", "incomplete", "not enough image data", "broken data")


def audit(listing: Listing) -> dict:
    """Read every file of a listing once, decode it, and compare it with the others and with the labels.

    Two files are duplicates if their bytes are equal, or if their size, small decoding and pixels are. Images that the
    loader's options left out are not checked.

    Args:
        listing: from a data set's `read`; its files have not been checked yet.

    Returns:
        The report, in JSON types. Lists of files hold paths, lists about labels hold image ids.

        - ok: true if nothing is wrong; name, classes (their number) and notes of the listing;
        - wrong: sentences about what would stop training or make its results wrong;
        - odd: sentences about what is worth knowing;
        - images: split -> number of rows;
        - problems: "missing", "zero-byte", "truncated", "unreadable" -> lines "path" or "path: message";
        - extra: image files in the data set's folders that no row names;
        - duplicates: groups of [split, path], equal bytes, or else equal pixels;
        - across_splits: the duplicate groups with images from more than one split;
        - unlabeled: split -> ids of images without a positive label;
        - unknown: split -> number of labels whose truth is unknown;
        - lines: id of an image without a label -> its line in the label file (a header is line 1), if it has one;
        - published: split as published -> {"expected": images of the published data set, "here": images listed};
        - similar_classes: groups of class names that probably mean the same class;
        - no_positives, no_negatives: split -> classes without a (known) positive, or negative;
        - modes: colour mode -> number of images; rotated, animated: paths;
        - formats: file format -> number of images;
        - sizes: minimum, median, maximum of width and height, pixels.
    """
    bar = {"desc": f"check {listing.name}", "unit": " images", "leave": False, "disable": None}
    seen = thread_map(look_at, listing.paths, **bar)  # reading and decoding release the interpreter's lock
    files = pd.DataFrame([{"problem": "", "says": ""} | each for each in seen], columns=SEEN)
    files["path"], files["split"] = [*map(str, listing.paths)], listing.splits
    report = {"name": listing.name, "classes": len(listing.classes), "wrong": [], "odd": []}
    report["images"] = {split: len(rows) for split, rows in listing.members().items()}
    _files(report, listing, files)
    _duplicates(report, files)
    _labels(report, listing)
    return {"ok": not report["wrong"]} | report | {"notes": listing.notes}


def look_at(path: Path) -> dict:
    """Read and decode one file, and return the findings of `SEEN`; never raises."""
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        return {"problem": "missing"}
    except OSError as error:
        return {"problem": "unreadable", "says": str(error)}
    if not content:
        return {"problem": "zero-byte"}
    try:
        with Image.open(io.BytesIO(content)) as image:
            seen = {"mode": image.mode, "form": image.format or ""}
            seen["width"], seen["height"] = image.size
            seen["rotated"] = image.getexif().get(0x0112, 1) not in (0, 1)
            seen["animated"] = getattr(image, "n_frames", 1) > 1
            seen["look"] = hashlib.sha256(decoding.small(image).tobytes()).hexdigest()
    except Exception as error:  # every decoder has error types of its own
        cut = isinstance(error, EOFError) or any(text in str(error).lower() for text in CUT)
        problem = "truncated" if cut else "unreadable"
        return {"problem": problem, "says": str(error) or type(error).__name__}
    return seen | {"digest": hashlib.sha256(content).hexdigest()}


def _files(report: dict, listing: Listing, files: pd.DataFrame) -> None:
    said = files.path + (": " + files.says).where(files.says != "", "")
    problems = {kind: said[files.problem == kind].tolist() for kind in PROBLEMS}
    extra = [str(path) for path in listing.extra]
    good, odd = files[files.problem == ""], report["odd"]
    sizes = good[["width", "height"]].quantile([0, 0.5, 1]).round()
    report |= {"problems": problems, "extra": extra}
    report["sizes"] = sizes.astype(int).to_dict("list") if len(good) else {}
    report["modes"], report["formats"] = (good[kind].value_counts().to_dict() for kind in ("mode", "form"))
    report |= {name: good.path[good[name].astype(bool)].tolist() for name in ("rotated", "animated")}
    found = {kind: words.some(len(lines), len(files), "image") for kind, lines in problems.items() if lines}
    report["wrong"] += [f"{counted} {kind}" for kind, counted in found.items()] + listing.problems
    named = {_stem(path) for path in problems["missing"]}
    if like := [path for path in extra if _stem(path) in named]:
        counted = words.count(len(like), "extra file")
        odd.append(
            f"{counted} named like a missing one except for folder, case, blanks, accents or suffix, such as {like[0]}"
        )
    if extra:
        odd.append(f"{words.count(len(extra), 'image file')} in the folders but in no row")
    if left := listing.notes.get("missing_images", {}).get("count"):
        odd.append(f"{words.count(left, 'row')} left out because the file is missing (allow_missing)")


def _stem(path: str) -> str:
    """Return a file's name in a form that is equal on all systems; some store an accent as a separate character."""
    return table.normal(Path(path).stem).casefold()


def _duplicates(report: dict, files: pd.DataFrame) -> None:
    good, look = files[files.problem == ""], ["width", "height", "look"]
    groups = []
    for _, alike in good[good.duplicated(look, keep=False)].groupby(look):
        content = alike.digest
        if content.nunique() > 1:
            content = alike.path.map(_pixels)
        groups += [rows.tolist() for rows in content.groupby(content).groups.values() if len(rows) > 1]
    found = [files.loc[group, ["split", "path"]].values.tolist() for group in sorted(groups)]
    across = [group for group in found if len({split for split, _ in group}) > 1]
    report |= {"duplicates": found, "across_splits": across}
    if groups:
        copies = sum(map(len, groups))
        said = f"{copies:,} images are copies of each other, in {words.count(len(groups), 'group')}"
        report["odd"].append(said)
    if across:
        held_out = sum(split in ("val", "test") for group in across for split, _ in group)
        of = int(files.split.isin(("val", "test")).sum())
        held = words.some(held_out, of, "val and test image", "has", "have")
        text = f"{words.count(len(across), 'group')} across splits: {held} a copy in another split"
        report["wrong" if held_out > LEAK * of else "odd"].append(text)


def _pixels(path: str) -> bytes:
    with Image.open(path) as image:
        return hashlib.sha256(decoding.rgb(image).tobytes()).digest()


def _labels(report: dict, listing: Listing) -> None:
    members, odd, lines = listing.members(), report["odd"], {}
    odd += listing.odd
    unlabeled, unknown, lacking = {}, {}, {"no_positives": {}, "no_negatives": {}}
    report["wrong"] += [f"there are no {split} images" for split in ("train", "val") if split not in members]
    for split, rows in members.items():
        full = listing.full[rows]
        known = np.full(full.shape, True) if listing.known is None else listing.known[rows]
        positives = full.sum(0, dtype=int)
        empty = rows[~full.any(1)]
        unlabeled[split] = [listing.ids[n] for n in empty]
        unknown[split] = int((~known).sum())
        if listing.lines is not None:
            lines |= {listing.ids[n]: listing.lines[n] for n in empty}
        if not positives.any():
            report["wrong"].append(f"no {split} image has a label")
        elif len(empty):
            counted = words.some(len(empty), len(rows), f"{split} image", "has", "have")
            odd.append(f"{counted} no label: {words.listed([listing.where(n) for n in empty])}")
        if unknown[split]:
            odd.append(f"{words.some(unknown[split], known.size, f'{split} label')} unknown")
        one_sided = (positives == known.sum(0)) & (positives > 0)
        for text, mask in (("positive", positives == 0), ("negative", one_sided)):
            names = table.names(mask, listing.classes)
            lacking[f"no_{text}s"][split] = names
            if (text, split) == ("positive", "train"):
                said = listing.notes.get("classes_without_train_positive", ())  # by the listing
                names = [name for name in names if name not in said]
            if names and positives.any():
                odd.append(
                    f"{words.count(len(names), 'class')} without a {text} in {split}: {words.listed(names)}"
                )
    similar = listing.notes.get("similar_classes", [])
    report |= {"unlabeled": unlabeled, "unknown": unknown, "lines": lines, "published": listing.published}
    report |= {"similar_classes": similar} | lacking
