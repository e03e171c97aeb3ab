"""octavo.torch: weights of 8 bits and of 4 in groups, inputs of 8 and 16, by the names of the
command's schemes."""

import copy
import json
import os
import pickle
import subprocess
import weakref
from pathlib import Path

import numpy as np
import octavo
import pytest

torch = pytest.importorskip("torch")
nn = torch.nn
import octavo.torch  # noqa: E402
from octavo.torch import QuantizedLinear, SmoothQuantLinear  # noqa: E402
from octavo.torch import quantize_model_ as quantize_model  # noqa: E402

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
HALVES = (torch.float16, torch.bfloat16)
INPUT = {"w8a8-dynamic": None, "w8a16": "s16", "w4a8-group": None, "w4a16-group": "s16"}
GROUPED = ["w4a8-group", "w4a16-group"]
# (scheme, group_size) of every kind.
FORMS = [
    ("w8a8-dynamic", None),
    ("w8a16", None),
    *((scheme, size) for scheme in GROUPED for size in (8, 16, 48, "channel")),
]
FORM_NAMES = [f"{scheme}-{size}" for scheme, size in FORMS]
forms = pytest.mark.parametrize("scheme, size", FORMS, ids=FORM_NAMES)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def up_to_f16(scale):
    """The least f16 that is no less, found by trying; of scales above 0."""
    found = scale.to(torch.float16)
    bits = found.view(torch.int16)
    return torch.where(found.float() < scale, bits + 1, bits).view(torch.float16)


def by_hand(weight, scheme, size):
    """The arguments of octavo.linear, by functions of the package that have tests of their own."""
    integer = "s4" if scheme in GROUPED else "s8"
    of = {"scope": "token"} if size in (None, "channel") else {"scope": "group", "group_size": size}
    q, scale, _ = octavo.quantize_dynamic(weight, dtype=integer, **of)
    if scheme != "w8a8-dynamic" and weight.dtype in HALVES:
        nearest = scale.to(weight.dtype)
        if weight.dtype == torch.float16:
            nearest = torch.where(scale < 2**-14, up_to_f16(scale), nearest)
        scale = nearest
        of = {"axis": 0} if of["scope"] == "token" else {"group_size": size}
        q = octavo.quantize(weight, scale, dtype=integer, **of)
    given = {"weight_q": q, "weight_scale": scale, "quantized": INPUT[scheme]}
    if integer == "s4":
        given |= {"q_dtype": "s4", "length": weight.shape[1], "group_size": of.get("group_size")}
    return given


# ---- layers


@forms
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_layer_is_octavo_linear(dtype, bias, scheme, size):
    linear = nn.Linear(48, 17, bias=bias).to(dtype)
    layer = QuantizedLinear.from_float(linear, scheme=scheme, group_size=size)
    x = torch.randn(2, 3, 48).to(dtype)
    y = layer(x)
    assert y.dtype == dtype and y.shape == (2, 3, 17)
    given = by_hand(linear.weight.detach(), scheme, size)
    assert torch.equal(layer.weight_q, given["weight_q"])
    assert torch.equal(layer.weight_scale, given["weight_scale"])
    assert layer.weight_scale.dtype == given["weight_scale"].dtype
    given["bias"] = linear.bias.detach() if bias else None
    assert torch.equal(y, octavo.linear(x, **given))
    exact = nn.functional.linear(
        x.double(), linear.weight.double(), linear.bias.double() if bias else None
    ).detach()
    most = 0.15 if scheme in GROUPED else 0.02
    assert (y.double() - exact).norm() / exact.norm() < most


