"""`Panel`: controls, and one figure that follows them. Also the parts that panels share.

class Mine(Panel):
    def __init__(self):
        fig, ax = figures.detached(width="column")
        (self.line,) = ax.plot(x, x)
        self.moves(self.line)
        self.power = widgets.FloatSlider(1.0, min=0, max=3, description="power")
        super().__init__(fig, [self.power])
        self.follow(self.power)

    def update(self):
        self.line.set_ydata(x**self.power.value)
"""

import base64
import html
import io
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from decimal import Decimal

import ipywidgets as widgets
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imsave
from matplotlib.ticker import MaxNLocator

from spml_core import figures
from spml_core.analysis import or_undefined

DPI = 110  # of the screen
WIDE = {"style": {"description_width": "14em"}, "layout": {"width": "31em"}}  # names are spelled out
LEGEND = {  # above the axes
    "loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2, "columnspacing": 0.9, "handlelength": 1.4,
    "handletextpad": 0.5, "fontsize": "small",
}  # fmt: skip


class Panel(widgets.VBox):
    """Controls beside a figure; a subclass says in `update` how the figure follows them.

    The figure belongs to the panel alone (`figures.detached`) and is sent as a PNG. For speed, only a part of it is
    drawn at each change: the artists that move (`moves`) or are replaced (`drawn_anew`), over a stored background.
    A browser sends the next value of a slider only after the last one has been answered, and skips the values between.
    So every value that arrives is drawn immediately.

    An exception in a callback is shown in red below the figure and raised again: the frontend shows it, and a headless
    run fails. Headless runs, and pages without widgets, show the picture.

    Attributes:
        fig: the figure, with its canvas.
    """

    def __init__(self, fig: Figure, controls: Iterable[widgets.Widget], below: Iterable[widgets.Widget] = ()):
        self.fig, self._held, self._drawn = fig, False, []
        FigureCanvasAgg(fig)
        fig.set_dpi(DPI)
        self.picture = widgets.Image(format="png", layout=widgets.Layout(width="100%"))
        self.trouble = widgets.HTML()
        left = widgets.VBox([*controls], layout=widgets.Layout(flex="0 0 auto"))
        right = widgets.VBox(
            [self.picture, self.trouble, *below], layout=widgets.Layout(flex="1 1 30em", max_width="60em")
        )
        super().__init__([widgets.HBox([left, right], layout=widgets.Layout(flex_flow="row wrap"))])
        self.add_class("spml-panel")

    def update(self) -> None:
        """Update `fig` from the values of the controls."""
        raise NotImplementedError

    def follow(self, *inputs: widgets.Widget) -> None:
        """Redraw now, and whenever the value of one of these widgets changes."""
        for widget in inputs:
            widget.observe(self.redraw, "value")
        self.redraw()

    def button(self, text: str, action: Callable[[], None]) -> widgets.Button:
        """Return a button that runs `action`; errors are shown like those of `update`."""

        def clicked(_):
            with self.errors_shown():
                action()

        button = widgets.Button(description=text)
        button.on_click(clicked)
        return button

    def redraw(self, _=None) -> None:
        """Update and redraw the figure, unless inside `at_once`."""
        if self._held:
            return
        with self.errors_shown():
            self.update()
            self.picture.value = self.png()

    def lay_out_anew(self) -> None:
        """Lay out the axes again at the next redraw; call it when the axes are cleared."""
        self.fig.set_layout_engine("constrained")
        self.fig.stale, self._drawn = True, []

    @contextmanager
    def at_once(self):
        """Make several changes inside, followed by one redraw."""
        self._held = True
        try:
            with self.errors_shown():
                yield
        finally:
            self._held = False
        self.redraw()

    @contextmanager
    def errors_shown(self):
        """Show an exception of the block in the panel, and raise it again."""
        try:
            yield
        except Exception as error:
            self.trouble.value = alert(error)
            raise
        self.trouble.value = ""

    def moves(self, *artists: Artist) -> None:
        """Declare artists that `update` moves; as long as nothing else changes, only these are redrawn."""
        for artist in artists:
            artist.set_animated(True)

    @contextmanager
    def drawn_anew(self, *axes: Axes):
        """Replace all artists that were added to these axes inside the last such block; their limits must be fixed."""
        stale = self.fig.stale
        for artist in self._drawn:
            artist.remove()
        for ax in axes:
            ax.containers.clear()
        background = {artist for ax in axes for artist in ax.get_children()}
        try:
            yield
        finally:
            self._drawn = [artist for ax in axes for artist in ax.get_children() if artist not in background]
            self.moves(*self._drawn)
            self.fig.stale = stale

    def png(self) -> bytes:
        """Return the current figure as a PNG."""
        canvas = self.fig.canvas
        if self.fig.stale:  # an artist that moves does not make its figure stale
            canvas.draw()
            self.fig.set_layout_engine("none")  # the axes stay where they are, and a draw takes half the time
            self.fig.stale = False
            self._still = canvas.copy_from_bbox(self.fig.bbox)
        canvas.restore_region(self._still)
        for artist in sorted(self.fig.findobj(Artist.get_animated), key=Artist.get_zorder):
            artist.axes.draw_artist(artist)
        file = io.BytesIO()
        imsave(file, canvas.buffer_rgba(), format="png", pil_kwargs={"compress_level": 1})
        return file.getvalue()

    def _repr_mimebundle_(self, **options):
        """Return the widget, and its picture for a page without widgets."""
        bundle = super()._repr_mimebundle_(**options)
        return bundle | {"image/png": base64.b64encode(self.picture.value).decode()}


