// The elementwise kernels of f64.
#define OCTAVO_ELEMENT f64
#include "ops/elementwise/cuda/entries.hpp"
