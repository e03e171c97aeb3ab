"""Octavo for PyTorch: training through quantization, quantized layers, calibration, smoothing.

>>> layer = octavo.torch.QuantizedLinear.from_float(torch.nn.Linear(4, 2))
>>> layer(torch.ones(3, 4)).shape
torch.Size([3, 2])
"""

from ._autograd import fake_quantize, quantize
from ._calibrate import calibrate
from ._model import quantize_model_
from ._modules import QuantizedLinear, SmoothQuantLinear
from ._report import LayerReport, ModelReport
from ._smooth import PairReport, smooth_

__all__ = [
    "LayerReport",
    "ModelReport",
    "PairReport",
    "QuantizedLinear",
    "SmoothQuantLinear",
    "calibrate",
    "fake_quantize",
    "quantize",
    "quantize_model_",
    "smooth_",
]
