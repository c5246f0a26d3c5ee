"""The command-line reference, from the help of each command: `python -m benchmarks.commands > docs/commands.md`."""

import click

from spml_core.cli import main

WIDTH = 110
HEAD = """# The command line

The help of every command, as `spml COMMAND --help` prints it.
`python -m benchmarks.commands > docs/commands.md` writes this page.
"""


def page() -> str:
    """Return the help of all commands as Markdown."""
    return "\n".join([HEAD, *_sections(main, "spml", None)])


def _sections(command: click.Command, name: str, parent: click.Context | None) -> list[str]:
    """Return a section for the command, then those of its subcommands."""
    settings = command.context_settings | {"terminal_width": WIDTH, "max_content_width": WIDTH}
    context = click.Context(command, info_name=name, parent=parent, **settings)
    sections = [f"## {context.command_path}\n\n```\n{command.get_help(context)}\n```\n"]
    for each in getattr(command, "commands", {}).values():
        sections += _sections(each, each.name, context)
    return sections


if __name__ == "__main__":
    print(page(), end="")
