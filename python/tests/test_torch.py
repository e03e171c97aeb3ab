"""octavo.torch: gradients, whole models, calibration and smoothing."""

import copy
import doctest

import numpy as np
import octavo
import pytest

torch = pytest.importorskip("torch")
import octavo.torch  # noqa: E402
from octavo.torch import _autograd, _calibrate, _model, _modules, _smooth  # noqa: E402


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("module", [octavo.torch, _autograd, _calibrate, _model, _modules, _smooth])
def test_examples(module):
    result = doctest.testmod(module, globs={"octavo": octavo, "torch": torch, "np": np})
    assert result.attempted > 0
    assert result.failed == 0


def test_torch_is_found_as_an_attribute():
    assert octavo.torch.QuantizedLinear is _modules.QuantizedLinear


# ---- gradients


@pytest.mark.parametrize("profile", ["torch", "onnx"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_fake_quantize_passes_gradients_straight_through(dtype, profile):
    x = torch.linspace(-3, 3, 101, dtype=torch.float64).to(dtype).requires_grad_()
    dy = torch.randn(101, dtype=torch.float64).to(dtype)
    y = octavo.torch.fake_quantize(x, 0.25, 1, q_min=-8, q_max=7, profile=profile)
    y.backward(dy)
    v = x.detach().double() / 0.25
    inside = (v.round() + 1 >= -8) & (v.round() + 1 <= 7)
    assert torch.equal(x.grad, torch.where(inside, dy, torch.zeros_like(dy)))
    q = (v.round() + 1).clamp(-8, 7)
    assert torch.equal(y.detach().double(), ((q - 1) * 0.25).to(dtype).double())


def test_fake_quantize_per_channel_agrees_with_pytorch():
    x = torch.randn(5, 7, requires_grad=True)
    other = x.detach().clone().requires_grad_()
    scale = torch.rand(5) / 10 + 0.01
    zero_point = torch.randint(-5, 5, (5,), dtype=torch.int32)
    y = octavo.torch.fake_quantize(x, scale, zero_point, axis=0)
    expected = torch.fake_quantize_per_channel_affine(other, scale, zero_point, 0, -128, 127)
    assert torch.equal(y, expected)
    dy = torch.rand(5, 7)
    y.backward(dy)
    expected.backward(dy)
    assert torch.equal(x.grad, other.grad)


def test_quantize_has_the_gradient_of_a_division():
    x = torch.tensor([0.3, -0.2, 40.0, -40.0], requires_grad=True)
    q = octavo.torch.quantize(x, 0.25, dtype="s8")
    assert q.tolist() == [1, -1, 127, -128]
    q.backward(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert x.grad.tolist() == [4, 8, 0, 0]


def test_training_through_fake_quantize_learns():
    inputs = torch.randn(64, 8)
    target = inputs @ torch.randn(8, 1)
    weight = torch.zeros(1, 8, requires_grad=True)
    losses = []
    for _ in range(60):
        y = inputs @ octavo.torch.fake_quantize(weight, 0.05, q_min=-127).T
        loss = (y - target).square().mean()
        losses.append(loss.item())
        loss.backward()
        with torch.no_grad():
            weight -= 0.1 * weight.grad
            weight.grad = None
    assert losses[-1] < losses[0] / 50


# ---- models


class Block(torch.nn.Module):
    """A block of a Llama, without attention's mixing."""

    def __init__(self, size):
        super().__init__()
        self.input_layernorm = RmsNorm(size)
        self.self_attn = torch.nn.Module()
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self.self_attn, name, torch.nn.Linear(size, size, bias=False))
        self.post_attention_layernorm = RmsNorm(size)
        self.mlp = torch.nn.Module()
        self.mlp.gate_proj = torch.nn.Linear(size, 2 * size, bias=False)
        self.mlp.up_proj = torch.nn.Linear(size, 2 * size, bias=False)
        self.mlp.down_proj = torch.nn.Linear(2 * size, size, bias=False)

    def forward(self, x):
        h = self.input_layernorm(x)
        a = self.self_attn
        x = x + a.o_proj(a.q_proj(h) + a.k_proj(h) + a.v_proj(h))
        h = self.post_attention_layernorm(x)
        m = self.mlp
        return x + m.down_proj(torch.nn.functional.silu(m.gate_proj(h)) * m.up_proj(h))


class RmsNorm(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class Llama(torch.nn.Module):
    def __init__(self, size=16, layers=2):
        super().__init__()
        self.model = torch.nn.Module()
        self.model.embed_tokens = torch.nn.Embedding(50, size)
        self.model.layers = torch.nn.ModuleList(Block(size) for _ in range(layers))
        self.model.norm = RmsNorm(size)
        self.lm_head = torch.nn.Linear(size, 50, bias=False)
        with torch.no_grad():  # outliers, as real models have them
            for block in self.model.layers:
                block.input_layernorm.weight[3] = 30

    def forward(self, tokens):
        x = self.model.embed_tokens(tokens)
        for block in self.model.layers:
            x = block(x)
        return self.lm_head(self.model.norm(x))


def batches(count=4):
    return [torch.randint(0, 50, (2, 6)) for _ in range(count)]


def error_of(model, expected, tokens):
    with torch.no_grad():
        return float((model(tokens) - expected).norm() / expected.norm())


def test_quantize_model_replaces_linears_and_says_so():
    model = Llama()
    tokens = batches(1)[0]
    with torch.no_grad():
        expected = model(tokens)
    report = octavo.torch.quantize_model_(model)
    assert len(report.quantized) == 14
    assert report.kept == ["lm_head"]
    assert "lm_head" in str(report) and "14 layers quantized, 1 kept" in str(report)
    assert isinstance(model.model.layers[0].mlp.up_proj, octavo.torch.QuantizedLinear)
    assert isinstance(model.lm_head, torch.nn.Linear)
    assert 0 < error_of(model, expected, tokens) < 0.1


def test_quantize_model_ignores_by_name_and_by_expression():
    model = Llama()
    report = octavo.torch.quantize_model_(
        model, ignore=["model.layers.0.*", r"re:.*down_proj", "lm_head"]
    )
    assert report.quantized == [
        name
        for name, module in Llama().named_modules()
        if isinstance(module, torch.nn.Linear) and "layers.1" in name and "down" not in name
    ]
    with pytest.raises(octavo.Error, match="matches none"):
        octavo.torch.quantize_model_(Llama(), ignore=["no.such.*"])
    with pytest.raises(octavo.Error, match="got none"):
        octavo.torch.quantize_model_(Llama(), ignore=["*"])
    with pytest.raises(octavo.Error, match="scheme"):
        octavo.torch.quantize_model_(Llama(), scheme="other")
    with pytest.raises(octavo.Error, match="statistics"):
        octavo.torch.quantize_model_(Llama(), scheme="static")


def test_a_shared_layer_stays_shared_and_attention_is_left_alone():
    shared = torch.nn.Linear(4, 4)
    model = torch.nn.Sequential(shared, torch.nn.ReLU(), shared)
    octavo.torch.quantize_model_(model, ignore=())
    assert model[0] is model[2]
    attention = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    report = octavo.torch.quantize_model_(attention, ignore=())
    assert report.quantized == ["linear1", "linear2"]


def test_calibration_does_not_depend_on_the_order_of_batches(tmp_path):
    model = Llama()
    data = batches()
    files = []
    for i, order in enumerate((data, data[::-1])):
        files.append(tmp_path / f"{i}.safetensors")
        octavo.torch.calibrate(model, order, path=files[-1], sample_rows=5, show_progress=False)
    assert files[0].read_bytes() == files[1].read_bytes()
    # In two files that are merged, too.
    halves = [
        octavo.torch.calibrate(model, half, sample_rows=5, show_progress=False)
        for half in (data[:1], data[1:])
    ]
    halves[1].merge(halves[0])
    halves[1].write(tmp_path / "merged.safetensors")
    assert (tmp_path / "merged.safetensors").read_bytes() == files[0].read_bytes()
    again = octavo.Statistics.read(files[0])
    assert again.layers() == halves[1].layers()
    assert again.layer("lm_head")["count"] == 4 * 12
    assert again.layer("nothing") is None


def test_calibrate_makes_histograms_of_any_size():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    batches = [torch.randn(5, 2)]

    def bins(**options):
        found = octavo.torch.calibrate(model, batches, show_progress=False, **options)
        return found.layer("0")["histogram"].size

    assert bins() == 2**16
    assert bins(histogram_bits=0) == 2**9
    assert bins(histogram=False, histogram_bits=3) == 0
    with pytest.raises(octavo.Error, match="histogram_bits: expected"):
        bins(histogram_bits=8)


def test_calibration_sees_what_goes_in():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3))
    x = torch.tensor([[1.0, -2.0, 0.5], [-4.0, 1.0, 0.25]])
    found = octavo.torch.calibrate(model, [(x,), {"input": x}], show_progress=False).layer("0")
    assert found["absmax"].tolist() == [4, 2, 0.5]
    assert found["min"].tolist() == [-4, -2, 0]
    assert found["max"].tolist() == [1, 1, 0.5]
    assert found["count"] == 4
    assert found["histogram"].sum() == 12
    assert len(found["sample"]) == 2  # equal rows count once
    assert not model[0]._forward_pre_hooks


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.8, 1.0, "auto"])
def test_smoothing_leaves_the_float_model_as_it_was(alpha):
    model = Llama()
    tokens = batches(1)[0]
    with torch.no_grad():
        expected = model(tokens)
    statistics = octavo.torch.calibrate(model, batches(), show_progress=False)
    before = model.model.layers[0].input_layernorm.weight.detach().clone()
    report = octavo.torch.smooth_(model, statistics, alpha=alpha)
    assert [pair.norm for pair in report] == [
        f"model.layers.{i}.{norm}"
        for i in range(2)
        for norm in ("input_layernorm", "post_attention_layernorm")
    ]
    assert all(0 <= pair.alpha <= 1 for pair in report)
    assert not torch.equal(model.model.layers[0].input_layernorm.weight, before)
    assert error_of(model, expected, tokens) < 1e-5


