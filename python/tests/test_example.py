"""The checkpoint in examples/checkpoint is what its README says it is."""

import gzip
import math
import os
import re
import sys
from pathlib import Path

import octavo
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")
FOLDER = Path(__file__).resolve().parents[2] / "examples" / "checkpoint"
sys.path.insert(0, str(FOLDER))
import llama  # noqa: E402
import measure  # noqa: E402
import train  # noqa: E402

README = (FOLDER / "README.md").read_text()


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_it_is_small():
    files = [FOLDER / "model" / "model.safetensors", FOLDER / "stats.safetensors"]
    assert sum(file.stat().st_size for file in files) < 4e6


def test_statistics_are_of_all_its_layers():
    model = llama.load(FOLDER / "model")
    statistics = octavo._core.Statistics.read(FOLDER / "stats.safetensors")
    linear = [n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)]
    assert len(linear) == 29
    for name in linear:
        layer = statistics.layer(name)
        assert (layer is None) == (name == "lm_head")
        if layer is not None:
            assert layer["sample"].shape == (32, model.get_submodule(name).in_features)
            assert layer["histogram"].sum() == layer["count"] * layer["absmax"].size


def test_outliers_leave_the_model_as_it_was(monkeypatch):
    text = (FOLDER / "held_out.txt").read_bytes()[:257]
    tokens = llama.windows(text, 128)[:, :-1]
    model = llama.load(FOLDER / "model")
    gains = model.model.layers[0].input_layernorm.weight.detach().clone()
    with torch.no_grad():
        before = model(tokens)
        undo = {channel: 1 / factor for channel, factor in train.OUTLIERS.items()}
        monkeypatch.setattr(train, "OUTLIERS", undo)
        train.provoke_outliers(model)
        assert torch.equal(model(tokens), before)
    for channel, factor in undo.items():
        assert model.model.layers[0].input_layernorm.weight[channel] == gains[channel] * factor


def test_readme_has_what_is_measured():
    command = os.environ.get("OCTAVO_COMMAND")
    if command is None:
        pytest.skip("OCTAVO_COMMAND names no command octavo")
    rows = re.findall(r"^\| (.+) \| ([\d,]+) \| ([\d.]+) \|", README, re.MULTILINE)
    assert [name for name, _, _ in rows][1:] == list(measure.SCHEMES)
    table = {name: (size, perplexity) for name, size, perplexity in rows}
    # Debian's PyTorch is slow: one of each kind.
    some = (
        "w8a8-dynamic",
        "w8a8-static",
        "w8a8-static, smoothed",
        "w8a16",
        "w4a8-group, groups of 32, smoothed",
        "w4a16-group, groups of 32",
    )
    found = measure.measure(Path(command), {name: measure.SCHEMES[name] for name in some})
    assert len(found) == len(some) + 1
    for name, got_size, loss in found:
        size, perplexity = table[name]
        assert int(size.replace(",", "")) == got_size, name
        # PyTorch adds in another order on another machine.
        assert math.exp(loss) == pytest.approx(float(perplexity), rel=1e-3), name
    worth = float(re.search(r"([\d.]+) nats a byte", README)[1])
    assert found[0][2] == pytest.approx(worth, rel=1e-3)


def test_training_writes_what_the_folder_holds(tmp_path, monkeypatch, capsys):
    held_out = (FOLDER / "held_out.txt").read_bytes()[:1000]
    text = b"notes PREFACE " + held_out * 2
    monkeypatch.setattr(train, "HELD_OUT", len(held_out))
    monkeypatch.setattr(train, "BATCH", 4)
    (tmp_path / "text.dz").write_bytes(gzip.compress(text))
    monkeypatch.setattr(
        "sys.argv",
        ["train.py", "--text", str(tmp_path / "text.dz"), "--out", str(tmp_path), "--steps", "2"],
    )
    try:
        train.main()
    finally:
        torch.use_deterministic_algorithms(False)
    assert "held-out loss" in capsys.readouterr().out
    ours, made = (llama.read_tensors(d / "model") for d in (FOLDER, tmp_path))
    assert {n: (t.shape, t.dtype) for n, t in ours.items()} == {
        n: (t.shape, t.dtype) for n, t in made.items()
    }
    assert llama.read_config(FOLDER / "model") == llama.read_config(tmp_path / "model")
    assert (tmp_path / "held_out.txt").read_bytes() == held_out


def test_the_page_on_accuracy_has_its_rows():
    page = (FOLDER.parents[1] / "docs" / "accuracy.md").read_text()
    section = page.split("## A language model")[1].split("##")[0]
    rows = [row for row in section.splitlines() if re.match(r"\| .+ \| [\d,]+ \|", row)]
    assert len(rows) == 8
    assert set(rows) <= set(README.splitlines())
