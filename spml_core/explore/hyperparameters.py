"""A control for each hyperparameter of a method, as its class describes them."""

import ipywidgets as widgets

from spml_core import methods
from spml_core.explore.panel import WIDE, choice, decimals, number, slider
from spml_core.methods.display import Options


class Hyperparameters:
    """The controls of one method: `shown()` returns those that apply, `params()` their values by hyperparameter name.

    A hyperparameter that has no control (e.g. because its default is derived) stays at its default.
    """

    def __init__(self, method: str):
        self.method, self.controls = methods.get(method), {}
        for name, default in methods.defaults(method).items():
            if made := self._controls(name, default):  # two for the ends of a schedule
                self.controls[name] = made

    def all(self) -> list[widgets.Widget]:
        """Return the controls of all hyperparameters, whether they apply or not."""
        return [widget for group in self.controls.values() for widget in group]

    def shown(self) -> list[widgets.Widget]:
        """Return the controls that apply, given the values of the others."""
        return [widget for name in self._applicable() for widget in self.controls[name]]

    def params(self) -> dict:
        """Return the values of all controls that are shown, with the digits that are shown."""
        return {name: self._value(name) for name in self._applicable()}

    def _applicable(self) -> list[str]:
        return self.method.applicable({name: self._value(name) for name in self.controls})

    def _value(self, name: str):
        values = tuple(number(widget) for widget in self.controls[name])
        return values if len(values) == 2 else values[0]

    def set(self, values: dict) -> None:
        """Set the controls to these values by hyperparameter name; a pair sets the ends of a schedule."""
        for name, value in values.items():
            if name not in self.controls:
                raise ValueError(
                    f"the loss lab has no control {name!r} for {self.method.name}: it has {', '.join(self.controls)}"
                )
            controls = self.controls[name]
            pair = value if isinstance(value, tuple | list) else [value] * len(controls)
            for widget, one in zip(controls, pair, strict=True):
                _show(widget, one)

    def _controls(self, name: str, default) -> list[widgets.Widget]:
        described = self.method.control(name)
        if isinstance(described, Options):
            if described.options:
                made = choice(described.words, described.options)
            else:  # a text field, read when it loses focus
                made = widgets.Text(description=described.words, continuous_update=False, **WIDE)
            _show(made, default)
            return [made]
        if described is None or (default is None and described.value is None):
            return []
        words, low, high, step, value = described
        value = value if default is None else default
        paired = isinstance(value, tuple | list)
        ends = zip((", start", ", end"), value, strict=True) if paired else [("", value)]
        made = []
        for end, one in ends:
            made.append(slider(words + end, low, low, high, step))
            _show(made[-1], one)
        return made


def _show(widget: widgets.Widget, value) -> None:
    """Set a control; a slider is extended to reach the value and to show all of its digits."""
    if hasattr(widget, "min"):  # else a slider would take its end for a value beyond it
        widget.min, widget.max = min(widget.min, value), max(widget.max, value)
    if isinstance(widget, widgets.Dropdown) and value not in [known for _, known in widget.options]:
        widget.options = (*widget.options, (str(value), value))
    if isinstance(widget, widgets.FloatSlider):
        while abs(round(value, decimals(widget.step)) - value) > 1e-9 * abs(value) and widget.step > 1e-12:
            widget.step /= 10
        widget.readout_format = f".{decimals(widget.step)}f"
    widget.value = value
