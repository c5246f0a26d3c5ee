"""`spml train`."""

import dataclasses

import click

from spml_core.cli import text
from spml_core.words import count, listed


@click.command(cls=text.Command)
@click.option(
    "--dataset",
    help="digits (the default), folder, voc2012, coco2014, nuswide, cub200 or openimages (data/README.md).",
)
@text.root
@text.data
@click.option("--method", multiple=True, help="Default: gr; repeatable.")
@text.pairs("params", "-p", "--param",
            help='Hyperparameter, e.g. -p b "[-2, -8]"; -p gr.b ... is for method gr alone')  # fmt: skip
@click.option("--seed", type=int, multiple=True, help="Default: 0; repeatable.")
@click.option("--mode", help="end_to_end, or linear on frozen features (the default for a folder).")
@click.option("--backbone", help="digits_cnn, or a timm model.")
@click.option("--epochs", type=int, help="Default: 10.")
@click.option("--batch-size", type=int, help="Default: 64 digits, 16 folder.")
@click.option("--lr", type=float, help="Learning rate of Adam. Default: 3e-3 digits, 1e-3 folder.")
@text.drop
@click.option("--manifest", type=click.Path(), help="Labels from a file, see `spml data labels`.")
@click.option("paper", "--protocol", metavar="NAME[:DATASET]",
              help="Train as a paper did (role, em, gr, hill, lasd), e.g. gr:voc2012; other options win.")  # fmt: skip
