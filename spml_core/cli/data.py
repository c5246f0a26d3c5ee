"""`spml data`: what concerns a data set before anything is trained."""

import click

from spml_core.cli.data_labels import labels


@click.group()
def data():
    """Draw and exchange observed labels."""


data.add_command(labels)
