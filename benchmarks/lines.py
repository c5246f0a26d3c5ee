"""Count lines of code by room: `python -m benchmarks.lines [FOLDER]`, without comments, docstrings and blank lines."""

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip


def code_lines(source: str) -> int:
    """Return the number of lines that hold code."""
    lines, docstrings = set(), set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if documented and ast.get_docstring(node) is not None:
            docstrings.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(lines - docstrings)


def by_room(folder: Path) -> Counter:
    """Return the code lines of each subfolder, and of each module at the top."""
    counts = Counter()
    for file in sorted(folder.rglob("*.py")):
        counts[file.relative_to(folder).parts[0]] += code_lines(file.read_text(encoding="utf-8"))
    return counts


def main():
    counts = by_room(Path(sys.argv[1] if len(sys.argv) > 1 else "spml_core"))
    for room, lines in counts.items():
        print(f"{lines:7,}  {room}")
    print(f"{sum(counts.values()):7,}  in all")


if __name__ == "__main__":
    main()