def test_smoothing_helps_static_scales():
    errors = []
    for smooth in (False, True):
        torch.manual_seed(1)
        model = Llama(size=64)
        data = batches(16)
        tokens = data[0]
        with torch.no_grad():
            expected = model(tokens)
        statistics = octavo.torch.calibrate(model, data, show_progress=False)
        if smooth:
            octavo.torch.smooth_(model, statistics)
            statistics = octavo.torch.calibrate(model, data, show_progress=False)
        octavo.torch.quantize_model_(model, scheme="static", statistics=statistics)
        errors.append(error_of(model, expected, tokens))
    assert errors[1] < errors[0] / 2


@pytest.mark.parametrize("alpha", [0.8, "auto"])
def test_layers_smoothed_by_themselves_need_no_pairs(alpha):
    torch.manual_seed(2)
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Tanh(), torch.nn.Linear(32, 8))
    x = torch.randn(64, 32)
    x[:, 5] *= 50
    with torch.no_grad():
        expected = model(x)
    statistics = octavo.torch.calibrate(model, [x], show_progress=False)
    errors = []
    for given in (None, alpha):
        quantized = copy.deepcopy(model)
        octavo.torch.quantize_model_(quantized, scheme="static", statistics=statistics, alpha=given)
        errors.append(error_of(quantized, expected, x))
    assert errors[1] < errors[0] / 2