def make_room(ax: Axes, values: np.ndarray) -> None:
    """Extend the y-axis to these values; it never shrinks, so that curves can be compared while a slider moves."""
    low, high = ax.get_ylim()
    if np.nanmin(values) < low or np.nanmax(values) > high:
        ends = min(low, np.nanmin(values)), max(high, np.nanmax(values))
        ax.set_ylim(MaxNLocator(6).tick_values(*ends)[[0, -1]])


def slider(name: str, value: float, low: float, high: float, step: float):
    """Return a slider, for integers if `step` is an int. It redraws while it is dragged, and on arrow keys."""
    options = {"min": low, "max": high, "step": step, "description": name, **WIDE}
    if isinstance(step, int):
        return widgets.IntSlider(value, **options)
    return widgets.FloatSlider(value, readout_format=f".{decimals(step)}f", **options)


def decimals(step: float) -> int:
    """Return how many digits after the point a slider with this step shows."""
    return max(0, -Decimal(f"{step:g}").as_tuple().exponent)


def number(control: widgets.Widget):
    """Return the value of a control as displayed: a browser adds up steps, and sends -2.0000000000000018 for -2."""
    if isinstance(control, widgets.FloatSlider):
        return round(control.value, decimals(control.step)) + 0.0  # no -0.0
    return control.value


def choice(name: str, options: Iterable, value=None) -> widgets.Dropdown:
    """Return a dropdown of values, or of (label, value) pairs, with `value` or the first one selected.

    Raises:
        ValueError: `value` is not one of them.
    """
    pairs = [one if isinstance(one, tuple) else (str(one), one) for one in options]
    values = [known for _, known in pairs]
    if value is None:
        value = values[0]
    if value not in values:
        raise ValueError(f"unknown value {value!r} for {name!r}: use one of {', '.join(map(str, values))}")
    return widgets.Dropdown(options=pairs, value=value, description=name, **WIDE)


def offer(dropdown: widgets.Dropdown, options: Iterable[tuple[str, object]]) -> None:
    """Replace the (label, value) pairs of a dropdown; the selection is kept if possible, else it is the first pair."""
    options, before = [*options], dropdown.value
    if options != [*dropdown.options]:
        dropdown.options = options
        values = [value for _, value in options]
        dropdown.value = before if before in values else values[0]


def colors(methods: Sequence[str]) -> list[str]:
    """Return the colours of one or two methods; grey for the second of two that would look alike."""
    found = [figures.color(method) for method in methods]
    return [*dict.fromkeys(found), "0.5"][: len(found)]


def alert(error: Exception) -> str:
    """Return an error as HTML."""
    text = html.escape(f"{type(error).__name__}: {error}")
    return f'<pre role="alert" style="color: #b00020; white-space: pre-wrap">{text}</pre>'


def table(note: str, heads: Iterable[tuple[str, str]], rows: Iterable[Iterable]) -> str:
    """Return a table as HTML, with a note.

    Args:
        heads: (kind, heading) of each column; the kind is the `data-value` of its cells.
        rows: of texts and numbers. A number is shown with four decimals, and with eight in its tooltip. A pair
            (number, n) is a number measured on n labels, and is shown as "undefined (n=0)" if it is NaN.
    """
    kinds, titles = zip(*heads, strict=True)
    body = [zip(kinds, row, strict=True) for row in rows]
    lines = ["".join(f"<th>{html.escape(title)}</th>" for title in titles)]
    lines += ["".join(f"<td data-value='{kind}'{_cell(value)}</td>" for kind, value in row) for row in body]
    return (
        f"<small>{html.escape(note)}</small><table style='border-spacing: 1em 0; text-align: left; font-size: 90%'>"
        f"{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
    )


def _cell(value: str | float | tuple[float, int]) -> str:
    """Return the rest of an element: its title, if the whole value has more digits, and its text."""
    if isinstance(value, str):
        return f">{html.escape(value)}"
    number, n = value if isinstance(value, tuple) else (value, 0)
    shown, full = (or_undefined(number, n, f".{digits}f") for digits in (4, 8))
    return f" title='{full}'>{shown}" if full != shown else f">{shown}"
