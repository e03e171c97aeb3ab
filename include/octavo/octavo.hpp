// Octavo: quantization with the same bits on every CPU, thread count and split.
// This header brings all of it; each operation also has a short header of its own.
#pragma once

#include "octavo/dequantize.hpp"              // IWYU pragma: export
#include "octavo/dtype.hpp"                   // IWYU pragma: export
#include "octavo/dynamic_range_quantize.hpp"  // IWYU pragma: export
#include "octavo/embedding.hpp"               // IWYU pragma: export
#include "octavo/fake_quantize.hpp"           // IWYU pragma: export
#include "octavo/float_linear.hpp"            // IWYU pragma: export
#include "octavo/observer.hpp"                // IWYU pragma: export
#include "octavo/packed_weight.hpp"           // IWYU pragma: export
#include "octavo/profile.hpp"                 // IWYU pragma: export
#include "octavo/quantize.hpp"                // IWYU pragma: export
#include "octavo/quantized_linear.hpp"        // IWYU pragma: export
#include "octavo/quantized_matmul.hpp"        // IWYU pragma: export
#include "octavo/result.hpp"                  // IWYU pragma: export
#include "octavo/sku.hpp"                     // IWYU pragma: export
#include "octavo/smoothquant_linear.hpp"      // IWYU pragma: export
#include "octavo/stream.hpp"                  // IWYU pragma: export
#include "octavo/tensor.hpp"                  // IWYU pragma: export
#include "octavo/version.h"                   // IWYU pragma: export
