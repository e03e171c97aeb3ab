"""Tensors on a GPU; by objects that look like them, where PyTorch has no CUDA."""

import subprocess
import sys
from pathlib import Path

import octavo
import pytest

torch = pytest.importorskip("torch")
if not octavo.cuda.is_available():
    pytest.skip("there is no CUDA device", allow_module_level=True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this PyTorch has CUDA")
def test_with_what_looks_like_tensors():
    program = Path(__file__).parent / "cuda_tensors.py"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", program],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout and "skipped" not in done.stdout


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this PyTorch has no CUDA")
def test_with_pytorchs_own():
    from devices import bits

    torch.manual_seed(1)
    x = torch.randn(8, 64)
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            q, scale, _ = octavo.quantize_dynamic(x.cuda())
            assert q.is_cuda and scale.is_cuda
            for got, want in zip((q, scale), octavo.quantize_dynamic(x)[:2], strict=True):
                assert bits(got.cpu()) == bits(want)
            scale[0] = 0
            octavo.dequantize(q, scale, axis="token")
            octavo.quantize(x.cuda(), scale, axis="token")
            with pytest.raises(octavo.Error, match="^scale: "):
                octavo.cuda.synchronize()
    for scheme in ("w8a8-dynamic", "w8a16", "w4a8-group", "w4a16-group"):
        named = {"group_size": 16} if "group" in scheme else {}
        layer = octavo.torch.QuantizedLinear.from_float(
            torch.nn.Linear(64, 24), scheme=scheme, **named
        )
        want = layer(x)
        assert bits(layer.to("cuda")(x.cuda()).cpu()) == bits(want)
        assert bits(layer.to("cpu")(x)) == bits(want)
    layer = octavo.torch.SmoothQuantLinear.from_float(torch.nn.Linear(64, 24), 0.03)
    want = layer(x)
    assert bits(layer.to("cuda")(x.cuda()).cpu()) == bits(want)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Linear(32, 8)).cuda()
    octavo.torch.quantize_model_(model)
    assert model(x.cuda()).is_cuda
