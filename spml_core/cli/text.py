"""What the commands share: tables on screen, values from the command line."""


def table(rows: list[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows)
    return "\n".join("  ".join(row).rstrip() for row in cells)


def warnings(runs) -> str:
    """A line for each sign that a training learned nothing."""
    return "\n".join(
        f"warning: {run.path.name}: {text}" for run in runs for text in run.summary.get("warnings", [])
    )


def values(pairs: tuple[tuple[str, str], ...]) -> dict:
    """Command-line text as JSON where it is JSON ("[0, 1]", "1e-4", "false", "null"), else as text."""
    import json

    values = {}
    for name, text in pairs:
        try:
            values[name] = json.loads(text)
        except json.JSONDecodeError:
            values[name] = text
    return values
