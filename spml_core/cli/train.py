"""`spml train`."""

import dataclasses

import click

from spml_core.cli import text
from spml_core.words import count, listed, some


@click.command(cls=text.Command)
@click.option(
    "--dataset",
    help="digits (default), folder, voc2012, coco2014, nuswide, cub200 or openimages (see data/README.md).",
)
@text.root
@text.data
@click.option("--method", multiple=True, help="Method to train, see spml methods. Default: gr; repeatable.")
@text.pairs("params", "-p", "--param",
            help='Set a hyperparameter, e.g. -p b "[-2, -8]"; -p gr.b ... sets it for method gr only')  # fmt: skip
@click.option("--seed", type=int, multiple=True, help="Seed. Default: 0; repeatable.")
@click.option("--mode", help="end_to_end, or linear for a head on frozen features (default for a folder).")
@click.option("--backbone", help="digits_cnn, or a timm model.")
@click.option("--epochs", type=int, help="Default: 10.")
@click.option("--batch-size", type=int, help="Default: 64 for digits, 16 for a folder.")
@click.option("--lr", type=float, help="Learning rate of Adam. Default: 3e-3 for digits, 1e-3 for a folder.")
@text.drop
@click.option(
    "--manifest", type=click.Path(), help="Read observed labels from a file, see `spml data labels`."
)
@click.option("paper", "--protocol", metavar="NAME[:DATASET]",
              help="Train as a paper did (role, em, gr, hill, lasd), e.g. gr:voc2012; other options override "
              "it.")  # fmt: skip
@click.option(
    "--preset",
    metavar="FILE",
    help="YAML file of settings, e.g. from spml search; other options override it.",
)
@text.pairs(
    "others", "-o", "--set", help="Set any other field of an experiment, e.g. -o flip true -o ema 0.9997"
)
@click.option(
    "--log",
    type=click.Choice(["csv", "tensorboard", "wandb", "mlflow"]),
    help="Log each epoch: to RUNS_DIR/logs (csv, tensorboard), or to Weights & Biases or MLflow.",
)
@click.option("--explain", is_flag=True, help="Print every effective value and its origin; train nothing.")
@text.runs_dir
@text.jobs
@click.option("--force", is_flag=True, help="Train existing runs again.")
def train(
    method, params, seed, others, paper, preset, drop, manifest, log, explain, runs_dir, jobs, force, **fields
):
    """Train experiments, or load existing runs, and print their history and test mAP.

    \b
    spml train --method gr -p w "[0, 10]" -p b "[-2, -8]"
    spml train --method an --method gr --seed 0 --seed 1 --seed 2
    spml train --method an --method role -p role.expected_positives 1.5
    spml train --dataset folder --root my_photos --method gr -d min_images 20 -d unlabeled drop
    spml train --protocol gr:voc2012 --explain

    -p NAME applies to every --method, -p METHOD.NAME to one. expected_positives may be auto, the mean number of true
    labels per validation image; this is the default for methods that need it. A folder needs a labels.csv with the
    columns image,split,labels, where labels are joined by ";" (other formats: data/README.md). An interrupted run
    resumes from its last epoch if you run the same command again. On several GPUs:
    torchrun --nproc-per-node 4 --no-python spml train ...

    Exit code: 0; 1 for invalid images or labels, or if training failed; 2 for wrong usage; 130 if interrupted.
    """
    from spml_core.runs import Experiment, run_all
    from spml_core.runs.record import finished
    from spml_core.train.distributed import rank, world_size

    context = click.get_current_context()
    for name in method:
        text.refuse_head(name)
    if taken := others.keys() & context.params.keys():
        option = next(p.opts[-1] for p in context.command.params if p.name == min(taken))
        raise click.UsageError(f"-o {min(taken)}: use {option}, the separate option for it")
    scheme = {name: value for name, value in (("drop", drop), ("manifest", manifest)) if value is not None}
    if len(scheme) + ("observe" in others) > 1:
        raise click.UsageError("--drop, --manifest and -o observe are mutually exclusive")
    others |= {"observe": scheme} if scheme else {}
    given = {name: value for name, value in fields.items() if value is not None} | others
    layers = _layers(given, paper, preset)
    base = _merged(layers)
    own = {base.pop("method", "gr"): base.pop("params", {})}  # of the preset
    given |= {name: values for name, values in {"method": method, "seed": seed}.items() if values}
    methods = tuple(dict.fromkeys(method)) or tuple(own)
    chosen = _params(methods, params)
    experiments = [
        Experiment(method=name, seed=number, params=own.get(name, {}) | chosen[name], **base)
        for name in methods
        for number in dict.fromkeys(seed) or (0,)
    ]
    if explain:
        for experiment in experiments:
            given["params"] = chosen[experiment.method]
            click.echo(_explained(experiment, layers, paper))
        return
    if jobs > 1 and world_size() > 1:
        raise click.UsageError(
            "--jobs trains several experiments at once, torchrun trains one on several GPUs: use only one of them"
        )
    before = {run.path for run in finished(runs_dir)} if log and not force else ()
    with text.executor(jobs) as executor:
        runs = run_all(experiments, executor, runs_dir, fresh=force, log=log)
    if rank() > 0:
        return
    for run in runs:
        click.echo(f"\n{run.path}")
        click.echo(run.history.round({"train_loss": 4, "val_map": 2, "seconds": 1}).to_string(index=False))
    click.echo(f"\n{_data(runs[0])}\n\n{_results(methods, runs)}{text.warned(runs)}")
    if loaded := sum(run.path in before for run in runs):
        click.echo(
            f"{some(loaded, len(runs), 'run')} not logged: loaded, not trained. --force trains existing runs again."
        )


