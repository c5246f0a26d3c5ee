"""Prepared pixels have the same bytes however often they are interrupted, and are found by content."""

import errno
import shlex
import signal
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from spml_core.cli import main
from spml_core.data import DataError, load
from spml_core.data.files import decoding, loading, pixels, store
from spml_core.data.files.digests import digest

SIZE, ROW = 8, 3 * 8 * 8


@pytest.fixture
def pictures(tmp_path):
    rng = np.random.default_rng(0)
    paths = [tmp_path / f"{n:02d}.png" for n in range(20)]
    for path in paths:
        Image.fromarray(rng.integers(0, 256, (9, 11, 3), np.uint8)).save(path)
    return paths


@pytest.fixture
def chunked(monkeypatch):
    """Use four images per chunk, and flush each chunk."""
    monkeypatch.setattr(pixels, "BATCH", 4)
    monkeypatch.setattr(store, "FLUSHED", 1)


def digests(paths):
    return [digest(path) for path in paths]


def find(images, size, cache):
    return pixels.find(images, size, cache)[0]


def values(found):
    """Return all rows, in memory."""
    return torch.cat([x for _, x in loading.batches(found, [torch.arange(len(found))], "cpu")])


def test_rows_are_the_decoded_images(pictures, tmp_path):
    file = pixels.prepare(pictures, SIZE, tmp_path / "cache")
    found = find(digests(pictures), SIZE, tmp_path / "cache")
    assert isinstance(found, torch.Tensor) and found.shape == (20, 3, SIZE, SIZE)
    assert torch.equal(found, decoding.read(pictures, SIZE))
    np.testing.assert_array_equal(np.load(file), found.numpy())
    names = {path.suffix for path in (tmp_path / "cache").iterdir()}
    assert names <= {".npy", ".json", ".lock"}, names


def test_found_by_content_in_any_order_and_part(pictures, tmp_path):
    cache = tmp_path / "cache"
    pixels.prepare(pictures, SIZE, cache)
    truth = decoding.read(pictures, SIZE)
    moved = [path.rename(path.with_name("moved" + path.name)) for path in pictures]
    assert torch.equal(find(digests(moved[3:7]), SIZE, cache), truth[3:7])
    backwards = find(digests(moved[::-2]), SIZE, cache)
    assert backwards.shape == (10, 3, SIZE, SIZE) and backwards.dtype == torch.uint8 and backwards.ndim == 4
    assert torch.equal(values(backwards), truth.flip(0)[::2])
    assert torch.equal(values(backwards[2:5]), truth.flip(0)[::2][2:5])

    assert find(digests(moved), SIZE + 1, cache) is None
    Image.new("RGB", (9, 9), "red").save(moved[2])
    assert find(digests(moved), SIZE, cache) is None
    assert find(digests(moved[3:]), SIZE, cache) is not None


def test_equal_files_share_a_row(pictures, tmp_path):
    pictures[5].write_bytes(pictures[1].read_bytes())
    file = pixels.prepare(pictures, SIZE, tmp_path / "cache")
    assert len(np.load(file)) == 19
    found = find(digests(pictures), SIZE, tmp_path / "cache")
    assert torch.equal(values(found), decoding.read(pictures, SIZE))


def test_what_is_prepared_is_not_decoded_again(pictures, tmp_path, monkeypatch):
    file = pixels.prepare(pictures[:15], SIZE, tmp_path / "cache")
    decoded, decode = [], decoding.decode
    monkeypatch.setattr(decoding, "decode", lambda path, size: decoded.append(path) or decode(path, size))
    assert pixels.prepare(pictures[4:9], SIZE, tmp_path / "cache") == file and not decoded


def test_another_decoding_rule_is_another_file(pictures, tmp_path, monkeypatch):
    pixels.prepare(pictures, SIZE, tmp_path / "cache")
    monkeypatch.setattr(decoding, "RULE", "another")
    assert find(digests(pictures), SIZE, tmp_path / "cache") is None