def test_a_refused_model_is_left_as_it_was():
    model = Llama()
    statistics = octavo.torch.calibrate(model, batches(), show_progress=False)
    for options, word in (
        ({"scheme": "static", "alpha": 1.5}, "alpha"),
        ({"scheme": "static", "alpha": "best"}, "alpha"),
        ({"alpha": 0.5}, "alpha: expected None for scheme 'dynamic'"),
    ):
        with pytest.raises(octavo.Error, match=word):
            octavo.torch.quantize_model_(model, statistics=statistics, **options)
        assert isinstance(model.model.layers[0].mlp.up_proj, torch.nn.Linear)


def test_a_shared_layer_has_one_static_scale():
    shared = torch.nn.Linear(4, 4)
    model = torch.nn.Sequential(shared, torch.nn.ReLU(), shared)
    statistics = octavo.torch.calibrate(model, [torch.randn(3, 4)], show_progress=False)
    report = octavo.torch.quantize_model_(model, scheme="static", statistics=statistics)
    assert report.quantized == ["0", "2"] and model[0] is model[2]


def test_smoothing_refuses_what_it_does_not_know():
    model = torch.nn.Sequential(torch.nn.LayerNorm(4), torch.nn.Linear(4, 4))
    statistics = octavo.torch.calibrate(model, [torch.randn(3, 4)], show_progress=False)
    with pytest.raises(octavo.Error, match="architecture"):
        octavo.torch.smooth_(model, statistics)
    for pairs in ([("0", ["7"])], [("7", ["1"])]):
        with pytest.raises(octavo.Error, match="'7'"):
            octavo.torch.smooth_(model, statistics, pairs=pairs)
    with pytest.raises(octavo.Error, match="alpha"):
        octavo.torch.smooth_(model, statistics, pairs=[("0", ["1"])], alpha=1.5)
    with pytest.raises(octavo.Error, match="alpha"):
        octavo.torch.smooth_(model, statistics, pairs=[("0", ["1"])], alpha="best")
    with pytest.raises(octavo.Error, match="statistics"):
        octavo.torch.smooth_(model, octavo.Statistics(), pairs=[("0", ["1"])])
