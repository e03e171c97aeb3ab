"""octavo.torch where it meets the rest of PyTorch: modes, types, hooks, fused kernels; refusals."""

import copy

import numpy as np
import octavo
import pytest

torch = pytest.importorskip("torch")
nn = torch.nn
import octavo.torch  # noqa: E402
from octavo.torch import QuantizedLinear, SmoothQuantLinear, calibrate, smooth_  # noqa: E402
from octavo.torch import quantize_model_ as quantize_model  # noqa: E402


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


X = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))


def layers():
    linear = nn.Linear(8, 4)
    return [
        QuantizedLinear.from_float(linear),
        SmoothQuantLinear.from_float(linear, 0.05),
        SmoothQuantLinear.from_float(linear, 0.05, smoothing=torch.linspace(0.5, 2, 8)),
        QuantizedLinear.from_float(linear, scheme="w8a16"),
        QuantizedLinear.from_float(linear, scheme="w4a8-group", group_size=4),
        QuantizedLinear.from_float(linear, scheme="w4a16-group", group_size="channel"),
    ]


def quiet(model, batches=(X,), **options):
    return calibrate(model, batches, show_progress=False, **options)


# ---- gradients


def test_the_gradient_is_that_of_the_scale_the_values_were_quantized_with():
    for scale in (torch.tensor(0.1), np.array([0.1])):
        x = torch.full((3,), 20.0, requires_grad=True)
        y = octavo.torch.fake_quantize(x, scale)  # beyond 12.7
        scale[...] = 10.0
        y.sum().backward()
        assert x.grad.tolist() == [0, 0, 0]


def test_a_gradient_of_a_gradient_is_refused_and_not_wrong():
    x = torch.ones(3, requires_grad=True)
    y = octavo.torch.fake_quantize(x, 0.1)
    (dx,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dx.sum().backward()


@pytest.mark.parametrize("function", [octavo.torch.quantize, octavo.torch.fake_quantize])
def test_gradients_refuse(function):
    with pytest.raises(octavo.Error, match="^x: expected a torch.Tensor, got ndarray"):
        function(np.ones(3, np.float32), 0.1)
    with pytest.raises(octavo.Error, match="^out: "):
        function(X, 0.1, out=torch.empty(5, 8))
    with pytest.raises(octavo.Error, match="^profile: "):
        function(X, 0.1, profile="other")


def test_packed_integers_have_no_gradient():
    for dtype in ("s4", "u4"):
        with pytest.raises(octavo.Error, match="^dtype: expected 's8' or 'u8'"):
            octavo.torch.quantize(X, 0.1, dtype=dtype)


# ---- layers


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_scales_stay_exact_when_a_model_changes_its_type(dtype):
    for layer in layers():
        moved = copy.deepcopy(layer).to(dtype)
        assert torch.equal(moved.weight_scale.float(), layer.weight_scale)
        assert moved.bias.dtype == moved.weight.dtype == moved(X.to(dtype)).dtype == dtype
        if isinstance(layer, SmoothQuantLinear):
            assert float(moved.act_scale) == float(layer.act_scale)
            if layer.input_scale is not None:
                assert torch.equal(moved.input_scale.float(), layer.input_scale)


def test_a_layer_shows_its_weight():
    for dtype in (torch.float32, torch.bfloat16):
        linear = nn.Linear(8, 4).to(dtype)
        for layer in (
            QuantizedLinear.from_float(linear),
            SmoothQuantLinear.from_float(linear, 0.05, smoothing=torch.linspace(0.5, 2, 8)),
        ):
            assert layer.weight.dtype == dtype
            assert (layer.weight - linear.weight).abs().max() < 0.01
            assert "weight" not in layer.state_dict()


def test_layers_made_in_inference_mode():
    linear = nn.Linear(8, 4)
    with torch.inference_mode():
        made = QuantizedLinear.from_float(linear)
        assert torch.equal(made(X), QuantizedLinear.from_float(linear)(X))
    assert torch.equal(made(X), QuantizedLinear.from_float(linear)(X))


def test_layers_take_any_rank_strides_and_no_rows():
    for layer in layers():
        assert layer(X[0]).shape == (4,)
        assert layer(X[:0]).shape == (0, 4)
        assert layer(X.reshape(5, 1, 1, 8)).shape == (5, 1, 1, 4)
        assert torch.equal(layer(X.T.contiguous().T), layer(X))


@pytest.mark.parametrize("bad", [np.ones((2, 8), np.float32), torch.ones(2, 8).long(), None, [1]])
def test_layers_refuse(bad):
    for layer in layers():
        with pytest.raises(octavo.Error, match="^x: expected") as e:
            layer(bad)
        assert e.value.code == "unsupported"


def test_from_float_refuses():
    for bad in (
        nn.ReLU(),
        nn.Conv2d(3, 3, 1),
        None,
        X,
        QuantizedLinear.from_float(nn.Linear(2, 2)),
    ):
        with pytest.raises(octavo.Error, match="^linear: expected"):
            QuantizedLinear.from_float(bad)
    with pytest.raises(octavo.Error, match="^mode: "):
        QuantizedLinear.from_float(nn.Linear(2, 2), mode="other")
    for bad in (torch.ones(3), torch.ones(2, 1), "x", [None, None]):
        with pytest.raises(octavo.Error, match="^smoothing: "):
            SmoothQuantLinear.from_float(nn.Linear(2, 2), 0.1, smoothing=bad)
    for bad in (0, -1.0, float("nan"), float("inf"), 1e-45, None, "x"):
        with pytest.raises(octavo.Error, match="^act_scale: "):
            SmoothQuantLinear.from_float(nn.Linear(2, 2), bad)


def test_a_trace_of_a_layer_is_refused():
    for layer in layers():
        with pytest.raises(octavo.Error, match="torch.jit.trace"):
            torch.jit.trace(layer, X)


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="since PyTorch 2.0")
def test_compiled_layers():
    for layer in layers():
        compiled = torch.compile(nn.Sequential(layer, nn.ReLU()), backend="eager")
        assert torch.equal(compiled(X), layer(X).relu())


