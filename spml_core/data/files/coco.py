"""Read annotation files in COCO's format: JSON with images, annotations and categories."""

import json
from pathlib import Path

from spml_core import words
from spml_core.data.dataset import DataError
from spml_core.data.files import table

LISTS = ("images", "annotations", "categories")
KEPT = {*LISTS, "id", "image_id", "category_id", "file_name", "name"}


def read(file: Path, form: str) -> tuple[list[tuple[int, str, set[str]]], list[str]]:
    """Return id, file name and category names of each image, and the names of all categories; a crowd is an object.

    Args:
        form: a sentence for the error that says how the file should look.

    Raises:
        DataError: not such a file (names the keys seen), an image id that occurs twice, or annotations of images or
            categories that are not listed.
    """

    def lean(record: dict) -> dict:  # outlines and captions would take gigabytes
        return {key: value for key, value in record.items() if key in KEPT} or dict.fromkeys(record)

    content = None
    try:
        with open(file, encoding="utf-8") as text:
            content = json.load(text, object_hook=lean)
        categories = {entry["id"]: entry["name"] for entry in content["categories"]}
        images = [(entry["id"], entry["file_name"]) for entry in content["images"]]
        objects = [(entry["image_id"], entry["category_id"]) for entry in content["annotations"]]
    except (ValueError, KeyError, TypeError) as error:
        seen = f" Its keys are {words.listed([*content])}." if isinstance(content, dict) else ""
        reason = {KeyError: f"no {error}", TypeError: "not lists of objects"}.get(
            type(error), f"not JSON: {error}"
        )
        raise DataError(f"{file} is not a COCO instances file ({reason}).{seen} {form}") from None
    if (different := len({image for image, _ in images})) < len(images):
        raise DataError(f"{file} lists {len(images)} images, but only {different} different ids")
    present = {image: set() for image, _ in images}
    if lost := [pair for pair in objects if pair[0] not in present or pair[1] not in categories]:
        shown = table.bullets([f"image {image}, category {category}" for image, category in lost])
        raise DataError(
            f"{file}: {words.count(len(lost), 'annotation')} of images or categories that it does not list:{shown}"
        )
    for image, category in objects:
        present[image].add(categories[category])
    return [(image, name, present[image]) for image, name in images], [*categories.values()]
