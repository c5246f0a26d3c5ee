"""`Panel`: controls, and one figure that follows them.

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

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from decimal import Decimal

import ipywidgets as widgets
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

DPI = 110  # of the screen
WIDE = {"description_width": "14em"}  # names are spelled out


class Panel(widgets.VBox):
    """Controls beside a figure; a subclass says in `update` how the figure follows them.

    The figure belongs to the panel alone (`figures.detached`), its artists are moved (`moves`), not made anew, and the
    picture travels as a PNG. A browser sends the next value of a slider when the last one was answered, and the newest
    only: so a redraw happens at once, and nothing has to be thrown away.

    What a callback raises stands in red below the figure, and is raised: the frontend shows it, and a run without a
    screen fails. Without a screen, or where the widget is not available, the output's picture stands for it.

    Attributes:
        fig: the figure, with its canvas.
        draws: how often it was drawn.
    """

    def __init__(self, fig: Figure, controls: Iterable[widgets.Widget], below: Iterable[widgets.Widget] = ()):
        self.fig, self.draws = fig, 0
        self._held, self._laid_out, self._still, self._moving = False, False, None, []
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
        """Move the artists of `fig` to what the controls say."""
        raise NotImplementedError

    def follow(self, *inputs: widgets.Widget) -> None:
        """Draw now, and each time the value of one of these changes."""
        for widget in inputs:
            widget.observe(self._changed, "value")
        self.redraw()

    def on_click(self, button: widgets.Button, action: Callable[[], None]) -> None:
        """Let a button do something; errors are told as those of `update`."""

        def clicked(_):
            with self.told():
                action()

        button.on_click(clicked)

    def redraw(self) -> None:
        """Follow the controls, once."""
        if self._held:
            return
        with self.told():
            self.update()
            self.picture.value = self.png()
            self.draws += 1

    def lay_out_anew(self) -> None:
        """Let the next redraw make room for what has become wider or narrower."""
        self._laid_out, self._still = False, None

    @contextmanager
    def at_once(self):
        """Several changes inside, one redraw after them."""
        outer, self._held = self._held, True
        try:
            yield
        finally:
            self._held = outer
        self.redraw()

    @contextmanager
    def told(self):
        """An exception inside is shown in the panel and goes on."""
        try:
            yield
        except Exception as error:
            self.complain(error)
            raise
        if self.trouble.value:
            self.trouble.value = ""

    def complain(self, error: Exception) -> None:
        """Show an error in the panel."""
        text = html.escape(f"{type(error).__name__}: {error}")
        self.trouble.value = f'<pre role="alert" style="color: #b00020; white-space: pre-wrap">{text}</pre>'

    def moves(self, *artists: Artist) -> None:
        """Name artists that `update` moves: while nothing else changes, they alone are drawn, over what stays."""
        for artist in artists:
            artist.set_animated(True)

    def png(self) -> bytes:
        """The figure as it is."""
        canvas = self.fig.canvas
        if self.fig.stale or self._still is None:  # an artist that moves does not make its figure stale
            if not self._laid_out:
                self.fig.set_layout_engine("constrained")
            canvas.draw()
            self.fig.set_layout_engine("none")  # the axes stay where they are, and a draw takes half the time
            self._laid_out, self.fig.stale = True, False
            self._still = canvas.copy_from_bbox(self.fig.bbox)
            self._moving = sorted(self.fig.findobj(Artist.get_animated), key=Artist.get_zorder)
        canvas.restore_region(self._still)
        for artist in self._moving:
            artist.axes.draw_artist(artist)
        pixels = Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba())
        file = io.BytesIO()
        pixels.convert("RGB").save(file, "png", compress_level=1)
        return file.getvalue()

    def _changed(self, _) -> None:
        self.redraw()

    def _repr_mimebundle_(self, **options):
        """Beside the widget its picture, which a page without widgets shows in its place."""
        bundle = super()._repr_mimebundle_(**options)
        return bundle | {"image/png": base64.b64encode(self.picture.value).decode()}


def slider(name: str, value: float, low: float, high: float, step: float, *, whole: bool = False):
    """A slider that redraws while it is dragged; arrow keys move it by a step, and it ends at `low` and `high`.

    Args:
        whole: whole numbers only.
    """
    kind = widgets.IntSlider if whole else widgets.FloatSlider
    readout = {} if whole else {"readout_format": f".{decimals(step)}f"}
    return kind(value, min=low, max=high, step=step, description=name, style=WIDE, layout=_width(), **readout)


def decimals(step: float) -> int:
    """Digits after the point that a slider of this step shows."""
    return max(0, -Decimal(f"{step:g}").as_tuple().exponent)


def number(control: widgets.Widget):
    """The value of a control as it is shown: a browser adds up steps, and sends -2.0000000000000018 for -2."""
    if isinstance(control, widgets.FloatSlider):
        return round(control.value, decimals(control.step)) + 0.0  # no -0.0
    return control.value


def choice(name: str, options, value=None) -> widgets.Dropdown:
    """A list to choose from: values, or (what is shown, value) pairs; at first `value`, or the first of them."""
    if value is None:
        value = options[0][1] if isinstance(options[0], tuple) else options[0]
    return widgets.Dropdown(options=options, value=value, description=name, style=WIDE, layout=_width())


def cell(kind: str, text: str, full: str = "") -> str:
    """A cell of a table; `full`, what `text` has been shortened from, appears when the mouse rests on it."""
    title = f" title='{html.escape(full)}'" if full and full != text else ""
    return f"<td data-value='{kind}'{title}>{text}</td>"


def _width() -> widgets.Layout:
    return widgets.Layout(width="31em")
