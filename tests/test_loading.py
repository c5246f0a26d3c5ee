"""Batches have the same rows for every kind of input, and an interrupted loop leaves nothing behind."""

import multiprocessing
import threading
from contextlib import closing

import numpy as np
import pytest
import torch
from PIL import Image

from spml_core.data import DataError
from spml_core.data.files import decoding, loading
from spml_core.train import augment

CPU = torch.device("cpu")


@pytest.fixture
def paths(tmp_path):
    rng = np.random.default_rng(0)
    paths = [tmp_path / f"{n:02d}.png" for n in range(23)]
    for path in paths:
        Image.fromarray(rng.integers(0, 256, (9, 11, 3), np.uint8)).save(path)
    return paths


def shuffled(num, batch=4):
    return torch.randperm(num, generator=torch.Generator().manual_seed(1)).split(batch)


def mapped(tensor, tmp_path):
    file = tmp_path / "mapped.npy"
    np.save(file, tensor.numpy())
    return torch.from_numpy(np.load(file, mmap_mode="c"))


@pytest.mark.parametrize("kind", ["memory", "map", "rows", "files"])
@pytest.mark.parametrize("large", [1, 10**9], ids=["ahead", "direct"])
def test_every_kind_of_input_gives_the_same_batches(paths, tmp_path, monkeypatch, kind, large):
    monkeypatch.setattr(loading, "LARGE", large)
    truth = decoding.read(paths, 8)
    inputs = {
        "memory": lambda: truth,
        "map": lambda: mapped(truth, tmp_path),
        "rows": lambda: loading.Rows(truth.flip(0), torch.arange(23).flip(0)),
        "files": lambda: decoding.Files(paths, 8),
    }[kind]()
    assert (len(inputs), tuple(inputs.shape), inputs.ndim) == (23, (23, 3, 8, 8), 4)
    assert inputs.dtype == torch.uint8
    indices = shuffled(23)
    state = torch.random.get_rng_state()
    found = list(loading.batches(inputs, indices, "cpu"))
    assert torch.equal(torch.random.get_rng_state(), state)  # what follows is drawn as if nothing was read
    assert [len(x) for _, x in found] == [4, 4, 4, 4, 4, 3]
    for index, (own, x) in zip(indices, found, strict=True):
        assert torch.equal(own, index) and torch.equal(x, truth[index])
    labels, numbers = torch.arange(46, dtype=torch.int8).view(23, 2), torch.arange(23)
    beside = list(loading.batches(inputs, indices, "cpu", labels, numbers))
    for (index, x, own_labels, own_numbers), (_, same) in zip(beside, found, strict=True):
        assert (
            torch.equal(x, same)
            and torch.equal(own_labels, labels[index])
            and torch.equal(own_numbers, index)
        )
    assert list(loading.batches(inputs, [], "cpu")) == []
    (_, part), *_ = loading.batches(inputs[5:9], [torch.tensor([3, 0])], CPU)
    assert torch.equal(part, truth[[8, 5]])
    ((_, one),) = loading.batches(inputs, [torch.tensor([7])], CPU)
    ((_, alone),) = loading.batches(inputs[torch.tensor([7])], [torch.tensor([0])], CPU)
    assert torch.equal(one, truth[[7]]) and torch.equal(alone, one)


def test_features_and_indices_of_any_iterable():
    x = torch.randn(10, 3)
    found = [y for _, y in loading.batches(x, (torch.tensor([n, 9 - n]) for n in range(3)), CPU)]
    assert torch.equal(torch.cat(found), x[[0, 9, 1, 8, 2, 7]])


def test_unreadable_file_stops_with_its_path(paths):
    paths[13].write_bytes(paths[13].read_bytes()[:-40])
    inputs = decoding.Files(paths, 8)[3:]
    found = []
    with pytest.raises(DataError) as error:
        for index, _ in loading.batches(inputs, torch.arange(20).split(4), CPU):
            found += index.tolist()
    assert str(error.value).startswith(f"1 of 4 images cannot be read:\n  {paths[13]}: ")
    assert found == list(range(8))  # neither replaced nor skipped


def test_interrupted_loops_leave_no_thread_and_no_process(paths):
    before, kept = set(threading.enumerate()), []
    for _ in range(3):
        batches = loading.batches(decoding.Files(paths, 8), shuffled(23), CPU)
        try:
            with closing(batches):
                for number, _ in enumerate(batches):
                    if number == 2:
                        raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            kept.append(error)  # a notebook keeps it too, with all frames of the cell
    assert not multiprocessing.active_children()
    assert set(threading.enumerate()) <= before


def test_another_device_than_the_cpu_gets_rows_of_everything(paths):
    """ "meta" stands for an accelerator: what arrives has its shape, dtype and device."""
    x = torch.zeros(23, 3, dtype=torch.float32)
    for inputs in (x, loading.Rows(x, torch.arange(23)), decoding.Files(paths, 8)):
        for index, batch in loading.batches(inputs, shuffled(23), "meta"):
            assert index.device.type == batch.device.type == "meta"
            assert batch.shape == (len(index), *inputs.shape[1:]) and batch.dtype == inputs.dtype


def test_flip_turns_half_of_the_images():
    batch = torch.arange(400 * 3 * 2 * 5).remainder(251).to(torch.uint8).view(400, 3, 2, 5)
    flipped = augment.flip(batch, torch.Generator().manual_seed(0))
    assert flipped.dtype == torch.uint8 and flipped.shape == batch.shape
    same = (flipped == batch).flatten(1).all(1)
    turned = (flipped == batch.flip(-1)).flatten(1).all(1)
    assert (same ^ turned).all() and 150 < same.sum() < 250
    assert torch.equal(augment.flip(batch, torch.Generator().manual_seed(0)), flipped)
