"""Miniatures of the benchmark data sets, in their official layouts, written from the formats' public descriptions."""

import csv
import json

import numpy as np
from PIL import Image

from spml_core.data.sets import coco2014, nuswide, voc2012


def picture(path, value=0, size=(12, 8)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value % 256, 2 * value % 256, 7)).save(path)


def write_folder(root, num=40):
    """Write a folder as a data set: `num` pictures with one or two of four labels, in three splits."""
    names, lines = ("bay", "city", "sea", "sky"), ["image,split,labels"]
    for n in range(num):
        picture(root / "images" / f"{n}.jpg", 5 * n)
        labels = sorted({names[n % 4], names[n // 4 % 4]})
        lines.append(f"images/{n}.jpg,{('train', 'train', 'val', 'test')[n // 2 % 4]},{';'.join(labels)}")
    (root / "labels.csv").write_text("\n".join(lines) + "\n")
    return root


def write_voc(root, rows):
    """Write VOC from `rows`: phase -> {image id: {class: 1 or 0}}; all else is -1. One image is in no list."""
    base = root / "VOCdevkit" / "VOC2012"
    lists = base / "ImageSets" / "Main"
    lists.mkdir(parents=True)
    for phase, images in rows.items():
        (lists / f"{phase}.txt").write_text("".join(f"{name}\n" for name in images))
        for column in voc2012.CLASSES:
            lines = [f"{name} {found.get(column, -1):2d}\n" for name, found in images.items()]
            (lists / f"{column}_{phase}.txt").write_text("".join(lines))
        for n, name in enumerate(images):
            picture(base / "JPEGImages" / f"{name}.jpg", n)
    picture(base / "JPEGImages" / "2007_000027.jpg", 99)
    return base


def write_coco(root, rows, crowd=()):
    """`rows`: phase -> {image id: class names}. Category ids have gaps; an object may appear twice."""
    ids = {name: 1 + n + n // 10 for n, name in enumerate(coco2014.CLASSES)}
    (root / "annotations").mkdir(parents=True)
    for phase, images in rows.items():
        listed, objects = [], []
        for image, found in images.items():
            name = f"COCO_{phase}2014_{image:012d}.jpg"
            listed.append({"id": image, "file_name": name, "width": 12, "height": 8, "license": 1})
            for label in found:
                outline = {
                    "segmentation": [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]],
                    "bbox": [1, 2, 3, 4],
                    "area": 4.0,
                }
                number = {"id": len(objects) + 1, "iscrowd": int(image in crowd)}
                objects.append({"image_id": image, "category_id": ids[label]} | outline | number)
            picture(root / f"{phase}2014" / name, image)
        categories = [
            {"supercategory": "x", "id": ids[name], "name": name} for name in reversed(coco2014.CLASSES)
        ]
        content = {
            "info": {},
            "licenses": [],
            "images": listed,
            "annotations": objects,
            "categories": categories,
        }
        (root / "annotations" / f"instances_{phase}2014.json").write_text(json.dumps(content))
    return root


def nus_names(num, start=0):
    return [f"{nuswide.CLASSES[n % 5]}/{n:04d}_{2124494179 + n}.jpg" for n in range(start, start + num)]


def write_nus_arrays(root, train, test, folder="Flickr"):
    """Write the published arrays; `train`, `test`: (N, 81) labels."""
    root.mkdir(parents=True, exist_ok=True)
    names = {"train": nus_names(len(train)), "val": nus_names(len(test), len(train))}
    for phase, table in (("train", train), ("val", test)):
        np.save(root / f"formatted_{phase}_images.npy", np.array(names[phase]))
        np.save(root / f"formatted_{phase}_labels.npy", np.asarray(table, float))
        for n, name in enumerate(names[phase]):
            picture(root / folder / name, n)
    return names


def write_nus_homepage(root, train, test, concepts=nuswide.CLASSES):
    names = {"Train": nus_names(len(train)), "Test": nus_names(len(test), len(train))}
    for folder in ("ImageList", "Groundtruth/TrainTestLabels", "ConceptsList"):
        (root / folder).mkdir(parents=True)
    (root / "ConceptsList" / "Concepts81.txt").write_text("\n".join(concepts) + "\n")
    for split, table in (("Train", train), ("Test", test)):
        lines = [name.replace("/", "\\") + "\r\n" for name in names[split]]  # as the lists are written
        (root / "ImageList" / f"{split}Imagelist.txt").write_text("".join(lines), newline="")
        for c, name in enumerate(concepts):
            file = root / "Groundtruth" / "TrainTestLabels" / f"Labels_{name}_{split}.txt"
            file.write_text("".join(f"{row[c]}\n" for row in table))
        for n, name in enumerate(names[split]):
            picture(root / "Flickr" / name, n)
    return names


def write_nus_list(root, rows):
    """`rows`: (file name, class names, train or val)."""
    root.mkdir(parents=True, exist_ok=True)
    with open(root / "nus_wid_data.csv", "w", newline="") as text:
        writer = csv.writer(text)
        writer.writerow(["filepath", "label", "split_name"])
        for n, (name, found, split) in enumerate(rows):
            writer.writerow([f"images/{name}", str(list(found)), split])
            picture(root / "images" / name, n)
    return root


def write_cub(root, train, present, certainty, ragged=()):
    """Write CUB; `train`: 1 or 0 per image; `present`, `certainty`: (N, 312). Rows in `ragged` get two more fields."""
    base = root / "CUB_200_2011"
    (base / "attributes").mkdir(parents=True)
    names = [f"{1 + n // 2:03d}.Some_Bird/Some_Bird_{n:04d}_{796111 + n}.jpg" for n in range(len(train))]
    (base / "images.txt").write_text("".join(f"{n} {name}\n" for n, name in enumerate(names, 1)))
    (base / "train_test_split.txt").write_text("".join(f"{n} {own}\n" for n, own in enumerate(train, 1)))
    attributes = "".join(f"{a} has_part_{a // 10}::value_({a})\n" for a in range(1, 313))
    (root / "attributes.txt").write_text(attributes)  # beside the folder, as in the archive
    lines = []
    for n in range(len(train)):
        for a in range(312):
            extra = " 0 0" if len(lines) in ragged else ""
            lines.append(f"{n + 1} {a + 1} {present[n][a]} {certainty[n][a]}{extra} {5.5 + a / 1000:.3f}\n")
    (base / "attributes" / "image_attribute_labels.txt").write_text("".join(lines))
    for n, name in enumerate(names):
        picture(base / "images" / name, n)
    return names


def write_open_images(root, rows, machine=(), names=(("/m/01", "Cat"), ("/m/02", "Dog"), ("/m/03", "Tree"))):
    """`rows`: (split, image, label name, confidence), in the files of version 6."""
    root.mkdir(parents=True, exist_ok=True)
    with open(root / "oidv6-class-descriptions.csv", "w", newline="") as text:
        csv.writer(text).writerows([("LabelName", "DisplayName"), *names])
    for kind, content in (("human", rows), ("machine", machine)):
        for split in {row[0] for row in content}:
            file = root / f"oidv6-{split}-annotations-{kind}-imagelabels.csv"
            with open(file, "w", newline="") as text:
                writer = csv.writer(text)
                writer.writerow(["ImageID", "Source", "LabelName", "Confidence"])
                writer.writerows(
                    [image, "verification", *rest] for own, image, *rest in content if own == split
                )
    for n, (split, image) in enumerate(sorted({row[:2] for row in rows})):
        picture(root / split / f"{image}.jpg", n)
    return root
