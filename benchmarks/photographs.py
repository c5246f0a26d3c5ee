"""Test mAP on a folder of real photographs: full-label BCE, AN, WAN, EM and GR on frozen features.

    python -m benchmarks.photographs --root path/to/corel5k

Each method gets a search of 40 trials over the space in benchmarks/spaces; validation mAP of seed 0 decides. The choice
then runs with three seeds, and only its test result is read. A search that was stopped goes on, and one that is
finished is loaded.
"""

import json
import statistics
from pathlib import Path

import click

from spml_core.runs.executors import processes
from spml_core.search import read, search

SPACES = Path(__file__).parent / "spaces"
METHODS = ("bce", "wan", "em", "gr", "an")


@click.command(help=__doc__)
@click.option(
    "--root", required=True, type=click.Path(exists=True, file_okay=False), help="Folder with labels.csv."
)
@click.option("--jobs", default=2, show_default=True, help="Processes.")
@click.option("--runs-dir", default="runs", show_default=True)
def main(root, jobs, runs_dir):
    spaces = [read(SPACES / f"corel5k-{name}.yaml", {"root": str(Path(root).resolve())}) for name in METHODS]
    with processes(jobs) as pool:
        results = [search(space, pool, runs_dir) for space in spaces]
    first = results[0].runs[0]
    sizes = first.summary["data"]["sizes"]
    click.echo(
        f"{len(first.classes)} classes; {sizes} images; validation labels {first.summary['val_labels']}"
    )
    click.echo("| method | test mAP | validation mAP | chosen | trials | of them pruned |")
    click.echo("|---|---|---|---|---|---|")
    for name, found in zip(METHODS, results, strict=True):
        maps = [run.summary["test_map"] for run in found.runs]
        chosen = json.dumps(found.chosen).replace('"', "").strip("{}")
        click.echo(
            f"| {name} | {statistics.mean(maps):.1f} ± {statistics.stdev(maps):.1f} | {found.val_map:.1f} | {chosen} "
            f"| {sum(found.counts.values())} | {found.counts['pruned']} |"
        )


if __name__ == "__main__":
    main()
