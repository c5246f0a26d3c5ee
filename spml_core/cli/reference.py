"""`spml commands`: generate docs/commands.md, the command-line reference, from the help of each command."""

import click

WIDTH = 110
HEAD = """# The command line

The help of every command, as `spml COMMAND --help` prints it. `spml commands > docs/commands.md` generates this page.
"""


@click.command(hidden=True)
@click.pass_context
def commands(context):
    """Print the help of all commands as Markdown."""
    root = context.find_root()
    click.echo("\n".join([HEAD, *_pages(root.command, "spml", None)]), nl=False)


def _pages(command: click.Command, name: str, parent: click.Context | None) -> list[str]:
    """Return a section for the command, then one for each subcommand that is not hidden."""
    settings = command.context_settings | {"terminal_width": WIDTH, "max_content_width": WIDTH}
    context = click.Context(command, info_name=name, parent=parent, **settings)
    full = context.command_path
    pages = [f"## {full}\n\n```\n{command.get_help(context)}\n```\n"]
    for each in getattr(command, "commands", {}).values():
        pages += [] if each.hidden else _pages(each, each.name, context)
    return pages
