"""The command `spml`. Each command imports what it needs when it runs, so that `--help` stays instant."""

from spml_core import __version__, extra

with extra("notebooks"):
    import click

    from spml_core.cli.data import data
    from spml_core.cli.explore import explore
    from spml_core.cli.figures import figures
    from spml_core.cli.methods import methods
    from spml_core.cli.predict import export, predict
    from spml_core.cli.search import search
    from spml_core.cli.text import bars_without_a_width, plain_warnings
    from spml_core.cli.train import train


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="spml")
@click.pass_context
def main(context):
    """Single-positive multi-label learning: draw figures, train and compare methods.

    \b
    spml figures                          run every notebook, write figures/
    spml figures 06 -p seeds "[0]"        run one notebook with one seed
    spml explore                          open the notebooks in JupyterLab; --app: only their panels
    spml train --method gr                train one experiment on digits
    spml train --method an --method gr --seed 0 --seed 1
                                          train four of them, and print a table
    spml predict folder-gr my_photos/images --output predictions.csv
                                          predict the labels of new images
    spml export folder-gr                 export a run's network to ONNX
    spml search digits-gr                 search GR's hyperparameters in 40 trials
    spml methods                          list all methods; spml methods gr describes one
    spml data check voc2012 --root DIR    find missing and faulty images and labels
    spml data labels digits               draw, write and import observed labels
    """
    plain_warnings(context)
    bars_without_a_width()


for command in (figures, explore, train, predict, export, search, methods, data):
    main.add_command(command)