@forms
@pytest.mark.parametrize("dtype", HALVES)
def test_scales_of_small_weights(dtype, scheme, size):
    """Some of their scales are subnormal in f16, or would be 0."""
    linear = nn.Linear(48, 64, bias=False)
    with torch.no_grad():
        linear.weight *= torch.logspace(-7, 0, 64)[:, None]
        linear.weight[5] = 0
    linear = linear.to(dtype)
    layer = QuantizedLinear.from_float(linear, scheme=scheme, group_size=size)
    given = by_hand(linear.weight.detach(), scheme, size)
    assert torch.equal(layer.weight_q, given["weight_q"])
    assert torch.equal(layer.weight_scale, given["weight_scale"])
    assert layer.weight_scale.min() > 0


@forms
def test_weights_that_are_stored_by_columns(scheme, size):
    """As the Conv1D of GPT-2 in transformers has them."""

    class Conv1D(nn.Module):
        def __init__(self):
            super().__init__()
            self.nf, self.weight = 17, nn.Parameter(torch.randn(48, 17))
            self.bias = nn.Parameter(torch.randn(17))

    conv = Conv1D()
    linear = nn.Linear(48, 17)
    linear.weight.data, linear.bias.data = conv.weight.data.T.contiguous(), conv.bias.data
    x = torch.randn(3, 48)
    made, want = (
        QuantizedLinear.from_float(layer, scheme=scheme, group_size=size)
        for layer in (conv, linear)
    )
    assert made.in_features == 48 and torch.equal(made(x), want(x))


@forms
def test_the_input_may_have_another_type(scheme, size):
    linear = nn.Linear(48, 17)
    layer = QuantizedLinear.from_float(linear, scheme=scheme, group_size=size)
    given = by_hand(linear.weight.detach(), scheme, size)
    for dtype in DTYPES:
        x = torch.randn(3, 48).to(dtype)
        y = layer(x)
        assert y.dtype == dtype
        assert torch.equal(y, octavo.linear(x, **given, bias=linear.bias.detach()))


@pytest.mark.parametrize("scheme", ["w8a8-dynamic", "w4a8-group"])
def test_asymmetric_rows(scheme):
    linear = nn.Linear(128, 5)
    layer = QuantizedLinear.from_float(linear, scheme=scheme, mode="asymmetric")
    x = torch.rand(4, 128) + 3
    size = 128 if scheme in GROUPED else None
    given = by_hand(linear.weight.detach(), scheme, size)
    want = octavo.linear(x, **given, bias=linear.bias.detach(), mode="asymmetric")
    assert torch.equal(layer(x), want)
    assert not torch.equal(QuantizedLinear.from_float(linear, scheme=scheme)(x), want)


@pytest.mark.parametrize("scheme", GROUPED)
def test_groups_have_128_weights_unless_it_is_said(scheme):
    linear = nn.Linear(256, 3)
    layer = QuantizedLinear.from_float(linear, scheme=scheme)
    assert layer.group_size == 128 and layer.weight_scale.shape == (3, 2)
    assert layer.weight_q.shape == (3, 128) and layer.weight_q.dtype == torch.uint8
    same = QuantizedLinear.from_float(linear, scheme=scheme, group_size=np.int64(128))
    assert torch.equal(same.weight_q, layer.weight_q) and type(same.group_size) is int
    one = QuantizedLinear.from_float(nn.Linear(128, 3), scheme=scheme)
    assert one.group_size == 128 and one.weight_scale.shape == (3, 1)


