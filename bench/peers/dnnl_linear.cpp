// oneDNN's matmul, s8 x s8 -> f32 or all f32, its weights in the order it likes best. It has one
// scale for each column: a whole linear layer is our quantizer of rows in front, and a pass behind
// that multiplies each row by its scale (as a post-op, oneDNN 2 falls back to its reference
// kernel).
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "peers/dnnl.hpp"

namespace octavo::bench {
namespace {

using dnnl::memory;

struct Matmul {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  memory input, output;
  std::vector<memory> weights;
  dnnl::matmul primitive;
  std::size_t next = 0;

  void run() {
    primitive.execute(stream, {{DNNL_ARG_SRC, input},
                               {DNNL_ARG_WEIGHTS, weights[next++ % weights.size()]},
                               {DNNL_ARG_DST, output}});
    stream.wait();
  }
};

// `l` is Linear or Floats; both operands are of the type.
template <class Problem>
std::shared_ptr<Matmul> make_matmul(const Problem& l, memory::data_type type, const void* input,
                                    const dnnl::primitive_attr& attributes) {
  using tag = memory::format_tag;
  auto result = std::make_shared<Matmul>();
  const memory::desc source({l.m, l.k}, type, tag::ab);
  const memory::desc rows({l.k, l.n}, type, tag::ba);
  const memory::desc target({l.m, l.n}, memory::data_type::f32, tag::ab);
  const dnnl::matmul::primitive_desc chosen(
      dnnl::matmul::desc(source, memory::desc({l.k, l.n}, type, tag::any), target), attributes,
      result->engine);
  result->primitive = dnnl::matmul(chosen);
  result->input = memory(source, result->engine, const_cast<void*>(input));
  result->output = memory(target, result->engine, l.output);
  memory given(rows, result->engine, const_cast<void*>(static_cast<const void*>(l.weight)));
  for (int i = 0; i < l.copies; ++i) {
    memory packed(chosen.weights_desc(), result->engine);
    dnnl::reorder(given, packed).execute(result->stream, given, packed);
    result->weights.push_back(packed);
  }
  result->stream.wait();
  return result;
}

std::shared_ptr<Matmul> make_int8(const Linear& l, const void* input, float act_scale) {
  std::vector<float> scales(l.weight_scales, l.weight_scales + l.n);
  for (float& s : scales) s *= act_scale;
  dnnl::primitive_attr attributes;
  attributes.set_output_scales(1 << 1, scales);
  return make_matmul(l, memory::data_type::s8, input, attributes);
}

__attribute__((target_clones("default", "avx2", "avx512f"))) void scale(float* data,
                                                                        std::int64_t count,
                                                                        float by) {
  for (std::int64_t i = 0; i < count; ++i) data[i] *= by;
}

// Part `part` of `parts` of all elements, which may begin and end within rows.
void scale_rows(float* output, const float* scales, std::int64_t m, std::int64_t n, int part,
                int parts) {
  const std::int64_t end = m * n * (part + 1) / parts;
  for (std::int64_t at = m * n * part / parts; at < end;) {
    const std::int64_t row = at / n, count = std::min(end, (row + 1) * n) - at;
    scale(output + at, count, scales[row]);
    at += count;
  }
}

}  // namespace

const Gomp& Gomp::instance() {
  static const Gomp gomp;
  return gomp;
}

Gomp::Gomp() {
  void* library = dlopen("libgomp.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (!library) return;
  const auto find = [library](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
  };
  find(set_num_threads_, "omp_set_num_threads");
  find(thread_num_, "omp_get_thread_num");
  find(parallel_, "GOMP_parallel");
}

void Gomp::set_threads(int threads) const {
  if (set_num_threads_) set_num_threads_(threads);
}

void Gomp::run(int threads, const std::function<void(int)>& part) const {
  if (threads == 1 || !parallel_ || !thread_num_) {
    for (int i = 0; i < threads; ++i) part(i);
    return;
  }
  struct Context {
    const std::function<void(int)>& part;
    int (*thread_num)();
  } context{part, thread_num_};
  parallel_(
      [](void* data) {
        const auto& c = *static_cast<Context*>(data);
        c.part(c.thread_num());
      },
      &context, static_cast<unsigned>(threads), 0);
}

Task dnnl_linear(const Linear& l) {
  const auto activation = static_cast<DType>(l.activation);
  const Gomp& gomp = Gomp::instance();
  gomp.set_threads(l.threads);
  if (activation == DType::s8) {
    const auto matmul = make_int8(l, l.input, l.act_scale);
    return [=, output = l.output]() -> const void* {
      matmul->run();
      return output;
    };
  }
  if (activation != DType::f32) return {};
  const auto matmul = make_int8(l, l.quantized, 1.0F);
  return [=, &gomp]() -> const void* {
    gomp.run(l.threads, [&](int part) { l.quantize(l.context, part); });
    matmul->run();
    gomp.run(l.threads,
             [&](int part) { scale_rows(l.output, l.row_scales, l.m, l.n, part, l.threads); });
    return l.output;
  };
}

Task dnnl_floats(const Floats& f) {
  Gomp::instance().set_threads(f.threads);
  const auto matmul = make_matmul(f, memory::data_type::f32, f.input, {});
  return [=, output = f.output]() -> const void* {
    matmul->run();
    return output;
  };
}

}  // namespace octavo::bench
