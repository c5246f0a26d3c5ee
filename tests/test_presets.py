"""Published hyperparameters, and the command that shows them."""

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from spml_core import methods
from spml_core.cli import main
from spml_core.methods import DATASETS, build, preset, preset_source, preset_training

CLASSES = {"voc2012": 20, "coco2014": 80, "nuswide": 81, "cub200": 312}
PUBLISHED = {name: its for name in methods.names() if (its := methods.get(name).presets)}
PAIRS = [(name, dataset) for name, published in PUBLISHED.items() for dataset in published.params]


@pytest.mark.parametrize("name, dataset", PAIRS)
def test_every_preset_builds(name, dataset):
    params = preset(name, dataset)
    method = build(name, CLASSES[dataset], 4, **params)
    assert params and params.items() <= method.hyperparameters.items()
    method.check(preset_training(name, dataset).get("epochs", 10))
    assert len(preset_source(name, dataset)) > 5


def test_every_data_set_of_the_papers_has_one():
    assert set(CLASSES) == set(DATASETS)
    for name, published in PUBLISHED.items():
        left_out = {"nuswide", "cub200"} if name == "pu_mlc" else set()  # by its paper
        assert set(published.params) == set(DATASETS) - left_out


# Each number as its table prints it.
@pytest.mark.parametrize(
    "name, dataset, expected",
    [
        (
            "gr",
            "voc2012",
            {"w": (0, 2), "b": (-2, -2), "mu": (0.5, 0.8), "sigma": (2, 0.5), "q2": 0.01, "q3": 1},
        ),
        (
            "gr",
            "coco2014",
            {"w": (0, 10), "b": (-2, -8), "mu": (0.5, 0.8), "sigma": (2, 0.5), "q2": 0.01, "q3": 1},
        ),
        ("gr", "cub200", {"w": (0, 10), "b": (-2, -8), "q3": 1.5}),
        ("em", "cub200", {"alpha": 0.01}),
        ("em_apl", "voc2012", {"alpha": 0.2, "beta": 0.02, "theta": 0.9, "warmup": 5}),
        ("em_apl", "coco2014", {"alpha": 0.1, "beta": 0.9, "theta": 0.9, "warmup": 5}),
        ("em_apl", "nuswide", {"alpha": 0.1, "beta": 0.2, "theta": 0.9, "warmup": 4}),
        ("em_apl", "cub200", {"alpha": 0.01, "beta": 0.4, "theta": 0.9, "warmup": 3}),
        ("dw", "cub200", {"weight": 0.02}),
        ("l1r", "nuswide", {"strength": 1e-7}),
        ("l2r", "nuswide", {"strength": 1e-6}),
        ("l2r", "cub200", {"strength": 1e-8}),
        ("n_ls", "voc2012", {"smoothing": 0.3}),
        ("ent_min", "coco2014", {"alpha": 0.9}),
        ("focal", "coco2014", {"gamma": 2, "alpha": 0.75}),
        ("asl", "voc2012", {"gamma_pos": 0, "gamma_neg": 2, "margin": 0.2}),
        ("asl", "cub200", {"gamma_pos": 0, "gamma_neg": 1, "margin": 0}),
        ("asl_ps", "voc2012", {"gamma_pos": 0, "gamma_neg": 4, "margin": 0.05}),
        ("role", "voc2012", {"expected_positives": 1.5}),
        ("role", "coco2014", {"expected_positives": 2.9}),
        ("epr", "nuswide", {"expected_positives": 1.9}),
        ("epr", "cub200", {"expected_positives": 31.4}),
        ("lasd", "voc2012", {"lambda_plus": 0.1, "tau": 0.9, "alpha": 0.7}),
        ("lasd", "nuswide", {"lambda_plus": 0.015, "tau": 0.95, "alpha": 0.15}),
        ("lasd", "cub200", {"lambda_plus": 0.005, "tau": 0.93, "alpha": 0.03}),
        ("hill", "coco2014", {"lam": 1.5, "margin": 1, "gamma": 2}),
        ("fm_splc", "coco2014", {"tau": 0.6, "margin": 1, "gamma": 2}),
        ("ll_r", "voc2012", {"delta": 0.005}),
        ("ll_ct", "voc2012", {"delta": 0.002}),
        ("ll_cp", "voc2012", {"delta": 0.001}),
        ("two_way", "coco2014", {"t_pos": 4, "t_neg": 1}),
        ("pu_mlc", "voc2012", {"alpha": 2, "gamma": 0.85}),
        ("pu_mlc", "coco2014", {"alpha": 1, "gamma": 0.55}),
    ],
)
def test_published_numbers(name, dataset, expected):
    assert expected.items() <= preset(name, dataset).items()


def test_training_of_the_gr_table():
    assert preset_training("gr", "voc2012") == {"epochs": 8, "batch_size": 8, "lr": 1e-5}
    assert preset_training("gr", "cub200") == {"epochs": 10, "batch_size": 8, "lr": 5e-5}
    assert "Table 6" in preset_source("gr", "voc2012")


def test_a_preset_is_a_copy():
    preset("gr", "voc2012")["w"] = None
    assert preset("gr", "voc2012")["w"] == (0, 2)


@pytest.mark.parametrize("function", [preset, preset_source, preset_training])
def test_unknown_pair_says_what_there_is(function):
    with pytest.raises(ValueError, match=r"'an'; there are some for .*em_apl.*gr.*role"):
        function("an", "voc2012")
    with pytest.raises(
        ValueError, match=r"'gr' on 'imagenet'; there are some on voc2012, coco2014, nuswide, cub200"
    ):
        function("gr", "imagenet")


# --- spml methods ---


def spml(*arguments):
    return CliRunner().invoke(main, ["methods", *arguments])


def test_list():
    result = spml()
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.output.splitlines()] == methods.names()


@pytest.mark.parametrize("name", methods.names())
def test_describe(name):
    result = spml(name)
    assert result.exit_code == 0 and result.output.startswith(f"{name}: {methods.available()[name]}")
    for parameter, value in methods.defaults(name).items():
        assert f"\n  {parameter} " in result.output and repr(value) in result.output
    published = PUBLISHED.get(name)
    assert (published.source if published else "hyperparameters: none") in result.output


def test_describe_gr_in_full():
    output = spml("gr").output
    for part in ("k = sigmoid(w p + b)", "Deviations", "(0.0, 10.0)", "GR Table 6", "coco2014"):
        assert part in output


def test_unknown_method():
    result = spml("llcp")
    assert result.exit_code == 2 and "did you mean 'll_cp'" in result.output


def test_help_does_not_import_torch():
    code = (
        "import sys; from click.testing import CliRunner; from spml_core.cli import main; "
        "assert CliRunner().invoke(main, ['methods', '--help']).exit_code == 0; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_head_is_named():
    assert "Head: latent" in spml("mime").output and "Head:" not in spml("an").output
    refused = spml("boostlu")
    assert refused.exit_code == 2 and "'boostlu' is a head, not a method" in refused.output


def test_a_reader_of_the_output_may_stop_early():
    code = "import sys, os; os.close(sys.stdout.fileno()); os.dup2(int(sys.argv[1]), 1); sys.argv[1:] = ['methods']; "
    code += "from spml_core.cli import main; main()"
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-c", code, str(write)], pass_fds=[write], capture_output=True, text=True
    )
    os.close(write)
    assert done.returncode == 1 and done.stderr == ""
