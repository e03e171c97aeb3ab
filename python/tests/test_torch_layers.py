"""octavo.torch: QuantizedLinear and SmoothQuantLinear."""

import copy
import pickle

import numpy as np
import octavo
import pytest

torch = pytest.importorskip("torch")
import octavo.torch  # noqa: E402


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def reference(layer, x):
    """What a quantized layer computes, by the functions of the package."""
    q, scale, _ = octavo.quantize_dynamic(layer.weight.detach())
    bias = None if layer.bias is None else layer.bias.detach()
    return octavo.linear(x, q, scale, bias)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_quantized_linear_is_octavo_linear(dtype, bias):
    layer = torch.nn.Linear(33, 17, bias=bias).to(dtype)
    quantized = octavo.torch.QuantizedLinear.from_float(layer)
    x = torch.randn(2, 3, 33).to(dtype)
    y = quantized(x)
    assert y.dtype == dtype and y.shape == (2, 3, 17)
    assert torch.equal(y, reference(layer, x))
    exact = torch.nn.functional.linear(
        x.double(), layer.weight.detach().double(), None if not bias else layer.bias.double()
    )
    assert (y.double() - exact).norm() / exact.norm() < 0.03


def test_smoothquant_linear_is_quantize_and_smoothquant_linear():
    layer = torch.nn.Linear(33, 17)
    x = torch.randn(5, 33)
    scale = float(x.abs().max()) / 127
    quantized = octavo.torch.SmoothQuantLinear.from_float(layer, act_scale=scale)
    scale = float(np.float32(scale))
    q, w_scale, _ = octavo.quantize_dynamic(layer.weight.detach())
    expected = octavo.smoothquant_linear(
        octavo.quantize(x, scale), scale, q, w_scale, layer.bias.detach()
    )
    assert torch.equal(quantized(x), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_smoothing_is_folded_into_the_quantization_of_the_input(dtype):
    layer = torch.nn.Linear(33, 17).to(dtype)
    x = torch.randn(5, 33).to(dtype)
    x[:, 3] *= 100  # an outlier
    smoothing = torch.linspace(0.5, 2, 33)
    smoothing[3] = 10
    scale = np.float32(float((x.double() / smoothing).abs().max()) / 127)
    quantized = octavo.torch.SmoothQuantLinear.from_float(
        layer, act_scale=float(scale), smoothing=smoothing
    )
    q, w_scale, _ = octavo.quantize_dynamic(layer.weight.detach() * smoothing)
    x_q = octavo.quantize(x, smoothing * torch.tensor(scale), axis=-1)
    y = quantized(x)
    name = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16"}.get(dtype, "bf16")
    bias = layer.bias.detach()
    expected = octavo.smoothquant_linear(x_q, float(scale), q, w_scale, bias, out_dtype=name)
    assert y.dtype == dtype and torch.equal(y, expected)
    other = octavo.torch.SmoothQuantLinear.from_float(
        layer, act_scale=1.0, smoothing=torch.ones(33)
    )
    other.load_state_dict(quantized.state_dict())
    assert torch.equal(other(x), y)
    assert "smoothed" in repr(quantized)
    exact = x.double() @ layer.weight.detach().double().T + bias.double()
    plain = octavo.torch.SmoothQuantLinear.from_float(layer, act_scale=float(x.abs().max()) / 127)
    assert (y.double() - exact).norm() < (plain(x).double() - exact).norm() / 2


def test_smoothing_of_another_size_is_refused():
    with pytest.raises(octavo.Error, match=r"smoothing: expected shape \(4,\).*got \(3,\)"):
        octavo.torch.SmoothQuantLinear.from_float(
            torch.nn.Linear(4, 2), act_scale=1.0, smoothing=torch.ones(3)
        )
    absmax = np.float32([1, 4, 2])
    assert octavo._core.static_scale(absmax, np.float32([1, 8, 1])) == np.float32(2) / np.float32(
        127
    )
    for size in (2, 4):
        with pytest.raises(octavo.Error, match=f"smoothing: expected 3 numbers, got {size}"):
            octavo._core.static_scale(absmax, np.ones(size, np.float32))


def test_layers_are_saved_loaded_copied_and_pickled():
    layer = octavo.torch.QuantizedLinear.from_float(torch.nn.Linear(8, 4))
    x = torch.randn(3, 8)
    y = layer(x)
    other = octavo.torch.QuantizedLinear.from_float(torch.nn.Linear(8, 4))
    assert not torch.equal(other(x), y)
    other.load_state_dict(layer.state_dict())  # writes the buffer in place: packed afresh
    assert torch.equal(other(x), y)
    assert torch.equal(copy.deepcopy(layer)(x), y)
    assert torch.equal(pickle.loads(pickle.dumps(layer))(x), y)


def test_layers_made_or_written_in_inference_mode():
    float_layers = [torch.nn.Linear(8, 4) for _ in range(2)]
    x = torch.randn(3, 8)
    expected = [octavo.torch.QuantizedLinear.from_float(layer)(x) for layer in float_layers]
    with torch.inference_mode():
        made, other = map(octavo.torch.QuantizedLinear.from_float, float_layers)
        assert torch.equal(made(x), expected[0])
    assert torch.equal(made(x), expected[0])
    with torch.inference_mode():
        made.load_state_dict(other.state_dict())  # packed afresh all the same
        assert torch.equal(made(x), expected[1])


def test_layers_use_the_threads_of_pytorch(monkeypatch):
    layer = octavo.torch.QuantizedLinear.from_float(torch.nn.Linear(8, 4))
    static = octavo.torch.SmoothQuantLinear.from_float(torch.nn.Linear(8, 4), act_scale=0.1)
    seen = []
    for module, name in (
        (octavo._linear, "linear"),
        (octavo._functions, "quantize"),
        (octavo._linear, "smoothquant_linear"),
    ):
        call = getattr(module, name)

        def spy(*args, call=call, **options):
            seen.append(options["stream"].threads)
            return call(*args, **options)

        monkeypatch.setattr(module, name, spy)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            layer(torch.ones(2, 8))
            static(torch.ones(2, 8))
    finally:
        torch.set_num_threads(before)
    assert seen == [1, 1, 1, 2, 2, 2]


def test_layers_run_between_float_ones_but_have_no_gradient():
    linear = torch.nn.Linear(8, 4)
    x = torch.randn(3, 8, requires_grad=True)
    for layer in (
        octavo.torch.QuantizedLinear.from_float(linear),
        octavo.torch.SmoothQuantLinear.from_float(linear, act_scale=0.02),
    ):
        y = layer(x)
        with torch.no_grad():
            assert torch.equal(y, layer(x))
        with pytest.raises(octavo.Error, match="no_grad"):
            y.sum().backward()
