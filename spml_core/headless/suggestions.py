"""The page on which an annotator answers the suggestions of `spml data suggest`, and its CSV file.

The page opens from disk: thumbnails and the answers' script are in the one file.
"""

import base64
import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from spml_core.headless.gallery import render
from spml_core.paths import write_whole


def write(
    file: Path,
    table: pd.DataFrame,
    others: Sequence[str],
    pictures: Sequence[np.ndarray],
    run: str,
    command: str,
) -> Path:
    """Write FILE.csv and the page FILE.html beside it, and return the page's path.

    Args:
        file: the CSV file.
        table: one row per suggestion: kind, image, class, observed, probability and present, which is empty.
        others: for each suggestion, what else is known about its image: the labels observed as positive.
        pictures: for each suggestion (height, width) or (height, width, 3) uint8.
        run: name of the run that the suggestions come from.
        command: what merges the answers.
    """
    text = table.to_csv(index=False)
    cards = table.assign(number=range(len(table)), others=others, picture=[*map(data_uri, pictures)])
    cards = cards.rename(columns={"class": "label"}).to_dict("records")
    rows = list(csv.reader(io.StringIO(text)))
    page = render(
        "suggestions", cards=cards, rows=rows, run=run, name=file.name, key=str(file), command=command
    )
    write_whole(file, text)
    write_whole(file.with_suffix(".html"), page)
    return file.with_suffix(".html")


def data_uri(picture: np.ndarray) -> str:
    """Return an image as the text of a link, which contains the image itself as JPEG."""
    packed = io.BytesIO()
    Image.fromarray(picture).save(packed, "JPEG", quality=85)
    return f"data:image/jpeg;base64,{base64.b64encode(packed.getvalue()).decode()}"
