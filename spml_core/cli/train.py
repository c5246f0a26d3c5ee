"""`spml train`."""

import sys

import click

from spml_core.cli.text import DROP, ROOT, table, values, warned


@click.command()
@click.option(
    "--dataset",
    help="digits (the default), folder, voc2012, coco2014, nuswide, cub200 or openimages (data/README.md).",
)
@click.option("--root", type=click.Path(), help=f"{ROOT} All but digits need it.")
@click.option("data", "-d", "--data", type=(str, str), multiple=True, metavar="NAME VALUE",
              help="Option of the data set, e.g. -d min_images 100; repeatable.")  # fmt: skip
@click.option("methods", "--method", multiple=True, help="Default: gr; repeatable.")
@click.option("params", "-p", "--param", type=(str, str), multiple=True, metavar="NAME VALUE",
              help='Hyperparameter, e.g. -p b "[-2, -8]"; -p gr.b ... is for method gr alone; repeatable.')  # fmt: skip
@click.option("seeds", "--seed", default=[0], show_default=True, type=int, multiple=True, help="Repeatable.")
@click.option("--mode", help="end_to_end, or linear on frozen features (the default for a folder).")
@click.option("--backbone", help="digits_cnn, or a timm model.")
@click.option("--epochs", type=click.IntRange(min=1), help="Default: 10.")
@click.option("--batch-size", type=click.IntRange(min=1), help="Default: 64 digits, 16 folder.")
@click.option("--lr", type=float, help="Learning rate of Adam. Default: 3e-3 digits, 1e-3 folder.")
@click.option(
    "--stop-drop", type=float, help="Stop at this many mAP points below the best epoch; default never."
)
@click.option("--val-labels", type=click.Choice(["clean", "observed"]),
              help="Validation labels that choose the epoch. Default: clean.")  # fmt: skip
@click.option("--drop", type=click.FloatRange(0, 1), metavar="RATIO", help=DROP)
@click.option("--draw-weights", type=click.Choice(["frequency", "inverse_frequency"]),
              help="A single positive, drawn among common or rare classes more often.")  # fmt: skip
@click.option("--manifest", type=click.Path(), help="Labels from a file, see `spml data labels`.")
@click.option("--protocol", metavar="NAME[:DATASET]",
              help="Train as a paper did (role, em, gr, hill, lasd), e.g. gr:voc2012; other options win.")  # fmt: skip
@click.option(
    "--preset", metavar="FILE", help="Train as a YAML file says, e.g. one of spml search; other options win."
)
@click.option("others", "-o", "--set", type=(str, str), multiple=True, metavar="NAME VALUE",
              help="Any other field of an experiment, e.g. -o flip true -o ema 0.9997; repeatable.")  # fmt: skip
@click.option("--explain", is_flag=True, help="Print every effective value, train nothing.")
@click.option("--runs-dir", default="runs", show_default=True, help="Folder of all runs.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True,
              help="Processes, for several experiments.")  # fmt: skip
@click.option("--force", is_flag=True, help="Train again what exists.")
def train(
    methods,
    params,
    seeds,
    data,
    drop,
    draw_weights,
    manifest,
    runs_dir,
    force,
    jobs,
    protocol,
    preset,
    others,
    explain,
    **fields,
):
    """Train experiments, or load those that exist, and print history and test mAP.

    \b
    spml train --method gr -p w "[0, 10]" -p b "[-2, -8]"
    spml train --method an --method gr --seed 0 --seed 1 --seed 2
    spml train --method an --method role -p role.expected_positives 1.5
    spml train --dataset folder --root my_photos --method gr -d min_images 20
    spml train --protocol gr:voc2012 --explain

    A --param goes to every --method, or to the one before its dot. expected_positives may be auto: the mean number of
    true labels of a validation image, which is the default of methods that need it. A folder needs a labels.csv with
    the columns image,split,labels; labels are joined by ";". What was interrupted goes on from its last epoch when it
    is asked for again. On several GPUs: torchrun --nproc-per-node 4 --no-python spml train ...

    Exit code: 0; 1 if images or labels are not as they must be, or a training failed; 2 for wrong usage; 130 if
    interrupted.
    """
    from contextlib import nullcontext

    from spml_core.data import DataError, OptionError
    from spml_core.runs import Experiment, executors, run_all
    from spml_core.train.distributed import rank, world_size

    try:
        fields["observe"] = _observe(drop, draw_weights, manifest)
        given = _fields(protocol, preset, data, others, fields)
        own = {given.pop("method", "gr"): given.pop("params", {})}  # of the preset
        methods = methods or tuple(own)
        chosen = _params(methods, values(params))
        experiments = [
            Experiment(method=method, seed=seed, params=own.get(method, {}) | chosen[method], **given)
            for method in methods
            for seed in seeds
        ]
        if explain:
            for experiment in experiments:
                click.echo(
                    _explained(experiment, protocol, preset, fields | values(others) | {"data": data or None})
                )
            return
        if jobs > 1 and world_size() > 1:
            raise ValueError(
                "--jobs trains several experiments at once, torchrun one on several GPUs: use either"
            )
        with executors.processes(jobs) if jobs > 1 else nullcontext() as executor:
            runs = run_all(experiments, executor, runs_dir, fresh=force)
    except ValueError as error:
        if isinstance(error, DataError) and not isinstance(error, OptionError):
            raise click.ClickException(str(error)) from error
        raise click.UsageError(str(error)) from error
    except (OSError, executors.RunFailures) as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        click.echo("interrupted; the same command goes on from the last finished epoch", err=True)
        sys.exit(130)
    if rank() > 0:
        return
    for run in runs:
        click.echo(f"\n{run.path}")
        click.echo(run.history.round({"train_loss": 4, "val_map": 2, "seconds": 1}).to_string(index=False))
    click.echo(f"\n{_data(runs[0])}\n\n{_results(methods, runs, len(seeds))}")
    if doubts := warned(runs):
        click.echo(f"\n{doubts}")


