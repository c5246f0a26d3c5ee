"""A control for each hyperparameter of a method, as its class describes them."""

import ipywidgets as widgets

from spml_core import methods
from spml_core.explore.panel import WIDE, choice, decimals, number, slider
from spml_core.methods.display import Options, Slider


class Hyperparameters:
    """The controls of one method: `shown()` returns those that apply, `params()` their values by hyperparameter name.

    A hyperparameter that has no control (e.g. because its default is derived) stays at its default.
    """

    def __init__(self, method: str):
        self.method, self.controls = methods.get(method), {}
        for name, default in methods.defaults(method).items():
            control = self.method.control(name)
            value = control.value if isinstance(control, Slider) and default is None else default
            if isinstance(control, Options) or (control and value is not None):
                self.controls[name] = _widgets(control, isinstance(value, tuple | list))
                self.set({name: value})

    def all(self) -> list[widgets.Widget]:
        """Return the controls of all hyperparameters, whether they apply or not."""
        return [widget for group in self.controls.values() for widget in group]

    def shown(self) -> list[widgets.Widget]:
        """Return the controls that apply, given the values of the others."""
        return [widget for name in self.params() for widget in self.controls[name]]

    def params(self) -> dict:
        """Return the values of all controls that are shown, with the digits that are shown."""
        values = {name: self._value(name) for name in self.controls}
        return {name: values[name] for name in self.method.applicable(values)}

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


def _widgets(control: Slider | Options, paired: bool) -> list[widgets.Widget]:
    """Return the widget of a control, or two sliders for the ends of a schedule."""
    if isinstance(control, Slider):
        words, low, high, step, _ = control
        ends = (", start", ", end") if paired else ("",)
        return [slider(words + end, low, low, high, step) for end in ends]
    if control.options:
        return [choice(control.words, control.options)]
    # A text field is read when it loses focus.
    return [widgets.Text(description=control.words, continuous_update=False, **WIDE)]


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