@click.option(
    "--preset", metavar="FILE", help="Train as a YAML file says, e.g. one of spml search; other options win."
)
@text.pairs("others", "-o", "--set", help="Any other field of an experiment, e.g. -o flip true -o ema 0.9997")
@click.option("--explain", is_flag=True, help="Print every effective value, train nothing.")
@text.runs_dir
@text.jobs
@click.option("--force", is_flag=True, help="Train again what exists.")
def train(
    method, params, seed, others, paper, preset, drop, manifest, explain, runs_dir, jobs, force, **fields
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
    from spml_core.runs import Experiment, run_all
    from spml_core.train.distributed import rank, world_size

    if taken := others.keys() & click.get_current_context().params.keys():
        raise click.UsageError(f"-o {min(taken)}: it has an option of its own")
    scheme = {name: value for name, value in (("drop", drop), ("manifest", manifest)) if value is not None}
    if len(scheme) + ("observe" in others) > 1:
        raise click.UsageError("--drop, --manifest and -o observe exclude each other")
    others |= {"observe": scheme} if scheme else {}
    given = {name: value for name, value in fields.items() if value is not None} | others
    layers = _layers(given, paper, preset)
    base = _merged(layers)
    own = {base.pop("method", "gr"): base.pop("params", {})}  # of the preset
    given |= {name: values for name, values in {"method": method, "seed": seed}.items() if values}
    methods = method or tuple(own)
    chosen = _params(methods, params)
    experiments = [
        Experiment(method=name, seed=number, params=own.get(name, {}) | chosen[name], **base)
        for name in methods
        for number in seed or (0,)
    ]
    if explain:
        for experiment in experiments:
            given["params"] = chosen[experiment.method]
            click.echo(_explained(experiment, layers, paper))
        return
    if jobs > 1 and world_size() > 1:
        raise click.UsageError(
            "--jobs trains several experiments at once, torchrun one on several GPUs: use either"
        )
    with text.executor(jobs) as executor:
        runs = run_all(experiments, executor, runs_dir, fresh=force)
    if rank() > 0:
        return
    for run in runs:
        click.echo(f"\n{run.path}")
        click.echo(run.history.round({"train_loss": 4, "val_map": 2, "seconds": 1}).to_string(index=False))
    click.echo(f"\n{_data(runs[0])}\n\n{_results(methods, runs)}{text.warned(runs)}")


def _layers(given: dict, paper: str | None, preset: str | None) -> dict[str, dict]:
    """Return fields of an experiment by where they are said; the first place that says one counts."""
    from spml_core.search import space

    space.check_names(given)
    layers = {"given": given}
    if preset is not None:
        layers[f"preset {preset}"] = space.read_preset(preset)
    if paper is not None:
        layers[f"protocol {paper}"] = _published(paper, _merged(layers).get("dataset"))
    return layers


def _published(paper: str, dataset: str | None) -> dict:
    """Return how a paper trained, on a data set that is given or named behind a colon."""
    from spml_core.data.labels import PROTOCOLS
    from spml_core.methods import DATASETS
    from spml_core.runs import protocols

    name, _, named = paper.partition(":")
    if name in PROTOCOLS:
        raise ValueError(f"--protocol is how a paper trained; to draw labels like {name}: -o protocol {name}")
    protocols.source(name)  # raises if there is no such
    dataset = dataset or named
    if dataset in ("", "digits"):
        raise ValueError(
            f"the papers trained on photographs: say on which, as --protocol {name}:voc2012 does "
            f"({', '.join(DATASETS)}), or with --dataset"
        )
    published = named or (dataset if dataset in DATASETS else None)
    return {"dataset": dataset} | protocols.protocol(name, published)


def _merged(layers: dict[str, dict]) -> dict:
    """Return the fields that count; options of the data set add up."""
    merged = {}
    for fields in reversed(layers.values()):
        merged |= fields | {"data": merged.get("data", {}) | fields.get("data", {})}
    return merged


def _params(names: tuple[str, ...], given: dict) -> dict[str, dict]:
    """Return the hyperparameters of each method: those that are given to all, and its own, as METHOD.NAME."""
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


def _explained(experiment, layers: dict[str, dict], paper: str | None) -> str:
    """Return a line for each field: its effective value, and where that is from."""
    from spml_core import data
    from spml_core.runs import protocols
    from spml_core.runs.experiment import AUTO
    from spml_core.runs.record import to_json
    from spml_core.train import distributed
    from spml_core.train.device import precision_on

    full, rows = experiment.resolved(), [("field", "value", "from")]
    for key, value in full.params.items():
        places = [p for p, its in layers.items() if key in its.get("params", {}) and key in experiment.params]
        counted = "; counted on the validation labels" if value == AUTO else ""
        rows.append((f"params.{key}", to_json(value), (places or ["default of the method"])[0] + counted))
    for name in sorted(field.name for field in dataclasses.fields(full) if field.name != "params"):
        value, asked = getattr(full, name), getattr(experiment, name)
        places = [place for place, fields in layers.items() if fields.get(name) not in (None, {})]
        if name == "pretrained" and full.mode == "linear":
            places = ["of mode linear: its frozen features are of pretrained weights"]
        default = "default of data set or method" if asked is None and value is not None else "default"
        where = " and ".join(places if name == "data" else places[:1]) or default
        rows.append((name, to_json(value), where))
    device = distributed.fabric(full.accelerator).device
    rows.append(("here", f"{device.type}, {precision_on(device, full.precision)}", "device and precision"))
    notes = [] if paper is None else [f"protocol {paper}: {protocols.source(paper.partition(':')[0])}"]
    options = full.data | ({} if full.root is None else {"root": full.root})
    if needed := data.required_options(full.dataset, options):
        notes.append(f"To train, data set {full.dataset!r} needs --{needed[0]} PATH.")
    return "\n".join([text.table(rows), *notes, ""])


def _data(run) -> str:
    """Return what was trained on, so that a surprise is seen: a line, and one where it is not as published."""
    noted = run.summary["data"]
    parts = [
        ", ".join(f"{number:,} {split}" for split, number in noted["sizes"].items()) + " images",
        count(len(run.classes), "class"),
    ]
    if without := sum(noted.get("images_without_label", {}).values()):
        parts.append(f"{count(without, 'image')} without a label ({noted['unlabeled']})")
    if dropped := noted.get("classes_dropped"):
        parts.append(f"{count(dropped, 'class')} below min_images={noted['min_images']} left out")
    parts += [noted["inputs"]] if "inputs" in noted else []
    name, other = run.config["dataset"], noted.get("not_as_published")
    line = f"{name}: {'; '.join(parts)}; {run.config['backbone']}, {run.config['mode']}."
    return f"{line}\nNot the published {name}: {other}." if other else line


def _results(methods, runs) -> str:
    """Return a row per method: mAP of the best validation epoch, mean and standard deviation over the seeds."""
    first, seeds = runs[0].summary, len(runs) // len(methods)
    splits = [split for split in ("val", "test") if split in first["data"]["sizes"]]
    rows = [("method", *(f"{split} mAP" for split in splits), "seeds", "best epochs")]
    for n, method in enumerate(methods):
        own = runs[n * seeds : (n + 1) * seeds]
        epochs = ",".join(str(run.summary["best_epoch"]) for run in own)
        rows.append((method, *(text.mean_map(own, split) for split in splits), str(seeds), epochs))
    lines = [f"AP: {first['definition']}. Epoch chosen on {first['val_labels']} validation labels."]
    for split in splits:
        undefined = set().union(*(run.summary[f"{split}_undefined_classes"] or () for run in runs))
        if lacking := [name for name in runs[0].classes if name in undefined]:
            have, are = ("has", "is") if len(lacking) == 1 else ("have", "are")
            lines.append(
                f"{split}: {count(len(lacking), 'class')} of {len(runs[0].classes)} {have} no positive, so no AP, and "
                f"{are} not in the mean: {listed(lacking, 20)}."
            )
    if "test" not in splits:
        lines.append("No test images: the best val mAP is of the images that chose the epoch.")
    return "\n".join([text.table(rows), *lines])