def _observe(drop, weights, manifest) -> dict | None:
    """`Experiment.observe`; None = what each method asks for."""
    given = {"drop": drop, "weights": weights, "manifest": manifest}
    given = {name: value for name, value in given.items() if value is not None}
    if len(given) > 1:
        raise ValueError("--drop, --draw-weights and --manifest exclude each other")
    return given or None


def _params(names: tuple[str, ...], given: dict) -> dict[str, dict]:
    """method -> its hyperparameters: those that are given to all methods, and its own, as METHOD.NAME."""
    from spml_core import methods

    chosen = {name: {} for name in names}
    for key, value in given.items():
        own, dot, param = key.rpartition(".")
        if dot and own not in chosen:
            raise ValueError(f"-p {key}: {own!r} is none of the methods to train, {', '.join(names)}")
        takers = [own] if dot else [name for name in names if param in methods.defaults(name)]
        if takers and not dot and len(takers) < len(names):
            other = next(name for name in names if name not in takers)
            raise ValueError(
                f"-p {key}: method {other!r} has no such parameter. Give it to one method alone: "
                f"-p {takers[0]}.{key} {value}"
            )
        for name in takers or names:  # without a taker, the method says what it has
            chosen[name][param] = value
    return chosen


def _fields(protocol: str | None, preset: str | None, data, others, fields: dict) -> dict:
    """Of an experiment: what a paper says, below what the preset does, below what the command line does."""
    import dataclasses

    from spml_core import runs, words
    from spml_core.data.labels import PROTOCOLS
    from spml_core.methods import DATASETS
    from spml_core.runs import protocols
    from spml_core.search import space

    given = {name: value for name, value in fields.items() if value is not None}
    known = [f.name for f in dataclasses.fields(runs.Experiment)]
    for name, value in values(others).items():
        if name in ("method", "params", "seed", "data", "root"):
            raise ValueError(
                f"-o {name}: it has an option of its own, --{'param' if name == 'params' else name}"
            )
        if name not in known:
            hint = words.did_you_mean(name, known, 2, 0.6)
            raise ValueError(
                f"-o {name}: no such field. {hint}{' ' * bool(hint)}There are: {', '.join(known)}"
            )
        if given.get(name) is not None:
            raise ValueError(f"{name} is given twice: by its own option and by -o {name}")
        given[name] = value
    base = {} if preset is None else space.read_preset(preset)
    if protocol is not None:
        name, published = _named(protocol)
        if name in PROTOCOLS:
            raise ValueError(
                f"--protocol says how a paper trained; {name!r} is a way of drawing labels: -o protocol {name} (the "
                "published draws: -o protocol cole2021 --seed 1200)"
            )
        protocols.source(name)  # raises if there is no such
        dataset = (base | given).get("dataset", published)
        if dataset in (None, "digits"):
            raise ValueError(
                f"the papers trained on photographs: say on which, as --protocol {name}:voc2012 does "
                f"({', '.join(DATASETS)}), or with --dataset"
            )
        base = {"dataset": dataset} | base
        base = runs.protocol(name, published or (dataset if dataset in DATASETS else None)) | base
    return base | given | {"data": base.get("data", {}) | values(data)}


def _named(protocol: str) -> tuple[str, str | None]:
    name, _, dataset = protocol.partition(":")
    return name, dataset or None


