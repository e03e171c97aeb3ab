"""The report of quantize_model_: no weight that stays float goes without mention."""

import os

import octavo
import pytest

torch = pytest.importorskip("torch")
import octavo.torch  # noqa: E402

nn = torch.nn


class Experts(nn.Module):
    """As in transformers 5: all experts of a layer in two parameters, and no linear layer."""

    def __init__(self, experts, size, hidden):
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.randn(experts, 2 * hidden, size))
        self.down_proj = nn.Parameter(torch.randn(experts, size, hidden))


class Router(nn.Module):
    def __init__(self, experts, size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(experts, size))


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.q_proj = nn.Linear(8, 8)
        self.router = Router(4, 8)
        self.experts = Experts(4, 8, 16)
        self.norm = nn.LayerNorm((2, 8))
        self.lm_head = nn.Linear(8, 10, bias=False)


SIZES = {"embed": 80, "q_proj": 64, "router": 32, "experts": 1024 + 512, "norm": 32, "lm_head": 80}
TOTAL = sum(SIZES.values())


def test_experts_in_one_parameter_are_reported_with_their_share():
    report = octavo.torch.quantize_model_(Mixture())
    assert report.quantized == ["q_proj"]
    kept = ["lm_head", "router.weight", "experts.gate_up_proj", "experts.down_proj"]
    assert report.kept == kept
    assert report.layers[-1].shape == (4, 8, 16)
    assert list(report.float_shares.items()) == [
        ("in Experts, which is no linear layer", pytest.approx(1536 / TOTAL)),
        ("in embeddings", pytest.approx(80 / TOTAL)),
        ("ignored by '*lm_head'", pytest.approx(80 / TOTAL)),
        ("in Router, which is no linear layer", pytest.approx(32 / TOTAL)),
        ("in norms", pytest.approx(32 / TOTAL)),
    ]
    assert report.float_share == pytest.approx(1 - 64 / TOTAL)
    table = str(report).splitlines()
    assert table[3].split() == (
        "experts.gate_up_proj 4 x 32 x 8 kept: in Experts, which is no linear layer".split()
    )
    assert table[-2] == "1 layers quantized, 4 kept"
    assert table[-1] == (
        "96.5 % of the weights STAY FLOAT: 84.2 % in Experts, which is no linear layer; "
        "4.4 % in embeddings; 4.4 % ignored by '*lm_head'; "
        "1.8 % in Router, which is no linear layer; 1.8 % in norms"
    )


def test_a_refusal_names_them_too():
    with pytest.raises(octavo.Error, match=r"got none\n(.*\n)*  0.down_proj +4 x 8 x 16"):
        octavo.torch.quantize_model_(nn.Sequential(Mixture().experts))  # no linear layer at all


def test_they_can_be_ignored_by_name():
    report = octavo.torch.quantize_model_(Mixture(), ignore=["*experts.*", "lm_head"])
    assert report.float_shares["ignored by '*experts.*'"] == pytest.approx(1536 / TOTAL)


def test_all_quantized_says_nothing_more():
    report = octavo.torch.quantize_model_(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)))
    assert report.float_shares == {} and report.float_share == 0
    assert str(report).endswith("2 layers quantized, 0 kept")


@pytest.mark.parametrize(
    "module, name, reason",
    [
        (nn.MultiheadAttention(8, 2), "1.in_proj_weight", "in MultiheadAttention, which is no"),
        (nn.LSTM(8, 4), "1.weight_ih_l0", "in LSTM, which is no linear layer"),
        (nn.Bilinear(8, 4, 3), "1.weight", "in Bilinear, which is no linear layer"),
    ],
)
def test_matrices_of_other_modules(module, name, reason):
    report = octavo.torch.quantize_model_(nn.Sequential(nn.Linear(8, 8), module), ignore=())
    assert name in report.kept
    assert any(why.startswith(reason) for why in report.float_shares)


def test_convolutions_have_a_share_and_no_line():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    report = octavo.torch.quantize_model_(model)
    assert report.kept == [] and report.float_shares == {"in convolutions": 108 / 116}


def test_a_weight_that_modules_share_counts_once():
    model = Mixture()
    model.lm_head.weight = model.embed.weight
    total = TOTAL - 80
    report = octavo.torch.quantize_model_(model)
    assert report.float_share == pytest.approx(1 - 64 / total)
    assert report.float_shares["in embeddings"] == pytest.approx(80 / total)
    model = Mixture()
    model.lm_head.weight = model.embed.weight
    report = octavo.torch.quantize_model_(model, ignore=())
    assert report.float_share == pytest.approx(1 - (64 + 80) / total)


def test_experts_that_layers_share_count_once():
    model = nn.Sequential(Mixture(), Mixture())
    model[1].experts = model[0].experts
    report = octavo.torch.quantize_model_(model)
    assert sum("experts" in name for name in report.kept) == 2
    assert report.float_share == pytest.approx(1 - 128 / (2 * TOTAL - 1536))


def test_mixtral_of_transformers():
    os.environ.setdefault("USE_TORCH", "1")
    transformers = pytest.importorskip("transformers", minversion="5.0")
    config = transformers.MixtralConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, num_local_experts=8,
    )  # fmt: skip
    model = transformers.MixtralForCausalLM(config)
    experts = sum(p.numel() for n, p in model.named_parameters() if "experts" in n)
    weights = sum(p.numel() for p in model.parameters() if p.ndim >= 2)
    report = octavo.torch.quantize_model_(model)
    assert len(report.quantized) == 8  # q, k, v and o of two layers
    why, share = next(iter(report.float_shares.items()))
    assert why == "in MixtralExperts, which is no linear layer"
    assert share == pytest.approx(experts / weights) and share > 0.8
    assert sum("experts" in name for name in report.kept) == 4
    assert "of the weights STAY FLOAT: " in str(report).splitlines()[-1]


def test_names_of_classes_hide_no_experts():
    class ExpertsNorm(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.gate_up = torch.nn.Parameter(torch.ones(4, 16, 8))

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), ExpertsNorm())
    report = octavo.torch.quantize_model_(model)
    assert report.kept == ["1.gate_up"]
    assert "STAY FLOAT" in str(report).splitlines()[-1]


def test_patterns_with_lone_surrogates():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8))
    with pytest.raises(octavo.Error, match="ignore: .*surrogate"):
        octavo.torch.quantize_model_(model, ignore=["\udc00"])