def test_killed_half_way_and_started_again(pictures, tmp_path):
    """SIGKILL at the third flush of five; the second start decodes only the rest, to the same bytes."""
    whole = pixels.prepare(pictures, SIZE, tmp_path / "whole")
    program = """
        import os, signal, sys
        from pathlib import Path
        from spml_core.data.files import decoding, pixels, store

        pixels.BATCH, store.FLUSHED, folder = 4, 1, Path(sys.argv[1])
        record, decode, number = store.write_whole, decoding.decode, []

        def kill_at_third(file, rows):
            record(file, rows)
            if file.suffix == ".rows":
                number.append(rows)
            if sys.argv[2] == "kill" and len(number) == 3:
                os.kill(os.getpid(), signal.SIGKILL)

        def counted(path, size):
            with open(folder / "decoded", "a") as log:
                log.write(f"{sys.argv[2]} {path.name}\\n")
            return decode(path, size)

        store.write_whole, decoding.decode = kill_at_third, counted
        pixels.prepare(sorted(folder.glob("*.png")), 8, folder / "cache")
    """

    def start(mode):
        command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path), mode]
        return subprocess.run(command, check=False, timeout=60).returncode

    assert start("kill") == -signal.SIGKILL
    assert not list((tmp_path / "cache").glob("*.npy"))
    assert find(digests(pictures), SIZE, tmp_path / "cache") is None
    assert start("finish") == 0
    (file,) = (tmp_path / "cache").glob("*.npy")
    assert file.name == whole.name and file.read_bytes() == whole.read_bytes()
    again = [line for line in (tmp_path / "decoded").read_text().splitlines() if line.startswith("finish")]
    assert sorted(line.split()[1] for line in again) == [path.name for path in pictures[12:]]


def test_rows_beyond_the_last_flush_are_made_again(pictures, tmp_path, chunked, monkeypatch):
    """After a power cut the file may be longer than what is certain, and hold anything there."""
    cache, record = tmp_path / "cache", store.write_whole

    def stop(file, rows):
        if rows == "8":
            raise KeyboardInterrupt
        record(file, rows)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(store, "write_whole", stop)
        pixels.prepare(pictures, SIZE, cache)
    (draft,) = cache.glob("*.partial")
    with open(draft, "ab") as out:
        out.write(b"noise")
    file = pixels.prepare(pictures, SIZE, cache)
    np.testing.assert_array_equal(np.load(file), decoding.read(pictures, SIZE))


def test_too_little_room_is_said_before_anything_is_decoded(pictures, tmp_path, monkeypatch):
    monkeypatch.setattr(store.shutil, "disk_usage", lambda folder: SimpleNamespace(free=20 * ROW - 1))
    monkeypatch.setattr(decoding, "decode", lambda *args: pytest.fail("decoded"))
    with pytest.raises(DataError, match=r"0\.0 MB are needed in .*cache and 0\.0 MB are free"):
        pixels.prepare(pictures, SIZE, tmp_path / "cache")


def test_full_disk_keeps_what_is_written(pictures, tmp_path, chunked, monkeypatch):
    cache, sync, calls = tmp_path / "cache", store.os.fsync, []

    def full(out):
        calls.append(out)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(out)

    with monkeypatch.context() as patch:
        patch.setattr(store.os, "fsync", full)
        with pytest.raises(OSError, match="No space left on device"):
            pixels.prepare(pictures, SIZE, cache)
    (record,) = cache.glob("*.rows")
    assert record.read_text() == "8"
    file = pixels.prepare(pictures, SIZE, cache)
    np.testing.assert_array_equal(np.load(file), decoding.read(pictures, SIZE))


def test_bad_images_are_all_named_before_any_is_written(pictures, tmp_path, chunked, monkeypatch):
    for n in (9, 17):
        pictures[n].write_bytes(pictures[n].read_bytes()[:-40])
    monkeypatch.setattr(decoding, "decode", lambda *args: pytest.fail("decoded"))
    with pytest.raises(DataError, match="2 of 20") as error:
        pixels.prepare(pictures, SIZE, tmp_path / "cache")
    assert str(pictures[9]) in str(error.value) and str(pictures[17]) in str(error.value)