# ---- models


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("stacked", [False, True])
def test_encoders_of_pytorch_call_their_quantized_layers(stacked, padded):
    """In eval mode they would hand the weights to a kernel of their own."""
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    if stacked:
        model = nn.TransformerEncoder(model, 2).eval()
    x = X.reshape(1, 5, 8)
    mask = {"src_key_padding_mask": torch.tensor([[False] * 4 + [True]])} if padded else {}
    with torch.no_grad():
        expected = model(x, **mask)[:, :4]
        statistics = quiet(model, [{"src": x, **mask}])
        for scheme in ("dynamic", "static"):
            quantized = copy.deepcopy(model)
            report = quantize_model(quantized, scheme=scheme, statistics=statistics)
            assert len(report.quantized) == (4 if stacked else 2)
            assert 0 < (quantized(x, **mask)[:, :4] - expected).abs().max() < 0.1
        assert torch.equal(model(x, **mask)[:, :4], expected)  # calibration left it as it was


class Conv1D(nn.Module):
    """As in transformers."""

    def __init__(self, nf, nx):
        super().__init__()
        self.nf = nf
        self.weight = nn.Parameter(torch.randn(nx, nf))
        self.bias = nn.Parameter(torch.randn(nf))

    def forward(self, x):
        return x @ self.weight + self.bias


