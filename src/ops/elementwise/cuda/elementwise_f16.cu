// The elementwise kernels of f16.
#define OCTAVO_ELEMENT f16
#include "ops/elementwise/cuda/entries.hpp"
