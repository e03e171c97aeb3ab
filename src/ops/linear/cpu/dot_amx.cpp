// AMX: tdpbssd multiplies tiles of s8 by s8.
#include "ops/linear/cpu/dot_amx.hpp"

namespace octavo::detail {

// Released when a thread is done, so that it pays for no tiles later.
const DotKernel dot_amx{.form = Form::s8,
                        .k_grain = padded_k,
                        .rows = 64,
                        .resident_rows = 256,
                        .products_per_thread = std::int64_t{1} << 22,
                        .run = N_AMX::Kernel<N_AMX::CpuTiles>::run,
                        .end = N_AMX::CpuTiles::release};

}  // namespace octavo::detail