def test_conv1d_of_gpt2():
    block = nn.Module()
    block.ln_1, block.ln_2 = nn.LayerNorm(8), nn.LayerNorm(8)
    block.attn, block.mlp = nn.Module(), nn.Module()
    block.attn.c_attn, block.mlp.c_fc = Conv1D(8, 8), Conv1D(16, 8)
    block.forward = lambda x: block.mlp.c_fc(block.ln_2(block.attn.c_attn(block.ln_1(x))))
    model = nn.Module()
    model.h = nn.ModuleList([block])
    model.forward = lambda x: model.h[0](x)
    with torch.no_grad():
        block.ln_1.weight[2] = 30
        expected = model(X)
        statistics = quiet(model)
        assert statistics.layers() == ["h.0.attn.c_attn", "h.0.mlp.c_fc"]
        pairs = smooth_(model, statistics)
        assert [p.norm for p in pairs] == ["h.0.ln_1", "h.0.ln_2"]
        assert block.ln_1.weight[2] < 20
        assert (model(X) - expected).norm() / expected.norm() < 1e-5
        report = quantize_model(model)
        assert [layer.shape for layer in report.layers] == [(8, 8), (16, 8)]
        assert len(report.quantized) == 2
        assert 0 < (model(X) - expected).norm() / expected.norm() < 0.05


def test_a_layer_that_is_used_twice_is_calibrated_once():
    shared = nn.Linear(8, 8)
    model = nn.Sequential(shared, nn.ReLU(), shared)
    report = quantize_model(model, scheme="static", statistics=quiet(model))
    assert report.quantized == ["0", "2"]
    assert model[0] is model[2]


def test_a_refusal_leaves_the_model_whole():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8, device="meta"))
    with pytest.raises(octavo.Error):
        quantize_model(model)
    assert type(model[0]) is nn.Linear


def test_quantize_model_refuses():
    model = nn.Sequential(nn.Linear(8, 8))
    statistics = quiet(model)
    for argument, options in [
        ("ignore", {"ignore": ["re:("]}),
        ("ignore", {"ignore": [3]}),
        ("ignore", {"ignore": 3}),
        ("mode", {"mode": "other"}),
        ("mode", {"mode": "asymmetric", "scheme": "static", "statistics": statistics}),
        ("statistics", {"scheme": "static", "statistics": 5}),
        ("alpha", {"scheme": "static", "statistics": statistics, "alpha": "best"}),
    ]:
        with pytest.raises(octavo.Error, match=f"^{argument}: expected"):
            quantize_model(model, **options)
        assert type(model[0]) is nn.Linear
    for bad in ("model", None, X):
        for call in (quantize_model, lambda m: quiet(m), lambda m: smooth_(m, statistics)):
            with pytest.raises(octavo.Error, match="^model: expected a torch.nn.Module"):
                call(bad)
    with pytest.raises(octavo.Error, match="from_float"):
        quantize_model(nn.Linear(8, 8))
    assert quantize_model(model, ignore=None).quantized == ["0"]


def test_patterns_are_those_of_the_command():
    from octavo.torch._names import Patterns

    for pattern, name, hit in [
        ("re:.*down", "model.down_proj", True),
        ("re:down", "model.down_proj", False),
        ("*.layers.?.up", "model.layers.1.up", True),
        ("a[b]", "a[b]", True),  # only * and ? stand for others
        ("a[b]", "ab", False),
        ("a", "a\0b", False),
        ("?", "層", True),
        ("re:(b+)+$", "b" * 5000 + "!", False),  # never ends with some engines
        ("*b" * 50 + "c", "b" * 5000, False),
    ]:
        assert (Patterns([pattern]).find(name) is not None) is hit, pattern
    for wrong in ("re:(?!a)", r"re:(a)\1", "re:["):
        with pytest.raises(octavo.Error, match="^ignore: expected a regular expression of RE2"):
            Patterns([wrong])
    deep = "re:" + "(" * 20_000 + "b" + ")" * 20_000
    assert Patterns([deep]).find("b") == deep


def test_an_unknown_architecture_is_refused_in_one_sentence():
    model = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8))
    with pytest.raises(octavo.Error, match="^model: expected an architecture whose pairs are") as e:
        smooth_(model, quiet(model))
    assert ", got the" not in str(e.value)


# ---- calibration and smoothing


