// The elementwise kernels of bf16.
#define OCTAVO_ELEMENT bf16
#include "ops/elementwise/cuda/entries.hpp"
