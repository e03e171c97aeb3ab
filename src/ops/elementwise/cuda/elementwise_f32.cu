// The elementwise kernels of f32.
#define OCTAVO_ELEMENT f32
#include "ops/elementwise/cuda/entries.hpp"