def test_damaged_file_is_not_used(pictures, tmp_path):
    file = pixels.prepare(pictures, SIZE, tmp_path / "cache")
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.warns(UserWarning, match=r"pixels-8.*damaged"):
        assert find(digests(pictures), SIZE, tmp_path / "cache") is None
    with pytest.warns(UserWarning, match="damaged"):
        assert pixels.prepare(pictures, SIZE, tmp_path / "cache") == file
    assert find(digests(pictures), SIZE, tmp_path / "cache") is not None


def test_command_and_the_training_data_it_makes(pictures, tmp_path):
    rows = [f"{path.name},{'test' if n % 5 == 0 else 'train'},a" for n, path in enumerate(pictures)]
    (tmp_path / "labels.csv").write_text("\n".join(["image,split,labels", *rows[:-1], f"{rows[-1]};b"]))
    options = {"root": tmp_path, "size": SIZE, "cache_dir": tmp_path / "runs" / "cache"}
    before = load("folder", **options)
    command = ["data", "prepare", "folder", "--root", str(tmp_path), "--size", str(SIZE)]
    command += ["--runs-dir", str(tmp_path / "runs")]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    (file,) = (tmp_path / "runs" / "cache").glob("*.npy")
    assert "20 images of 8x8" in result.output and str(file) in result.output
    assert "already prepared" in CliRunner().invoke(main, command).output

    for path in pictures:  # what is read from now on is the prepared file: pixels changed there are seen
        assert path.exists()
    content = np.lib.format.open_memmap(file, "r+")
    content[:] = 255 - content
    content.flush()
    after = load("folder", **options)
    assert after.fingerprint == before.fingerprint
    for split, part in before.parts.items():
        assert torch.equal(values(after.parts[split].inputs), 255 - part.inputs)

    pictures[3].unlink()
    missing = CliRunner().invoke(main, command)
    assert missing.exit_code == 1 and "1 of 20 images is missing" in missing.output
    assert str(pictures[3]) in missing.output


def test_the_size_is_that_of_training_and_what_was_read_is_said(pictures, tmp_path):
    rows = [
        f"{path.name},{('train', 'val', 'test')[n % 3]},{'ab'[n // 3 % 2]}" for n, path in enumerate(pictures)
    ]
    (tmp_path / "labels.csv").write_text("\n".join(["image,split,labels", *rows]))
    root, runs = ["--root", str(tmp_path)], ["--runs-dir", str(tmp_path / "my runs")]

    refused = CliRunner().invoke(main, ["data", "prepare", "folder", *root, *runs, "-d", "size", "448"])
    assert refused.exit_code == 2 and "--size 448" in refused.output

    made = CliRunner().invoke(main, ["data", "prepare", "folder", *root, *runs])
    assert made.exit_code == 0 and "20 images of 224x224 pixels" in made.output
    other = CliRunner().invoke(
        main, ["data", "prepare", "folder", *root, *runs, "--size", "16", "-d", "min_images", "2"]
    )
    command = shlex.split(other.output.split("To train from it: ")[1])[1:]
    assert command[:3] == ["train", "--dataset", "folder"] and command[-5:-2] == ["-d", "size", "16"]

    more = ["--mode", "end_to_end", "--backbone", "resnet18", "--epochs", "1", "--batch-size", "16"]
    result = CliRunner().invoke(main, [*command, *more])
    assert result.exit_code == 0, result.output
    assert "; pixels prepared at 16 (pixels-16-" in result.output
    load_options = {"root": tmp_path, "cache_dir": tmp_path / "my runs" / "cache"}
    assert load("folder", **load_options).notes["inputs"].startswith("pixels prepared at 224 (pixels-224-")
    assert (
        load("folder", size=9, **load_options).notes["inputs"]
        == "decoded from files at 9 pixels, into memory"
    )
