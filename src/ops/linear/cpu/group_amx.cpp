// AMX, for weights in groups: up to 32 rows by the 32 columns of a panel, two tiles by two. What
// tiles have added up of a group is stored, and scaled and added to the values by AVX-512. tdpbsud
// multiplies activations, which are signed, by codes, which are not and must be bytes. Few rows do
// not fill tiles: AVX-512 VNNI multiplies them.
#include <immintrin.h>

#include <cstring>

#include "ops/linear/cpu/amx_tiles.hpp"
#include "ops/linear/cpu/group-inl.hpp"
#include "ops/linear/cpu/group_512-inl.hpp"

namespace octavo::detail {
namespace N_AMX_GROUP {
namespace {

using N_AMX::CpuTiles;
using N_AMX::tile_rows;

struct Engine : Vectors512 {
  static constexpr Target target = Target::amx;
  static constexpr int rows = 4;
  static constexpr bool whole_bytes = true;
  static Sums add(Sums s, Weights w, Activation a) { return _mm512_dpbusd_epi32(s, w, a); }
  static Sums add_bytes(Sums s, Weights w, Activation a) { return add(s, w, a); }
};
using E = Engine;

constexpr std::int64_t step_bytes = wide_columns * step_k;
constexpr int most_rows = 2 * tile_rows;

// Tiles 0 and 1 are the sums of the upper rows, 2 and 3 of the lower ones; activations in 4 and 5,
// codes in 6 and 7. What has no rows has no bytes either.
N_AMX::TileConfig config_of(int rows, std::int64_t run) {
  N_AMX::TileConfig c;
  const auto set = [&c](int t, std::int64_t of_rows, std::int64_t bytes) {
    c.rows[t] = static_cast<std::uint8_t>(of_rows);
    c.bytes[t] = static_cast<std::uint16_t>(of_rows == 0 ? 0 : bytes);
  };
  const std::int64_t upper = rows < tile_rows ? rows : tile_rows;
  for (const int t : {0, 1}) set(t, upper, N_AMX::tile_bytes);
  for (const int t : {2, 3}) set(t, rows - upper, N_AMX::tile_bytes);
  set(4, upper, run);
  set(5, rows - upper, run);
  for (const int t : {6, 7}) set(t, run / step_k, N_AMX::tile_bytes);
  return c;
}

// The sums of `steps`, stored `stride` apart; tiles are configured.
template <bool two>
void multiply(const std::int8_t* a, int rows, std::int64_t run, const unsigned char* codes,
              std::int64_t steps, std::int32_t* sums, std::int64_t stride) {
  CpuTiles::zero<0>();
  CpuTiles::zero<1>();
  if constexpr (two) {
    CpuTiles::zero<2>();
    CpuTiles::zero<3>();
  }
  for (std::int64_t done = 0; done < steps * step_k; done += run) {
    CpuTiles::load<4>(a, run);
    CpuTiles::load<6>(codes, step_bytes);
    CpuTiles::multiply_unsigned<0, 4, 6>();
    CpuTiles::load<7>(codes + step_bytes / 2, step_bytes);
    CpuTiles::multiply_unsigned<1, 4, 7>();
    if constexpr (two) {
      CpuTiles::load<5>(a + tile_rows * run, run);
      CpuTiles::multiply_unsigned<2, 5, 6>();
      CpuTiles::multiply_unsigned<3, 5, 7>();
    }
    a += rows * run;
    codes += run / step_k * step_bytes;
  }
  const std::int64_t bytes = stride * 4;
  CpuTiles::store<0>(sums, bytes);
  CpuTiles::store<1>(sums + panel_columns, bytes);
  if constexpr (two) {
    CpuTiles::store<2>(sums + tile_rows * stride, bytes);
    CpuTiles::store<3>(sums + tile_rows * stride + panel_columns, bytes);
  }
}
constexpr auto multiply_of(int rows) { return rows > tile_rows ? multiply<true> : multiply<false>; }

struct alignas(64) Values {
  float of[most_rows][wide_columns];
};

// fma(C(d), scale, values) of one group, `at` being its scales.
template <int parts>
void scale(const GroupCall& call, int panel, std::int64_t g, const unsigned char* at,
           const std::int32_t (&sums)[most_rows][wide_columns], Values& to) {
  const std::int32_t* row_sums = call.row_sums + g * call.rows * parts;
  for (std::int64_t q = 0; q < wide_columns; q += E::columns) {
    const E::Floats scales = E::scales(at, call.scale_type, q);
    const bool has_zeros = call.zero_points[panel] != nullptr;
    const E::Sums zeros = has_zeros ? E::bytes(call.zero_points[panel] + g * wide_columns + q)
                                    : E::repeated(call.zero);
    E::Sums columns = E::zero();
    if (call.row_zeros != nullptr)
      columns = E::integers(call.column_sums[panel] + g * wide_columns + q);
    for (int r = 0; r < call.rows; ++r) {
      const std::int64_t chain = std::int64_t{r} * parts;
      E::Sums s = E::integers(&sums[chain][q]);
      std::int32_t row_sum = row_sums[chain];
      if constexpr (parts == 2) {
        s = E::plus(E::times256(s), E::integers(&sums[chain + 1][q]));
        row_sum = row_sum * 256 + row_sums[chain + 1];
      }
      s = E::minus(s, E::times(zeros, E::repeated(row_sum)));
      if (call.row_zeros != nullptr)
        s = E::minus(s, E::times(columns, E::repeated(call.row_zeros[r])));
      float* y = &to.of[r][q];
      E::store(E::fma(E::value(s), scales, _mm512_load_ps(y)), y);
    }
  }
}

// f(row, column) for every vector of some rows.
template <class F>
void for_each_vector(int rows, F&& f) {
  for (int r = 0; r < rows; ++r)
    for (std::int64_t q = 0; q < wide_columns; q += E::columns) f(r, q);
}

template <int parts>
void run_panel(const GroupCall& call, int panel) {
  const int chains = call.rows * parts;
  const auto products = multiply_of(chains);
  const std::int64_t scale_bytes = wide_columns * bits(call.scale_type) / 8;
  alignas(64) std::int32_t sums[most_rows][wide_columns];
  Values waiting[4];  // as numerics::SegmentTree has them, the sum of a segment on top
  int levels = 0;
  const unsigned char* at = call.weights[panel];
  const std::int8_t* a = call.activations;
  std::int64_t g = 0;
  for (int j = 0; j < call.segments; ++j) {
    Values& y = waiting[levels];
    for_each_vector(call.rows,
                    [&](int r, std::int64_t q) { E::store(E::no_value(), &y.of[r][q]); });
    for (; g < call.segment[j].end; ++g) {
      products(a, chains, call.run, at + scale_bytes, call.steps, sums[0], wide_columns);
      scale<parts>(call, panel, g, at, sums, y);
      at += scale_bytes + call.steps * step_bytes;
      a += call.steps * step_k * chains;
    }
    for (int i = call.segment[j].merges; i > 0; --i) {
      --levels;
      for_each_vector(call.rows, [&](int r, std::int64_t q) {
        float* to = &waiting[levels].of[r][q];
        E::store(E::sum(_mm512_load_ps(to), _mm512_load_ps(&waiting[levels + 1].of[r][q])), to);
      });
    }
    ++levels;
  }
  for_each_vector(call.rows, [&](int r, std::int64_t q) {
    E::store(_mm512_load_ps(&waiting[0].of[r][q]),
             call.values + r * group_columns + panel * wide_columns + q);
  });
}

Target run(const GroupCall& call, bool nibbles) {
  if (call.rows * call.parts <= E::rows) return run_groups<E>(call, nibbles);
  CpuTiles::configure(config_of(call.rows * call.parts, call.run));
  const auto of_panel = call.parts == 1 ? run_panel<1> : run_panel<2>;
  for (int i = 0; i < call.panels; ++i) of_panel(call, i);
  return E::target;
}

Target sums(const GroupSumsCall& call, bool nibbles) {
  const int chains = call.rows * call.parts;
  if (chains <= E::rows) return sum_groups<E>(call, nibbles);
  CpuTiles::configure(config_of(chains, call.run));
  for (int i = 0; i < call.panels; ++i)
    multiply_of(chains)(call.activations, chains, call.run, call.codes[i], call.steps,
                        call.sums + i * wide_columns, group_columns);
  return E::target;
}

}  // namespace
}  // namespace N_AMX_GROUP

const GroupKernel group_amx{.rows = N_AMX_GROUP::most_rows,
                            .few = N_AMX_GROUP::Engine::rows,
                            .most_together = N_AMX::tile_bytes,
                            .beside = Target::avx512vnni,
                            .run = N_AMX_GROUP::run,
                            .sums = N_AMX_GROUP::sums,
                            .widen = widen<N_AMX_GROUP::Engine>,
                            .end = N_AMX::CpuTiles::release};

}  // namespace octavo::detail