def test_calibration_leaves_modes_and_hooks_as_they_were():
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(), nn.Linear(8, 8)).train()
    model[1].eval()
    quiet(model)
    with pytest.raises(RuntimeError):
        quiet(model, [torch.ones(2, 3)])
    assert [m.training for m in model.modules()] == [True, True, False, True]
    assert not any(m._forward_pre_hooks for m in model.modules())


@pytest.mark.skipif(torch.__version__ < "2", reason="hooks see named inputs since PyTorch 2.0")
def test_calibration_sees_named_inputs():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x):
            return self.linear(input=x)

    assert quiet(Named()).layer("linear")["count"] == 5


def test_calibration_takes_batches_as_they_come(tmp_path):
    model = nn.Sequential(nn.Linear(8, 8))
    for batches in ([X, X], iter([X, X]), ((X,) for _ in range(2)), [[X], {"input": X}]):
        assert quiet(model, batches).layer("0")["count"] == 10
    calibrate(model, [X], tmp_path / "a", show_progress=False)
    assert octavo.Statistics.read(tmp_path / "a").layers() == ["0"]
    for bad in ([], None, 5):
        with pytest.raises(octavo.Error, match="^batches: expected"):
            quiet(model, bad)


def test_statistics_may_be_a_file(tmp_path):
    path = tmp_path / "statistics.safetensors"
    model = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8))
    found = quiet(model, path=path)
    assert repr(found) == "Statistics(1 layers)"
    other = copy.deepcopy(model)
    smooth_(model, found, 0.5, pairs=[("0", ["1"])])
    smooth_(other, str(path), 0.5, pairs=[("0", "1")])
    assert torch.equal(model[1].weight, other[1].weight)
    quantize_model(model, scheme="static", statistics=found)
    quantize_model(other, scheme="static", statistics=path)
    assert torch.equal(model(X), other(X))
    with pytest.raises(octavo.Error, match="^other: expected octavo.Statistics"):
        found.merge(5)


def test_smoothing_refuses_and_changes_nothing():
    model = nn.Sequential(
        nn.LayerNorm(8), nn.Linear(8, 8), nn.LayerNorm(8, elementwise_affine=False)
    )
    statistics = quiet(model)
    before = copy.deepcopy(model.state_dict())
    good = ("0", ["1"])
    for argument, options in [
        *[("pairs", {"pairs": [good, bad]})
          for bad in [("2", ["1"]), ("1", ["1"]), ("0", ["2"]), ("0", []), "0", ("0", [5])]],
        ("pairs", {"pairs": 5}),
        ("pairs", {"pairs": []}),
        ("alpha", {"pairs": [good], "alpha": None}),
        ("alpha", {"pairs": [good], "alpha": object()}),
        ("statistics", {"pairs": [good], "statistics": None}),
        ("statistics", {"pairs": [good], "statistics": octavo.Statistics()}),
    ]:  # fmt: skip
        with pytest.raises(octavo.Error) as e:
            smooth_(model, **{"statistics": statistics, **options})
        assert e.value.argument == argument, str(e.value)
        assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_where_a_norm_feeds_the_residual_nothing_is_folded():
    model = nn.Module()
    model.layers = nn.ModuleList([nn.Module()])
    model.layers[0].self_attn_layer_norm = nn.LayerNorm(8)
    model.layers[0].self_attn = nn.Module()
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        setattr(model.layers[0].self_attn, name, nn.Linear(8, 8))
    model.layers[0].final_layer_norm, model.layers[0].fc1 = nn.LayerNorm(8), nn.Linear(8, 8)
    linears = [n for n, m in model.named_modules() if isinstance(m, nn.Linear)]
    statistics = octavo.Statistics()
    for name in linears:
        statistics.update(name, X)
    model.config = type("Config", (), {"model_type": "opt", "do_layer_norm_before": False})()
    with pytest.raises(octavo.Error, match="pairs are known"):
        smooth_(model, statistics)
    model.config.do_layer_norm_before = True
    assert len(smooth_(model, statistics)) == 2