def _explained(experiment, protocol: str | None, preset: str | None, given: dict) -> str:
    """A line for each field: its effective value, and where that is from: `given` is what the command line says."""
    import dataclasses

    from spml_core import data
    from spml_core.runs import Experiment, protocols
    from spml_core.runs.experiment import AUTO
    from spml_core.runs.record import to_json
    from spml_core.search import space
    from spml_core.train import Training, distributed
    from spml_core.train.device import precision_on

    full, plain, rows = experiment.resolved(), Experiment(), []
    published = {}
    if protocol:
        name, dataset = _named(protocol)
        published = protocols.protocol(name, dataset) | ({"dataset": dataset} if dataset else {})
    of_preset = {} if preset is None else space.read_preset(preset)
    settings = [f.name for f in dataclasses.fields(Training)]

    def origin(name: str, asked) -> str:
        if given.get(name) is not None:
            return f"given, and preset {preset}" if name == "data" and "data" in of_preset else "given"
        if name in of_preset and to_json(asked) == to_json(of_preset[name]):
            return f"preset {preset}"
        if asked is None:
            return "default" if getattr(full, name) is None else "default of data set or method"
        if name in published:
            return f"protocol {protocol}"
        return "default" if asked == getattr(plain, name) else "given"

    for name in sorted((f.name for f in dataclasses.fields(full)), key=lambda name: name in settings):
        effective, asked = getattr(full, name), getattr(experiment, name)
        if name == "params":
            chosen = of_preset.get("params", {})
            for k, v in effective.items():
                unchanged = k in asked and k in chosen and to_json(asked[k]) == to_json(chosen[k])
                whence = (
                    f"preset {preset}" if unchanged else "given" if k in asked else "default of the method"
                )
                counted = "; counted on the validation labels" if v == AUTO else ""
                rows.append((f"params.{k}", to_json(v), whence + counted))
            continue
        whence = origin(name, asked)
        if name == "pretrained" and full.mode == "linear":
            whence = "of mode linear: its frozen features are of pretrained weights"
        rows.append((name, to_json(effective), whence))
    device = distributed.fabric(full.accelerator).device
    rows.append(("here", f"{device.type}, {precision_on(device, full.precision)}", "device and precision"))
    said = f"\nprotocol {protocol}: {protocols.source(_named(protocol)[0])}" if protocol else ""
    if full.protocol == "cole2021" and full.observe == (1, 0) and full.seed != 1200:
        said += "\nThe labels that were published for VOC, COCO and CUB are those of --seed 1200."
    options = full.data | ({} if full.root is None else {"root": full.root})
    if needed := data.required_options(full.dataset, options):
        said += f"\nTo train, data set {full.dataset!r} needs --{needed[0]} PATH."
    return f"{table([('field', 'value', 'from'), *rows])}{said}\n"


def _data(run) -> str:
    """What was trained on, so that a surprise is seen: a line, and one for each thing that is odd about it."""
    from spml_core.words import count

    noted = run.summary["data"]
    images = ", ".join(f"{number:,} {split}" for split, number in noted["sizes"].items())
    line = f"{run.config['dataset']}: {images} images; {count(len(run.classes), 'class')}"
    if without := sum(noted.get("images_without_label", {}).values()):
        line += f"; {count(without, 'image')} without a label ({noted['unlabeled']})"
    if dropped := noted.get("classes_dropped"):
        line += f"; {count(dropped, 'class')} below min_images={noted['min_images']} left out"
    source = f"; {noted['inputs']}" if "inputs" in noted else ""
    line = f"{line}{source}; {run.config['backbone']}, {run.config['mode']}."
    if other := noted.get("not_as_published"):
        line += f"\nNot the published {run.config['dataset']}: {other}."
    return line


def _results(methods, runs, num_seeds: int) -> str:
    """A row a method: mAP of the best validation epoch, mean and standard deviation over the seeds."""
    import statistics

    def mean(maps: list) -> str:
        if None in maps:
            return "undefined"
        deviation = f" ± {statistics.stdev(maps):.2f}" if len(maps) > 1 else ""
        return f"{statistics.mean(maps):.2f}{deviation}"

    has_test = "test" in runs[0].summary["data"]["sizes"]
    rows = [("method", "val mAP", *(["test mAP"] if has_test else []), "seeds", "best epochs")]
    for n, method in enumerate(methods):
        own = [run.summary for run in runs[n * num_seeds : (n + 1) * num_seeds]]
        maps = [mean([summary[f"{split}_map"] for summary in own]) for split in ("val", "test")]
        epochs = ",".join(str(summary["best_epoch"]) for summary in own)
        rows.append((method, *maps[: 1 + has_test], str(len(own)), epochs))
    first = runs[0].summary
    lines = [
        table(rows),
        f"AP: {first['definition']}. Epoch chosen on {first['val_labels']} validation labels.",
        *_undefined(runs),
        *([] if has_test else ["No test images: the best val mAP is of the images that chose the epoch."]),
    ]
    return "\n".join(lines)


def _undefined(runs) -> list[str]:
    """A line a split that has classes without positives: they have no AP, and the mAP is the mean of the others."""
    from spml_core.words import count, listed

    lines = []
    for split in ("val", "test"):
        undefined = set().union(*(run.summary[f"{split}_undefined_classes"] or () for run in runs))
        lacking = [name for name in runs[0].classes if name in undefined]
        if lacking:
            have, are = ("has", "is") if len(lacking) == 1 else ("have", "are")
            lines.append(
                f"{split}: {count(len(lacking), 'class')} of {len(runs[0].classes)} {have} no positive, so no AP, and "
                f"{are} not in the mean: {listed(lacking, 20)}."
            )
    return lines
