"""Two processes (gloo backend) train the same as one, whatever a method remembers about the data set."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from spml_core import train
from spml_core.methods import names
from spml_core.train import distributed

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import ddp_training  # noqa: E402

LAUNCHERS = {
    "torchrun": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
    "fabric": ["-m", "lightning_fabric.cli", "--accelerator", "cpu", "--devices", "2", "--main-port"],
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def launch(launcher: str, *arguments) -> str:
    path = os.pathsep.join(filter(None, (str(HERE.parent), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    port = [str(free_port())] if launcher == "fabric" else []
    command = [
        sys.executable,
        *LAUNCHERS[launcher],
        *port,
        str(HERE / "ddp_training.py"),
        *map(str, arguments),
    ]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, **pipes) as launcher:
        try:
            out, err = launcher.communicate(timeout=100)
        except subprocess.TimeoutExpired:
            launcher.terminate()  # it ends its processes, which a SIGKILL would leave behind
            raise
    assert launcher.returncode == 0, out + err
    return err


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path):
    """Every method, with accumulation, averaging, schedule and a frozen phase, and batches of odd size."""
    launch("torchrun", tmp_path)
    alone = ddp_training.everything()
    assert set(alone) == set(names()) | set(ddp_training.OPTIONS)
    for name, expected in alone.items():
        found = load_file(tmp_path / f"{name}.safetensors")
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            torch.testing.assert_close(
                found[key], value, atol=1e-5, rtol=0, msg=lambda m, k=key, n=name: f"{n} {k}: {m}"
            )


@pytest.mark.slow
def test_a_run_of_two_processes_is_written_once(tmp_path):
    """With `fabric run`, both request the run, one writes it, both load it; it has the state of every image."""
    launch("fabric", tmp_path, "run")
    (path,) = (p for p in (tmp_path / "runs").iterdir() if p.name.startswith("digits-role"))
    found = ddp_training.Run(path)
    assert found.summary["processes"] == 2 and found.history.epoch.tolist() == [0, 1, 2]
    assert found.logits("test").shape == (31, 10) and np.isfinite(found.logits("val", 0)).all()
    assert not list((tmp_path / "runs" / "partial").iterdir())


@pytest.mark.slow
def test_an_interrupted_training_of_two_is_resumed_by_two(tmp_path):
    said = launch("torchrun", tmp_path, "resume")
    assert said.count("resuming after epoch 1") == 1
    expected = ddp_training.tensors(ddp_training.trained("role"))
    found = load_file(tmp_path / "resumed.safetensors")
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, atol=1e-5, rtol=0)


@pytest.mark.parametrize("num, processes", [(5, 2), (6, 2), (1, 2), (7, 4), (2, 4)])
def test_shares_cover_a_batch_in_order(monkeypatch, num, processes):
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    index, shares = torch.arange(10, 10 + num), []
    for rank in range(processes):
        monkeypatch.setenv("RANK", str(rank))
        shares.append(distributed.share(index))
    assert len({len(share) for share in shares}) == 1
    assert torch.equal(torch.cat(shares)[:num], index)


def test_alone_nothing_is_copied():
    index, logits = torch.arange(3), torch.randn(3, 2)
    assert distributed.share(index) is index and distributed.gather(logits, 3) is logits
    assert distributed.gather_objects(1) == [1] and distributed.broadcast("x") == "x"
    assert distributed.rank() == 0 and distributed.world_size() == 1
    assert train.distributed is distributed