@pytest.mark.parametrize("scheme", GROUPED)
@pytest.mark.parametrize("columns", [1, 2, 7, 33, 34])
def test_odd_features_have_a_scale_per_channel(columns, scheme):
    linear = nn.Linear(columns, 5)
    layer = QuantizedLinear.from_float(linear, scheme=scheme, group_size="channel")
    assert (layer.in_features, layer.out_features, layer.group_size) == (columns, 5, None)
    assert layer.weight_q.shape == (5, (columns + 1) // 2)
    x = torch.randn(3, columns)
    given = by_hand(linear.weight.detach(), scheme, "channel")
    assert torch.equal(layer(x), octavo.linear(x, **given, bias=linear.bias.detach()))
    assert layer.weight.shape == (5, columns)
    assert f"in_features={columns}," in repr(layer)
    with pytest.raises(octavo.Error, match=f"^group_size: expected a divisor of .* {columns}, "):
        QuantizedLinear.from_float(linear, scheme=scheme, group_size=128)


@forms
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_layer_shows_its_weight(dtype, scheme, size):
    linear = nn.Linear(48, 17).to(dtype)
    layer = QuantizedLinear.from_float(linear, scheme=scheme, group_size=size)
    weight = layer.weight
    assert weight.dtype == dtype and weight.shape == (17, 48)
    scale = layer.weight_scale.double().reshape(17, -1, 1)
    q, _, _ = layer._weight().unpack()
    if scheme in GROUPED:
        q = torch.stack((q % 16, q // 16), -1).view(17, 48).to(torch.int8)
        q = torch.where(q > 7, q - 16, q)
    exact = (q.double().view(17, scale.shape[1], -1) * scale).view(17, 48)
    most = {torch.float16: 1e-3, torch.bfloat16: 8e-3}.get(dtype, 1e-6)
    assert torch.allclose(weight.double(), exact, rtol=most, atol=1e-7)
    assert torch.allclose(exact, linear.weight.double(), atol=float(scale.max()) * 0.51)


def test_scales_may_be_a_column():
    linear = nn.Linear(48, 17)
    for scheme in INPUT:
        size = 48 if scheme in GROUPED else None
        layer = QuantizedLinear.from_float(linear, scheme=scheme, group_size=size)
        scale = layer.weight_scale.reshape(17, 1)
        other = QuantizedLinear(layer.weight_q, scale, layer.bias, scheme=scheme)
        x = torch.randn(3, 48)
        assert torch.equal(other(x), layer(x)) and torch.equal(other.weight, layer.weight)


def test_repr():
    linear = nn.Linear(64, 3)
    shown = {
        (None, None): "mode=symmetric",
        ("w8a16", None): "scheme=w8a16",
        ("w4a8-group", 32): "scheme=w4a8-group, group_size=32, mode=symmetric",
        ("w4a16-group", 16): "scheme=w4a16-group, group_size=16",
        ("w4a16-group", "channel"): "scheme=w4a16-group",
    }
    for (scheme, size), words in shown.items():
        options = {} if scheme is None else {"scheme": scheme, "group_size": size}
        layer = QuantizedLinear.from_float(linear, **options)
        assert repr(layer) == f"QuantizedLinear(in_features=64, out_features=3, bias=True, {words})"


@forms
@pytest.mark.parametrize("dtype", DTYPES)
def test_layers_are_saved_loaded_copied_and_pickled(tmp_path, dtype, scheme, size):
    def make(linear):
        return QuantizedLinear.from_float(linear.to(dtype), scheme=scheme, group_size=size)

    layer, other = make(nn.Linear(48, 17)), make(nn.Linear(48, 17))
    x = torch.randn(3, 48).to(dtype)
    y = layer(x)
    assert not torch.equal(other(x), y)
    assert set(layer.state_dict()) == {"weight_q", "weight_scale", "bias"}
    torch.save(layer.state_dict(), tmp_path / "state")
    other.load_state_dict(torch.load(tmp_path / "state"))  # written in place: packed afresh
    assert torch.equal(other(x), y)
    for made in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(made(x), y) and repr(made) == repr(layer)
        assert torch.equal(made.weight, layer.weight)
    state = {name: value for name, value in layer.state_dict().items() if name != "bias"}
    again = QuantizedLinear(**state, bias=layer.bias, scheme=scheme, in_features=48, dtype=dtype)
    assert torch.equal(again(x), y) and again.group_size == layer.group_size


def test_a_state_of_another_form_is_refused():
    linear = nn.Linear(64, 3)
    layer = QuantizedLinear.from_float(linear, scheme="w4a8-group", group_size=32)
    for options in ({}, {"scheme": "w8a16"}, {"scheme": "w4a8-group", "group_size": 16}):
        state = QuantizedLinear.from_float(linear, **options).state_dict()
        with pytest.raises(RuntimeError, match="size mismatch"):
            copy.deepcopy(layer).load_state_dict(state)
    # The weights are the same: what is stored of one serves the other.
    wide = QuantizedLinear.from_float(nn.Linear(64, 3), scheme="w4a16-group", group_size=32)
    wide.load_state_dict(layer.state_dict())
    want = QuantizedLinear.from_float(linear, scheme="w4a16-group", group_size=32)
    x = torch.randn(2, 64)
    assert torch.equal(wide(x), want(x))


@forms
def test_scales_that_are_written_or_replaced_are_noticed(scheme, size):
    linear = nn.Linear(48, 17, bias=False)
    layer = QuantizedLinear.from_float(linear, scheme=scheme, group_size=size)
    x = torch.randn(3, 48)
    y = layer(x)
    layer.weight_scale.mul_(2)
    assert torch.equal(layer(x), 2 * y)
    for factor in (4, 8, 16):  # small tensors come and go at the same address
        for _ in range(2):
            layer.weight_scale = layer.weight_scale * 2
            layer.weight_scale = layer.weight_scale / 2
        layer.weight_scale = layer.weight_scale * 2
        assert torch.equal(layer(x), factor * y)
    layer.weight_q.zero_()
    assert not layer(x).any()
    with torch.inference_mode():
        made = QuantizedLinear.from_float(linear, scheme=scheme, group_size=size)
        assert torch.equal(made(x), y)
        made.weight_scale.mul_(2)
        assert torch.equal(made(x), 2 * y)


@forms
def test_buffers_are_held_as_long_as_their_pack(scheme, size):
    """Or another tensor could get the address by which the pack is known."""
    layer = QuantizedLinear.from_float(nn.Linear(48, 17), scheme=scheme, group_size=size)
    x = torch.randn(3, 48)
    for name in ("weight_q", "weight_scale"):
        layer(x)
        before = weakref.ref(getattr(layer, name))
        setattr(layer, name, getattr(layer, name).clone())
        assert before() is not None
        layer(x)
        assert before() is None


@forms
def test_scales_stay_exact_when_a_model_changes_its_type(scheme, size):
    x = torch.randn(3, 48)
    for first in DTYPES:
        linear = nn.Linear(48, 17).to(first)
        layer = QuantizedLinear.from_float(linear, scheme=scheme, group_size=size)
        for second in DTYPES:
            moved = copy.deepcopy(layer).to(second)
            exact = layer.weight_scale.double()
            if second == torch.float32:
                exact = exact.float().double()
            assert torch.equal(moved.weight_scale.double(), exact)
            assert moved(x.to(second)).dtype == moved.weight.dtype == second


@pytest.mark.parametrize("scheme", INPUT)
def test_layers_use_the_threads_of_pytorch(monkeypatch, scheme):
    layer = QuantizedLinear.from_float(nn.Linear(128, 4), scheme=scheme)
    seen, call = [], octavo._linear.linear

    def spy(*args, **options):
        seen.append(options["stream"].threads)
        return call(*args, **options)

    monkeypatch.setattr(octavo._linear, "linear", spy)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            layer(torch.ones(2, 128))
    finally:
        torch.set_num_threads(before)
    assert seen == [1, 2]


@pytest.mark.parametrize("scheme", INPUT)
def test_layers_have_no_gradient(scheme):
    layer = QuantizedLinear.from_float(nn.Linear(128, 4), scheme=scheme)
    x = torch.randn(3, 128, requires_grad=True)
    y = layer(x)
    with torch.no_grad():
        assert torch.equal(y, layer(x))
    with pytest.raises(octavo.Error, match="no_grad"):
        y.sum().backward()


def test_sixteen_bits_lose_next_to_nothing():
    linear = nn.Linear(256, 64, bias=False)
    x = torch.randn(8, 256)
    x[:, 7] *= 100  # an outlier, which takes the range of 8 bits
    for narrow, wide in (("w8a8-dynamic", "w8a16"), ("w4a8-group", "w4a16-group")):
        errors = []
        for scheme in (narrow, wide):
            layer = QuantizedLinear.from_float(linear, scheme=scheme)
            exact = x.double() @ layer.weight.double().T
            errors.append(float((layer(x).double() - exact).norm() / exact.norm()))
        assert errors[1] < 1e-3 < 1e-2 < errors[0]
        assert errors[1] < errors[0] / 100


# ---- refusals


def test_from_float_refuses():
    linear = nn.Linear(64, 3)
    many = "expected 'w8a8-dynamic', 'w8a16', 'w4a8-group' or 'w4a16-group', got "
    for scheme in ("other", "dynamic", "w8a8-static", None, 4, ["w8a16"]):
        with pytest.raises(octavo.Error) as e:
            QuantizedLinear.from_float(linear, scheme=scheme)
        assert str(e.value) == f"scheme: {many}{scheme!r}" and e.value.code == "unsupported"
    for scheme in GROUPED:
        for size in (0, -4, 6, 2.0, "auto", "32", [32]):
            with pytest.raises(octavo.Error) as e:
                QuantizedLinear.from_float(linear, scheme=scheme, group_size=size)
            words = "group_size: expected a multiple of 4 above 0 or 'channel', got "
            assert str(e.value) == f"{words}{size!r}" and e.value.argument == "group_size"
        with pytest.raises(octavo.Error, match="^group_size: expected a divisor of in_features, "
                           "which is 64, got 24"):  # fmt: skip
            QuantizedLinear.from_float(linear, scheme=scheme, group_size=24)
    for scheme in ("w8a8-dynamic", "w8a16"):
        with pytest.raises(octavo.Error) as e:
            QuantizedLinear.from_float(linear, scheme=scheme, group_size=32)
        words = f"expected None for scheme {scheme!r}, which has no groups, got 32"
        assert str(e.value) == f"group_size: {words}"
    for scheme in ("w8a16", "w4a16-group"):
        with pytest.raises(octavo.Error) as e:
            QuantizedLinear.from_float(linear, scheme=scheme, mode="asymmetric")
        words = f"expected 'symmetric' for scheme {scheme!r}, got 'asymmetric'"
        assert str(e.value) == f"mode: {words}"


def test_layers_refuse_buffers_that_do_not_fit():
    q, scale = torch.zeros(3, 8, dtype=torch.uint8), torch.ones(3, 4)
    for argument, options in [
        ("scheme", {"scheme": "w4"}),
        ("mode", {"mode": "other"}),
        ("weight_q", {"weight_q": q.to(torch.int8)}),
        ("weight_q", {"weight_q": q[0]}),
        ("weight_q", {"weight_q": None}),
        ("weight_scale", {"weight_scale": 0.5}),
        ("weight_scale", {"weight_scale": torch.ones(3, 3)}),
        ("weight_scale", {"weight_scale": torch.ones(3, 8)}),
        ("in_features", {"in_features": 14}),
        ("in_features", {"in_features": 17}),
        ("in_features", {"in_features": "16"}),
        ("in_features", {"scheme": "w8a16", "in_features": 7}),
    ]:
        given = {"weight_q": q, "weight_scale": scale, "scheme": "w4a8-group", **options}
        with pytest.raises(octavo.Error, match=f"^{argument}: expected .*, got ") as e:
            QuantizedLinear(**given)
        assert e.value.argument == argument
    assert QuantizedLinear(q, scale, scheme="w4a8-group").in_features == 16
    odd = QuantizedLinear(q, torch.ones(3, 1), scheme="w4a8-group", in_features=15)
    assert odd.in_features == 15 and odd(torch.ones(2, 15)).shape == (2, 3)
    with pytest.raises(octavo.Error, match="^x: expected 16 in the last dimension"):
        QuantizedLinear(q, scale, scheme="w4a8-group")(torch.ones(2, 8))


# ---- models


def network(*sizes):
    return nn.Sequential(*(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False)))


@pytest.mark.parametrize("scheme", INPUT)
def test_a_model_has_the_layers_of_from_float(scheme):
    model = network(256, 128, 64)
    before = copy.deepcopy(model)
    report = quantize_model(model, scheme=scheme, ignore=["1"])
    assert report.quantized == ["0"] and report.kept == ["1"]
    x = torch.randn(3, 256)
    made = QuantizedLinear.from_float(before[0], scheme=scheme)
    assert repr(model[0]) == repr(made) and torch.equal(model[0](x), made(x))
    size = 64 if scheme in GROUPED else None
    model = copy.deepcopy(before)
    assert quantize_model(model, scheme=scheme, group_size=size).quantized == ["0", "1"]
    made = QuantizedLinear.from_float(before[0], scheme=scheme, group_size=size)
    assert torch.equal(model[0](x), made(x))


def test_the_first_names_of_schemes_stay():
    x = torch.randn(5, 16)
    model = network(16, 16, 8)
    statistics = octavo.torch.calibrate(model, [x], show_progress=False)
    for first, name, kind in (
        ("dynamic", "w8a8-dynamic", QuantizedLinear),
        ("static", "w8a8-static", SmoothQuantLinear),
    ):
        pair = [copy.deepcopy(model) for _ in range(2)]
        quantize_model(pair[0], scheme=first, statistics=statistics)
        quantize_model(pair[1], scheme=name, statistics=statistics)
        assert torch.equal(pair[0](x), pair[1](x)) and type(pair[1][0]) is kind
    plain = copy.deepcopy(model)
    quantize_model(plain)
    quantize_model(model, scheme="w8a8-dynamic")
    assert torch.equal(plain(x), model(x))


def test_asymmetric_rows_of_a_model():
    model = network(128, 4)
    linear = copy.deepcopy(model[0])
    quantize_model(model, scheme="w4a8-group", mode="asymmetric")
    x = torch.rand(3, 128)
    made = QuantizedLinear.from_float(linear, scheme="w4a8-group", mode="asymmetric")
    assert model[0].mode == "asymmetric" and torch.equal(model(x), made(x))


@pytest.mark.parametrize("scheme", GROUPED)
def test_layers_that_groups_do_not_fit_stay_float_and_the_report_says_so(scheme):
    model = network(128, 96, 40, 64)
    report = quantize_model(model, scheme=scheme)
    assert report.quantized == ["0"] and type(model[1]) is nn.Linear
    assert [layer.reason for layer in report.layers] == [
        "",
        "in = 96 is no multiple of 128",
        "in = 40 is no multiple of 128",
    ]
    total = 128 * 96 + 96 * 40 + 40 * 64
    assert report.float_shares == {
        "in = 96 is no multiple of 128": 96 * 40 / total,
        "in = 40 is no multiple of 128": 40 * 64 / total,
    }
    assert report.remedy == "group_size=32 would fit more layers"
    last = str(report).splitlines()[-1]
    assert last == (
        "34.2 % of the weights STAY FLOAT: 20.5 % in = 96 is no multiple of 128; 13.7 % in = 40 is "
        "no multiple of 128; group_size=32 would fit more layers"
    )
    model = network(96, 64, 3)
    assert quantize_model(model, scheme=scheme, group_size=48).remedy == (
        "group_size=32 would fit all layers"
    )
    model = network(96, 40, 3)
    assert quantize_model(model, scheme=scheme, group_size=32).remedy == (
        'group_size="channel" would fit all layers'
    )


@pytest.mark.parametrize("scheme", GROUPED)
def test_auto_takes_the_largest_groups_that_leave_the_least(scheme):
    for sizes, want in [
        ((256, 128, 4), 128),
        ((256, 96, 4), 32),
        ((256, 192, 4), 64),
        ((48, 16, 4), 16),
        ((256, 36, 4), 128),
    ]:
        model = network(*sizes)
        quantize_model(model, scheme=scheme, group_size="auto")
        assert model[0].group_size == want
    # Layers that are ignored have no say.
    model = network(256, 96, 4)
    report = quantize_model(model, scheme=scheme, group_size="auto", ignore=["1"])
    assert model[0].group_size == 128 and report.remedy == ""


def test_a_scale_per_channel_takes_every_layer():
    model = network(33, 7, 5)
    report = quantize_model(model, scheme="w4a16-group", group_size="channel")
    assert report.quantized == ["0", "1"] and report.remedy == ""
    assert model[1].in_features == 7 and model(torch.ones(2, 33)).shape == (2, 5)


def test_shared_layers_count_once():
    shared, wide = nn.Linear(96, 96), nn.Linear(96, 128)
    model = nn.Sequential(shared, shared, wide, nn.Linear(128, 3))
    report = quantize_model(model, scheme="w4a8-group", ignore=["2"], group_size=32)
    assert report.quantized == ["0", "1", "3"] and model[0] is model[1]


def test_models_that_are_refused_stay_whole():
    model = network(96, 40, 3)
    for argument, options in [
        ("scheme", {"scheme": "w4a4"}),
        ("scheme", {"scheme": ["w8a16"]}),
        ("group_size", {"scheme": "w4a8-group", "group_size": 0}),
        ("group_size", {"scheme": "w4a8-group", "group_size": 30}),
        ("group_size", {"scheme": "w4a16-group", "group_size": "all"}),
        ("group_size", {"scheme": "w8a16", "group_size": 32}),
        ("group_size", {"group_size": "auto"}),
        ("group_size", {"scheme": "static", "statistics": octavo.Statistics(), "group_size": 4}),
        ("mode", {"scheme": "w8a16", "mode": "asymmetric"}),
        ("mode", {"scheme": "w4a16-group", "mode": "asymmetric"}),
        ("alpha", {"scheme": "w4a8-group", "alpha": 0.5}),
        ("alpha", {"scheme": "w8a16", "alpha": 0.5}),
        ("statistics", {"scheme": "w8a8-static"}),
        ("model", {"scheme": "w4a8-group"}),
    ]:
        with pytest.raises(octavo.Error, match=f"^{argument}: expected .*, got ") as e:
            quantize_model(model, **options)
        assert e.value.argument == argument
        assert [type(layer) for layer in model] == [nn.Linear] * 2
    assert "in = 96 is no multiple of 128" in str(e.value)
    assert "group_size=32 would fit more layers" in str(e.value)
    with pytest.raises(octavo.Error, match="'w4a16-group', 'dynamic' or 'static', got 'w4a4'$"):
        quantize_model(model, scheme="w4a4")
    with pytest.raises(octavo.Error, match="a multiple of 4 above 0, 'auto' or 'channel', got 6$"):
        quantize_model(model, scheme="w4a8-group", group_size=6)


def test_calibration_and_smoothing_go_before_groups():
    model = nn.Sequential(nn.LayerNorm(128), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 8))
    with torch.no_grad():
        model[0].weight[3] = 40
    x = torch.randn(64, 128)
    with torch.no_grad():
        exact = model(x)
    statistics = octavo.torch.calibrate(model, [x], show_progress=False)
    errors = []
    for smoothed in (False, True):
        quantized = copy.deepcopy(model)
        if smoothed:
            octavo.torch.smooth_(quantized, statistics, pairs=[("0", ["1"])])
        quantize_model(quantized, scheme="w4a8-group", statistics=statistics)
        with torch.no_grad():
            errors.append(float((quantized(x) - exact).norm() / exact.norm()))
    assert errors[1] < errors[0]


# ---- the command


def nibbles_of(packed, rows, columns):
    """int32 words of values that are 8 above, eight to a word, as bytes of two s4."""
    shifted = packed.contiguous().view(torch.uint8)
    return (shifted ^ 0x88).view(rows, -1)[:, : columns // 2]


def bytes_of(packed, rows, columns):
    shifted = packed.contiguous().view(torch.uint8)
    return (shifted ^ 0x80).view(torch.int8).view(rows, -1)[:, :columns]


@pytest.fixture(scope="module", params=[torch.float32, torch.float16, torch.bfloat16])
def checkpoint(request, tmp_path_factory):
    """The example's first block, with weights that are small, and rows that are all 0."""
    safetensors = pytest.importorskip("safetensors.torch")
    example = Path(__file__).resolve().parents[2] / "examples" / "checkpoint" / "model"
    folder = tmp_path_factory.mktemp("model")
    config = json.loads((example / "config.json").read_text())
    name = str(request.param).removeprefix("torch.")
    config |= {"torch_dtype": name, "num_hidden_layers": 1}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {
        name: value.to(request.param)
        for name, value in safetensors.load_file(example / "model.safetensors").items()
        if "layers" not in name or "layers.0." in name
    }
    query = tensors["model.layers.0.self_attn.q_proj.weight"]
    query[:64] *= torch.logspace(-7, 0, 64).to(request.param)[:, None]
    query[5] = 0
    safetensors.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder, tensors


@pytest.mark.parametrize(
    "scheme, size",
    [("w8a8-dynamic", None), ("w8a16", None), ("w4a8-group", None), ("w4a8-group", 32),
     ("w4a16-group", 16), ("w4a16-group", "channel"), ("w4a8-group", "auto")],
)  # fmt: skip
def test_weights_are_those_that_the_command_writes(tmp_path, checkpoint, scheme, size):
    safetensors = pytest.importorskip("safetensors.torch")
    command = os.environ.get("OCTAVO_COMMAND")
    if command is None:
        pytest.skip("OCTAVO_COMMAND names no command octavo")
    folder, tensors = checkpoint
    arguments = ["quantize", folder, tmp_path / "out", "--scheme", scheme]
    arguments += [] if size is None else ["--group-size", str(size)]
    subprocess.run([command, *arguments], check=True, capture_output=True)
    written = safetensors.load_file(tmp_path / "out" / "model.safetensors")
    model = nn.Module()
    for name, weight in tensors.items():
        parts = name.split(".")
        if weight.ndim == 2 and "embed_tokens" not in parts:
            at = model
            for part in parts[:-2]:
                if not hasattr(at, part):
                    setattr(at, part, nn.Module())
                at = getattr(at, part)
            linear = nn.Linear(*reversed(weight.shape), bias=False).to(weight.dtype)
            linear.weight.data = weight
            setattr(at, parts[-2], linear)
    report = quantize_model(model, scheme=scheme, group_size=size)
    assert len(report.quantized) == (6 if size is None and scheme in GROUPED else 7)
    # Those that stay float do so for the command, too.
    assert {name for name in report.kept if f"{name}.weight" not in written} == set()
    for name in report.quantized:
        layer = model.get_submodule(name)
        scale = written[f"{name}.weight_scale"]
        assert layer.weight_scale.dtype == scale.dtype
        assert torch.equal(layer.weight_scale.reshape(scale.shape), scale), name
        shape = layer.out_features, layer.in_features
        if scheme == "w8a8-dynamic":
            q = written[f"{name}.weight"]
        elif scheme == "w8a16":
            q = bytes_of(written[f"{name}.weight_packed"], *shape)
        else:
            q = nibbles_of(written[f"{name}.weight_packed"], *shape)
        assert torch.equal(layer.weight_q, q), name
