"""The panels, driven from Python: what they show is what the package computes, and no error is lost."""

import ast
import base64
import os
import re
import tracemalloc
from pathlib import Path

import ipywidgets as widgets
import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from matplotlib.mathtext import MathTextParser
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from spml_core import figures, methods
from spml_core.cli import main
from spml_core.explore import Panel, curves, loss_lab
from spml_core.explore.hyperparameters import Hyperparameters
from spml_core.explore.training import Training
from spml_core.headless import runner
from spml_core.methods import Step, build
from spml_core.methods.unified import PARTS as PARTS_OF_UNIFIED
from spml_core.runs import Experiment, Run

WITH_CURVE = [name for name in methods.names() if not methods.get(name).no_curve]
NEEDED = {name: {"expected_positives": 1.5} for name in ("epr", "en")}
Z = np.linspace(-7, 7, 61)


@pytest.fixture(scope="module")
def lab():
    return loss_lab()


# --- the loss of one label ---


def the_method_itself(name, epoch, **params):
    """Return the method's scalar, and N*C times its gradient, on the batch that `Setting.curve` describes."""
    logits = torch.from_numpy(Z)[:, None].repeat(1, 10).requires_grad_()
    index = torch.arange(len(Z))
    observed = torch.zeros(len(Z), 10)
    observed[index, index % 10] = 1
    method = build(name, 10, len(Z), **params)
    for earlier in range(1, epoch + 1):
        value = method(logits, observed, Step(earlier, 10, index))
    value.backward()
    return value.item(), logits.grad.numpy() * logits.numel(), index.numpy()


@pytest.mark.parametrize("epoch", [1, 7, 10])
@pytest.mark.parametrize("name", WITH_CURVE)
def test_gradients_are_those_of_the_method(name, epoch):
    curve = curves.Setting(name, NEEDED.get(name, {}), epoch).curve(Z)
    _, gradient, row = the_method_itself(name, epoch, **NEEDED.get(name, {}))
    np.testing.assert_allclose(curve.observed_gradient, gradient[row, row % 10], atol=1e-12)
    np.testing.assert_allclose(curve.missing_gradient, gradient[row, (row + 1) % 10], atol=1e-12)


@pytest.mark.parametrize(
    "name", [n for n in WITH_CURVE if n not in ("ll_r", "ll_ct", "ll_cp", "em_apl", "en")]
)
def test_values_have_the_mean_of_the_method(name):
    """This holds where all missing labels of an image are treated alike, not where a rank divides them."""
    curve = curves.Setting(name, NEEDED.get(name, {}), 7).curve(Z)
    value, _, _ = the_method_itself(name, 7, **NEEDED.get(name, {}))
    assert (9 * curve.missing.mean() + curve.observed.mean()) / 10 == pytest.approx(value, abs=1e-9)


def test_a_loss_of_no_single_label_says_so():
    with pytest.raises(ValueError, match="role has no curve over p: it depends on estimates"):
        curves.Setting("role", {"expected_positives": 1.5}, 1).curve(Z)
    with pytest.raises(ValueError, match="role has no curve"):
        loss_lab("role")


# --- the equation ---

NOT_AN_EQUATION = {
    "epr",
    "ll_r",
    "ll_ct",
    "ll_cp",
    "em_apl",
    "en",
}  # say in words what happens to which labels


PARTS = {r"\hat k": "k", "v": "v", "p_m": "pm", "L_2": "two", "L_3": "three", "L_+": "plus", "L_-": "minus"}


def evaluate(text, known):
    """Return the right side of an equation as numbers."""
    text = text.replace(r"\left", "").replace(r"\right", "")
    inside = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
    while r"\frac" in text:
        text = re.sub(rf"\\frac{inside}{inside}", r"((\1)/(\2))", text)
    text = re.sub(r"\[p ?(>|\\leq) ?([\d.]+)\]", lambda m: f"({'p>' if m[1] == '>' else 'p<='}{m[2]})", text)
    signs = {r"\cdot": "*", r"\,": "*", "^": "**", "{": "(", "}": ")"}
    for tex, plain in (PARTS | signs).items():
        text = text.replace(tex, plain)
    text = re.sub(r"\\log (pm|p)\b", r"log(\1)", text).replace("\\", "")
    functions = {"log": np.log, "exp": np.exp, "max": np.maximum, "sigma": lambda x: 1 / (1 + np.exp(-x))}
    return eval(text, {"__builtins__": {}}, functions | known)


