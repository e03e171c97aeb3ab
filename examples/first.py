# A linear layer in 8 bits, next to the float one.
import numpy as np
import octavo

rng = np.random.default_rng(0)
x = rng.normal(size=(4, 256)).astype(np.float32)
weight = rng.normal(size=(8, 256)).astype(np.float32)

q, scale, _ = octavo.quantize_dynamic(weight)  # int8 weights, and one scale for each row
packed = octavo.pack(q)  # once; makes every call faster
y = octavo.linear(x, packed, scale)  # rows of x are quantized on the fly

exact = x @ weight.T
error = np.abs(y - exact).max() / np.abs(exact).max()
print(f"{weight.nbytes} bytes of weights became {q.nbytes}; largest error {100 * error:.1f} %")