def _layers(given: dict, paper: str | None, preset: str | None) -> dict[str, dict]:
    """Return the given fields of an experiment by their origin, in order of precedence."""
    from spml_core.search import space

    space.check_names(given)
    layers = {"given": given}
    if preset is not None:
        layers[f"preset {preset}"] = space.read_preset(preset)
    if paper is not None:
        layers[f"protocol {paper}"] = _published(paper, _merged(layers).get("dataset"))
    return layers


def _published(paper: str, dataset: str | None) -> dict:
    """Return the settings of a paper, for a data set that is given or named after a colon."""
    from spml_core.data.labels import PROTOCOLS
    from spml_core.methods import DATASETS
    from spml_core.runs import protocols

    name, _, named = paper.partition(":")
    if name in PROTOCOLS:
        raise ValueError(
            f"--protocol is for how a paper trained; to draw labels with {name}, use -o protocol {name}"
        )
    protocols.source(name)  # raises if the name is unknown
    dataset = dataset or named
    if dataset in ("", "digits"):
        raise ValueError(
            f"the papers trained on photographs: name the data set, e.g. --protocol {name}:voc2012 "
            f"({', '.join(DATASETS)}), or give --dataset"
        )
    published = named or (dataset if dataset in DATASETS else None)
    return {"dataset": dataset} | protocols.protocol(name, published)


def _merged(layers: dict[str, dict]) -> dict:
    """Return the effective fields; options of the data set are merged."""
    merged = {}
    for fields in reversed(layers.values()):
        merged |= fields | {"data": merged.get("data", {}) | fields.get("data", {})}
    return merged


def _params(names: tuple[str, ...], given: dict) -> dict[str, dict]:
    """Return the hyperparameters of each method: those given for all, and its own, given as METHOD.NAME."""
    from spml_core import methods

    chosen = {name: {} for name in names}
    for key, value in given.items():
        own, dot, param = key.rpartition(".")
        if dot and own not in chosen:
            raise ValueError(f"-p {key}: {own!r} is not one of the methods to train: {', '.join(names)}")
        takers = [own] if dot else [name for name in names if param in methods.defaults(name)]
        if takers and not dot and len(takers) < len(names):
            other = next(name for name in names if name not in takers)
            raise ValueError(
                f"-p {key}: method {other!r} has no such hyperparameter. Set it for one method only: "
                f"-p {takers[0]}.{key} {value}"
            )
        for name in takers or names:  # if no method has it, each raises an error that lists what it has
            chosen[name][param] = value
    return chosen


def _explained(experiment, layers: dict[str, dict], paper: str | None) -> str:
    """Return one line per field: its effective value and origin."""
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
            places = ["mode linear: frozen features come from pretrained weights"]
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
    """Return a line about the training data, and another if they differ from the published data set."""
    noted = run.summary["data"]
    sizes = ", ".join(f"{number:,} {split}" for split, number in noted["sizes"].items())
    parts = [f"{sizes} images", count(len(run.classes), "class")]
    if without := sum(noted.get("images_without_label", {}).values()):
        parts.append(f"{count(without, 'image')} without a label ({noted['unlabeled']})")
    if dropped := noted.get("classes_dropped"):
        parts.append(f"{count(dropped, 'class')} below min_images={noted['min_images']} left out")
    parts += [noted["inputs"]] if "inputs" in noted else []
    name, other = run.config["dataset"], noted.get("not_as_published")
    line = f"{name}: {'; '.join(parts)}; {run.config['backbone']}, {run.config['mode']}."
    return f"{line}\nNot the published {name}: {other}." if other else line


def _results(methods, runs) -> str:
    """Return one row per method: mAP at the best epoch, mean and standard deviation over the seeds."""
    from spml_core import studies

    first, seeds = runs[0].summary, len(runs) // len(methods)
    splits = [split for split in ("val", "test") if split in first["data"]["sizes"]]
    rows = [("method", *(f"{split} mAP" for split in splits), "seeds", "best epochs")]
    found = {method: runs[n * seeds : (n + 1) * seeds] for n, method in enumerate(methods)}
    for method, own in found.items():
        epochs = ",".join(str(run.summary["best_epoch"]) for run in own)
        rows.append((method, *(text.mean_map(own, split) for split in splits), str(seeds), epochs))
    by = "mAP" if first.get("select", "map") == "map" else f"{first['select']}"
    lines = ["Mean ± standard deviation over the seeds."] if seeds > 1 else []
    if len(methods) > 1 and seeds > 1:
        gains = studies.gains(studies.scores(found), dict.fromkeys(methods[1:], methods[0]))
        rows = [(*row, gain) for row, gain in zip(rows, (f"minus {methods[0]}", *gains), strict=True)]
        lines.append(
            f"Differences of {studies.scored_split(runs[0])} mAP are paired by seed, with 95 % intervals."
        )
    lines += [f"AP: {first['definition']}. Epoch chosen by {by} on {first['val_labels']} validation labels."]
    for split in splits:
        undefined = set().union(*(run.summary[f"{split}_undefined_classes"] or () for run in runs))
        if lacking := [name for name in runs[0].classes if name in undefined]:
            counted = some(len(lacking), len(runs[0].classes), "class", "has", "have")
            why = "no positive, or no label that is known to be absent"
            lines.append(f"{split}: {counted} no AP ({why}): {listed(lacking, 20)}.")
    if "test" not in splits:
        lines.append(
            "No test images: the best validation mAP is measured on the images that chose the epoch."
        )
    return "\n".join([text.table(rows), *lines])