def by_equation(method, step, p):
    told, known = method.equation(step), {"p": p, "z": np.log(p / (1 - p))}
    for tex, plain in PARTS.items():
        if tex in told:
            known[plain] = evaluate(told[tex], known)
    return {kind: evaluate(told[kind], known) + 0 * p for kind in ("observed", "missing")}


def check_equation(name, epoch=8, **params):
    p = np.linspace(0.01, 0.99, 50)
    params = NEEDED.get(name, {}) | params
    curve = curves.Setting(name, params, epoch).curve(np.log(p / (1 - p)))
    told = by_equation(build(name, 10, 50, **params), Step(epoch, 10), p)
    np.testing.assert_allclose(told["observed"], curve.observed, rtol=2e-3, atol=1e-6)  # it has four digits
    np.testing.assert_allclose(told["missing"], curve.missing, rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize(
    "name", [n for n in WITH_CURVE if n not in {*NOT_AN_EQUATION, "pseudo_label", "mime"}]
)
def test_the_equation_is_the_loss(name):
    told = build(name, 10, 50, **NEEDED.get(name, {})).equation(Step(8, 10))
    assert told, f"give the class of {name} an `equation(step)`: the loss lab shows it"
    check_equation(name)
    if name in ("splc", "fm_splc"):
        check_equation(name, epoch=1)
    if "log_floor" in methods.defaults(name):
        check_equation(name, log_floor=0.01)


@pytest.mark.parametrize(
    "name, params",
    [
        ("gr", {"w": (0, 10), "b": (-2, -8), "q1": 0.0, "q2": 1.0, "q3": 1.5}),
        ("asl", {"margin": 0.2, "gamma_pos": 1.0}),
        ("focal", {"alpha": 0.7, "gamma": 1.0}),
        ("focal_margin", {"margin": 0.0, "gamma_neg": 3.0}),
        ("fm_splc", {"negative": "hill", "shift_corrected": True, "margin": 2.0}),
        ("splc", {"base": "focal_margin", "tau": 0.4}),
        ("splc", {"base": "asl"}),
        ("wan", {"weight": 0.25}),
    ],
)  # fmt: skip
def test_the_equation_follows_the_numbers(name, params):
    check_equation(name, **params)


@pytest.mark.parametrize("part", PARTS_OF_UNIFIED)
def test_the_equation_of_each_part(part):
    for value in PARTS_OF_UNIFIED[part]:
        check_equation("unified", **{part: value}, q1=0.4, q2=0.0, w=5.0, weight=0.7)


@pytest.mark.parametrize("name", [*sorted(NOT_AN_EQUATION), "gr", "hill", "mime"])
def test_the_equation_is_tex(name):
    parser = MathTextParser("path")
    for what, text in build(name, 10, 5, **NEEDED.get(name, {})).equation(Step(8, 10)).items():
        parser.parse(f"${text}$")
        parser.parse(f"${what}$")
    told = curves.as_html(build(name, 10, 5, **NEEDED.get(name, {})), Step(8, 10))
    assert told.count(r"\(") == told.count(r"\)") >= 2


# --- the controls ---


@pytest.mark.parametrize("name", WITH_CURVE)
def test_safe_at_both_ends_of_every_slider(lab, name):
    lab.method.value = name
    assert lab.equation.value and not lab.trouble.value
    moved = [w for w in lab.hyperparameters.all() if hasattr(w, "min")] + [lab.epoch, lab.at]
    for control in moved:
        for end in (control.min, control.max):
            before, control.value = control.value, end
            for line in lab._lines.values():
                assert np.isfinite(line.get_ydata()).all(), (name, control.description, end)
            control.value = before
    assert not lab.trouble.value


@pytest.mark.parametrize("name", WITH_CURVE)
def test_every_choice_is_drawn(lab, name):
    lab.method.value = name
    for control in [w for w in lab.hyperparameters.all() if isinstance(w, widgets.Dropdown)]:
        before = control.value
        for value in [option[1] if isinstance(option, tuple) else option for option in control.options]:
            control.value = value
            assert not lab.trouble.value
        control.value = before


def test_every_hyperparameter_that_bends_a_curve_has_a_control():
    without = {name: set(methods.defaults(name)) - set(Hyperparameters(name).controls) for name in WITH_CURVE}
    assert {name: names for name, names in without.items() if names} == {
        "wan": {"weight"},  # derived from the number of classes; dw has it
        "focal": {"alpha"},
        "focal_margin": {"gamma_neg"},  # gamma
        "gr": {"b0", "expected_positives"},  # the start of b
        "gr_trainable": {"sgd_lr"},
        "l1r": {"strength"},
        "l2r": {"strength"},
        "lasd": {"lambda_minus", "alpha"},
        "mime": {"beta"},
        "pseudo_label": {"log_floor"},
    }


def test_only_controls_that_apply_are_shown(lab):
    def shown():
        return {widget.description for widget in lab.numbers.children}

    lab.method.value = "an"
    assert shown() == {"logarithms"} and lab.epoch.layout.display == "none"
    lab.method.value = "gr"
    assert "offset b of k̂, end" in shown() and lab.epoch.layout.display is None
    lab.method.value = "unified"
    assert {"slope w of k̂", "width σ of v", "exponent q₃"} <= shown()
    (k_hat,) = lab.hyperparameters.controls["k_hat"]
    k_hat.value = "threshold"
    assert "threshold τ on p" in shown() and not {"slope w of k̂", "offset b of k̂"} & shown()
    k_hat.value = "zero"
    assert "exponent q₂" not in shown()
    k_hat.value = "logistic"


def test_every_name_is_spelled_out(lab):
    for name in WITH_CURVE:
        for control in Hyperparameters(name).all():
            assert (
                len(control.description) > 3 and control.continuous_update
                if hasattr(control, "min")
                else True
            )


# --- what it shows ---


def readout(lab):
    """Return loss and gradient of a missing label, then of an observed positive."""
    cells = re.findall(r"data-value='(?:loss|gradient)'>(-?[\d.]+)<", lab.readout.value)
    kinds = ("missing", "missing_gradient", "observed", "observed_gradient")
    return dict(zip(kinds, map(float, cells), strict=True))


@pytest.mark.parametrize("name", ["gr", "unified", "em", "hill", "asl", "fm_splc"])
def test_the_readout_is_what_the_package_computes(lab, name):
    lab.method.value, lab.at.value = name, 0.123
    z = torch.tensor([[np.log(0.123 / 0.877)] * 2], dtype=torch.float64, requires_grad=True)
    method = build(name, 2, **lab.setting.params)
    for column, kind in ((0, "missing"), (1, "observed")):
        labels = torch.tensor([[-1, -1]])  # the other label is known, and is subtracted
        labels[0, column] = kind == "observed"
        both = method(z, labels, Step(lab.epoch.value, 10))
        slope = 2 * torch.autograd.grad(both, z)[0][0, column].item()
        other = method(z, torch.tensor([[-1, -1]]), Step(lab.epoch.value, 10)).item()
        assert readout(lab)[kind] == pytest.approx(2 * both.item() - other, abs=1e-6)
        assert readout(lab)[f"{kind}_gradient"] == pytest.approx(slope, abs=1e-6)


def test_how_the_gradient_of_gr_changes_with_b(lab):
    """GR Fig. 1b: lowering b at the end turns the pull on a likely missing label from up to down."""
    lab.method.value, lab.axis.value, lab.at.value = "gr", "p", 0.9
    lab.reset.click()
    start, end = lab.hyperparameters.controls["b"]
    signs = {}
    for value in (0.0, -6.0):
        end.value = value
        signs[value] = np.sign(readout(lab)["missing_gradient"])
        assert ("raises" if signs[value] < 0 else "lowers") in lab.readout.value
        now = build("gr", 10, **lab.setting.params).at(Step(10, 10))
        assert rf"\sigma({now['w']:.4g}\,p - {-now['b']:.4g})" in lab.equation.value
    assert signs == {0.0: -1, -6.0: 1}
    assert start.value == -2.0


def test_held_curves_stay(lab):
    lab.method.value = "hill"
    lab.hold.value = True
    kept = {name: line.get_ydata().copy() for name, line in lab._ghosts.items()}
    (lam,) = lab.hyperparameters.controls["lam"]
    lam.value = 2.5
    assert len(kept) == 4
    for name, line in lab._ghosts.items():
        np.testing.assert_array_equal(line.get_ydata(), kept[name])
    assert not np.allclose(lab._lines["missing"].get_ydata(), kept["missing"])
    labels = [text.get_text() for text in lab.fig.legends[0].get_texts()]
    assert labels[:2] == ["held: Hill, missing label", "held: Hill, observed positive"]
    lab.axis.value = "z"
    assert len(lab._ghosts) == 4 and lab.axes[0].get_xlim() == (-10, 10)
    lab.axis.value = "p"
    lab.hold.value = False
    assert not lab._ghosts
    lam.value = 1.5


@pytest.mark.parametrize("name", WITH_CURVE)
def test_the_code_makes_the_same_loss(lab, name):
    lab.method.value = name
    for control in lab.hyperparameters.shown():
        if isinstance(control, widgets.FloatSlider):
            control.value = (control.value + control.max) / 2
    observed = torch.zeros(20, 10, dtype=torch.int8)
    observed[:, 3] = 1
    space = {"logits": torch.randn(20, 10), "observed": observed, "index": torch.arange(20)}
    code, training = lab.as_code().split("\n\nr = ")
    exec(code.replace("from spml_core.runs import Experiment, run\n", ""), space)
    own = build(name, 10, 20, **lab.setting.params)
    if name != "role":
        torch.testing.assert_close(
            space["loss"], own(space["logits"], observed, Step(lab.epoch.value, 10, space["index"]))
        )
    asked = eval(training.strip(), {"Experiment": Experiment, "run": lambda experiment: experiment})
    assert asked == lab.experiment()
    ast.parse(lab.as_code())
    lab.reset.click()


def test_the_code_appears_and_follows(lab):
    lab.method.value = "gr"
    assert lab.code.layout.display == "none"
    lab.copy.click()
    lab.hyperparameters.controls["q3"][0].value = 0.7
    assert lab.code.layout.display is None and "q3=0.7" in lab.code.value
    lab.copy.click()
    assert lab.code.layout.display == "none"
    lab.reset.click()
    assert lab.setting.changed == {}


def test_the_noise_of_a_browser_changes_nothing(tmp_path):
    """A browser adds up steps from the low end of a slider, and sends -2.0000000000000018."""
    lab = loss_lab(figures_dir=str(tmp_path))
    for control in lab.hyperparameters.all():
        if isinstance(control, widgets.FloatSlider):
            control.value -= 1.8e-15
    assert lab.hyperparameters.controls["b"][0].value != -2.0
    assert lab.setting.changed == {} and "build('gr', num_classes=10)" in lab.as_code()
    plain = Experiment(dataset="digits", method="gr", epochs=10)
    data = Experiment(data={"train": 20, "val": 10, "test": 10}).load_data(tmp_path / "cache")
    assert lab.experiment().resolved().key(data) == plain.resolved().key(data)
    lab.export.click()
    assert "b = (-2.0, -2.0)" in (tmp_path / "loss-lab.caption.json").read_text()
    lab.hyperparameters.controls["b"][1].value = -15 + 70 * 0.1 + 1e-14
    assert lab.setting.changed == {"b": (-2.0, -8.0)}


def test_a_slider_becomes_as_fine_as_what_is_asked_for():
    lab = loss_lab("gr", q3=0.1234, b=(-2, -6.5))
    assert (
        lab.setting.params["q3"] == 0.1234 and lab.hyperparameters.controls["q3"][0].readout_format == ".4f"
    )
    assert lab.setting.params["b"] == (-2.0, -6.5) and lab.hyperparameters.controls["b"][0].step == 0.1


def test_export(lab, tmp_path):
    lab.method.value, lab.figures_dir, lab.name.value = "hill", str(tmp_path), "loss-lab-hill"
    lab.export.click()
    assert {p.name for p in tmp_path.iterdir()} == {
        f"loss-lab-hill.{s}" for s in ("pdf", "png", "csv", "caption.json")
    }
    data = pd.read_csv(tmp_path / "loss-lab-hill.csv")
    p = data["p"]
    np.testing.assert_allclose(data["missing"], (1.5 - p) * p**2, rtol=1e-5)
    assert "lam = 1.5" in (tmp_path / "loss-lab-hill.caption.json").read_text()


@pytest.mark.parametrize("name", ["../evil name", "a/b", "a\\b", "", "..", "/tmp/evil"])
def test_export_writes_into_its_folder_only(tmp_path, name):
    lab = loss_lab("an", figures_dir=str(tmp_path / "figures"))
    lab.name.value = name
    lab.export.click()
    assert "is not a file name" in lab.trouble.value and not lab.status.value
    assert not list(tmp_path.iterdir())


def test_what_is_held_is_told_apart(tmp_path, monkeypatch):
    lab = loss_lab("gr", figures_dir=str(tmp_path))
    lab.hold.value = True
    lab.hyperparameters.controls["b"][1].value = -8.0
    told = "Held (pale): GR, epoch = 10. Current: GR, b = (-2.0, -8.0), epoch = 10."
    assert told in lab.note.value
    with monkeypatch.context() as patched:
        written = []
        patched.setattr(figures, "save_figure", lambda fig, *_: written.append(fig))
        lab.export.click()
    labels = [text.get_text() for text in written[0].legends[0].get_texts()]
    assert labels[0] == "held: GR, epoch = 10, missing label"
    assert labels[2] == "GR, b = (-2.0, -8.0), epoch = 10, missing label"
    lab.export.click()
    assert told in (tmp_path / "loss-lab.caption.json").read_text()
    lab.epoch.value = 5
    assert "epoch = 10. Current: GR, b = (-2.0, -8.0), epoch = 5." in lab.note.value
    lab.method.value = "hill"
    assert "Held (pale): GR, epoch = 10. Current: Hill." in lab.note.value
    lab.hold.value = False
    assert "Held" not in lab.note.value


def test_the_axes_hold_every_curve_and_never_shrink():
    lab = loss_lab("gr")
    lab.hold.value = True
    highest = lab.axes[0].get_ylim()[1]
    for value in (5.0, -15.0, -2.0):
        lab.hyperparameters.controls["b"][1].value = value
        for line in [*lab._lines.values(), *lab._ghosts.values()]:
            low, high = line.axes.get_ylim()
            assert low <= line.get_ydata().min() and line.get_ydata().max() <= high
        assert lab.axes[0].get_ylim()[1] >= highest
        highest = lab.axes[0].get_ylim()[1]


def test_why_the_end_is_not_reached(lab):
    lab.method.value = "gr"
    lab.epoch.value = 10
    assert "w and b have gone 9/10" in lab.equation.value and "σ have gone 10/10" in lab.equation.value
    (schedule,) = lab.hyperparameters.controls["schedule"]
    schedule.value = "paper"
    assert "have gone" not in lab.equation.value
    schedule.value = "code"
    lab.method.value = "hill"
    assert "have gone" not in lab.equation.value


# --- a panel ---


class Powers(Panel):
    def __init__(self):
        fig, ax = figures.detached(width="column")
        self.x = np.linspace(0, 1, 50)
        (self.line,) = ax.plot(self.x, self.x)
        self.moves(self.line)
        self.power = widgets.FloatSlider(1.0, min=0, max=3, description="power")
        super().__init__(fig, [self.power])
        self.follow(self.power)

    def update(self):
        if self.power.value == 2.0:
            raise ValueError("planted error")
        self.line.set_ydata(self.x**self.power.value)


def pixels(panel):
    panel.fig.canvas.draw()
    for artist in panel.fig.findobj(lambda a: a.get_animated()):
        artist.axes.draw_artist(artist)
    return np.asarray(panel.fig.canvas.buffer_rgba()).copy()


def test_a_move_draws_what_a_fresh_figure_shows():
    moved, fresh = Powers(), Powers()
    for value in (0.3, 2.5, 1.5):
        moved.power.value = value
    fresh.power.value = 1.5
    assert moved.picture.value == fresh.picture.value
    assert moved.picture.value[:8] == b"\x89PNG\r\n\x1a\n"
    fresh.line.axes.set_ylim(0, 2)  # not only what moves
    fresh.power.value = 1.6
    moved.power.value = 1.6
    assert moved.picture.value != fresh.picture.value


def test_fifty_moves_open_no_figure_and_keep_no_memory(lab):
    lab.method.value = "gr"
    slider = lab.hyperparameters.controls["b"][1]
    open_before = plt.get_fignums()
    for value in np.linspace(-3, -8, 10):
        slider.value = value
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for value in np.linspace(-8, 3, 50):
        slider.value = value
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 2e6, grown
    assert plt.get_fignums() == open_before and len(open_before) <= 1
    lab.reset.click()


def test_an_error_stands_in_the_panel_and_is_raised():
    panel = Powers()
    with pytest.raises(ValueError, match="planted error"):
        panel.power.value = 2.0
    assert "ValueError: planted error" in panel.trouble.value and "#b00020" in panel.trouble.value
    panel.power.value = 1.0
    assert panel.trouble.value == ""


def test_several_changes_one_redraw():
    panel, seen = Powers(), []
    panel.picture.observe(seen.append, "value")
    with panel.at_once():
        panel.power.value = 0.5
        panel.power.value = 1.5
    assert len(seen) == 1


def test_a_page_without_widgets_shows_the_picture():
    panel = Powers()
    bundle = panel._repr_mimebundle_()
    assert base64.b64decode(bundle["image/png"]) == panel.picture.value
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"] == panel.model_id


PANEL = """
import ipywidgets as widgets
from spml_core import figures
from spml_core.explore import Panel

class Powers(Panel):
    def __init__(self):
        fig, ax = figures.detached(width="column")
        (self.line,) = ax.plot([0, 1], [0, 1])
        self.power = widgets.FloatSlider(1.0, min=0, max=3)
        super().__init__(fig, [self.power])
        self.follow(self.power)

    def update(self):
        if self.power.value == 2.0:
            raise ValueError("planted error")

panel = Powers()
panel
"""
# What a browser sends when a slider is dragged; ipywidgets catches what the callback raises.
DRAG = """
message = {"content": {"data": {"method": "update", "state": {"power": 2.0}, "buffer_paths": []}}, "buffers": []}
message["content"]["data"]["state"] = {"value": 2.0}
panel.power._handle_msg(message)
panel.power.value = 1.0
"""


@pytest.mark.slow
def test_a_planted_error_fails_a_run_without_a_screen(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notebooks").mkdir()
    cells = {"01-good": "", "02-set": "panel.power.value = 2.0", "03-drag": DRAG}
    for name, code in cells.items():
        made = [
            new_markdown_cell(f"# {name} · Is it so?"),
            new_code_cell('figures_dir: str = "figures"  # where', metadata={"tags": ["parameters"]}),
            new_code_cell(PANEL),
            *([new_code_cell(code)] if code else []),
        ]
        nbformat.write(new_notebook(cells=made), tmp_path / "notebooks" / f"{name}.ipynb")
    good, *bad = runner.run_notebooks()
    assert good.status == "done", good.error
    executed = nbformat.read(tmp_path / "runs" / "notebooks" / "01-good.ipynb", 4)
    shown = [output.data for cell in executed.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("image/png" in data for data in shown)
    for result in bad:
        assert result.status == "failed" and "ValueError: planted error" in result.error


# --- training from the lab ---


def test_an_impossible_experiment_starts_nothing(tmp_path):
    with pytest.raises(ValueError, match="smoothing"):
        Training(Experiment(method="an_ls", params={"smoothing": 2.0}), tmp_path)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_train_cancel_and_go_on(tmp_path):
    lab = loss_lab("unified", str(tmp_path), k_hat="zero", v="constant", l1="cross_entropy", l3="hill")
    lab.train.click()
    first = lab.training
    assert lab.train.disabled and not lab.cancel.disabled and lab.bar.layout.visibility == "visible"
    lab.cancel.click()
    lab.watcher.join(60)
    assert not alive(first.process.pid) and not lab.train.disabled and lab.cancel.disabled
    assert not lab.runs and "interrupted" in lab.status.value
    lab.train.click()
    lab.watcher.join(300)
    (run,) = lab.runs
    assert not lab.training.process.is_alive()
    assert isinstance(run, Run) and run.config["method"] == "unified" and run.config["params"]["l3"] == "hill"
    assert lab.bar.value == 10 and f"{run.summary['test_map']:.1f}" in lab.table.value
    assert "l3=hill" in lab.table.value and not lab.trouble.value


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_training_that_fails_says_why(tmp_path):
    (tmp_path / "runs").write_text("a file where the folder should be")
    lab = loss_lab("an", str(tmp_path / "runs"))
    lab.train.click()
    lab.watcher.join(120)
    assert "training failed" in lab.trouble.value and not lab.train.disabled


# --- the command ---


def test_the_command_hands_options_on(monkeypatch):
    called = []
    monkeypatch.chdir(Path(__file__).parents[1])
    monkeypatch.setattr("os.execve", lambda *arguments: called.append(arguments))
    assert CliRunner().invoke(main, ["explore", "--no-browser", "--port", "8890"]).exit_code == 0
    assert CliRunner().invoke(main, ["explore", "--app", "--no-browser"]).exit_code == 0
    (_, lab, environment), (_, app, _) = called
    assert lab[2] == "jupyterlab" and lab[-3:] == ["--no-browser", "--port", "8890"]
    assert "--ServerApp.ip=localhost" in lab and any("01-losses" in word for word in lab)
    assert app[2] == "voila" and "--Voila.auto_token=True" in app and Path(app[3]).is_file()
    assert not [word for word in [*lab, *app] if re.search(r"token=$|password|disable_check", word)]
    assert Path(environment["SPML_PROJECT"]) == Path.cwd()
