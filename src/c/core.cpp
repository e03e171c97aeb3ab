// Errors, types, targets, streams, workspaces, and what can be asked of any plan.
#include <array>
#include <cstring>
#include <new>
#include <stdexcept>

#include "c/boundary.hpp"
#include "core/workspace.hpp"

namespace octavo::c {
namespace {

// An error that C can look at. One for each thread: threads do not disturb each other, and nobody
// has to free it.
struct LastError {
  std::string argument;
  std::string message;
  octavo_error error{sizeof(octavo_error), OCTAVO_OK, "", "", 0, 0};
};

LastError& last_error() noexcept {
  static thread_local LastError last;
  return last;
}

// Without an allocation, for when there is no memory.
octavo_status report_plainly(const char* message) noexcept {
  last_error().error = {sizeof(octavo_error), OCTAVO_BACKEND, "", message, 0, 0};
  return OCTAVO_BACKEND;
}

// Names are literals, and so end with a zero.
template <class E>
const char* name_of(std::int32_t value) {
  return name(static_cast<E>(value >= 0 && value < 255 ? value : 255)).data();
}

}  // namespace

octavo_status report(const Error& error) noexcept {
  try {
    LastError& last = last_error();
    last.argument = error.argument();
    last.message = error.message();
    last.error = {sizeof(octavo_error),  static_cast<octavo_status>(error.code()),
                  last.argument.c_str(), last.message.c_str(),
                  error.needed(),        error.got()};
    return last.error.code;
  } catch (...) {
    return report_plainly("memory ran out");
  }
}

octavo_status report_exception() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return report_plainly("memory ran out");
  } catch (const std::length_error&) {
    return report_plainly("memory ran out: expected fewer bytes than the address space has");
  } catch (const std::exception& exception) {
    return report(Error(ErrorCode::backend, "", exception.what()));
  } catch (...) {
    return report_plainly("the machine failed in an unknown way");
  }
}

}  // namespace octavo::c

using octavo::Status;
using octavo::c::guarded;
using octavo::c::name_of;
using octavo::c::Reader;

const octavo_error* octavo_last_error() { return &octavo::c::last_error().error; }
const char* octavo_status_name(octavo_status status) { return name_of<octavo::ErrorCode>(status); }

int32_t octavo_version() { return OCTAVO_VERSION; }
const char* octavo_version_string() {
#define OCTAVO_TEXT_OF(number) #number
#define OCTAVO_TEXT(number) OCTAVO_TEXT_OF(number)
  return OCTAVO_TEXT(OCTAVO_VERSION_MAJOR) "." OCTAVO_TEXT(OCTAVO_VERSION_MINOR) "." OCTAVO_TEXT(
      OCTAVO_VERSION_PATCH);
#undef OCTAVO_TEXT
#undef OCTAVO_TEXT_OF
}

const char* octavo_dtype_name(octavo_dtype dtype) { return name_of<octavo::DType>(dtype); }
int64_t octavo_bytes_for(octavo_dtype dtype, int64_t n) {
  if (dtype < 0 || dtype >= octavo::dtype_count) return 0;
  const auto type = static_cast<octavo::DType>(dtype);
  const int64_t bytes = octavo::bytes_for(type, n);
  // (Of one byte each, there may be as many.)
  if (n >= 0 && (bytes != INT64_MAX || bits(type) <= 8)) return bytes;
  guarded([&]() -> Status {
    return octavo::detail::invalid(
        "n", fmt::format("expected 0 or more elements of {}, of less than 2^63 bytes, got {}",
                         name(type), n));
  });
  return -1;
}
float octavo_f16_to_f32(uint16_t bits) { return octavo::to_float(octavo::f16{bits}); }
float octavo_bf16_to_f32(uint16_t bits) { return octavo::to_float(octavo::bf16{bits}); }
uint16_t octavo_f32_to_f16(float value) { return octavo::to_f16(value).bits; }
uint16_t octavo_f32_to_bf16(float value) { return octavo::to_bf16(value).bits; }

const char* octavo_target_name(octavo_target target) { return name_of<octavo::Target>(target); }

octavo_status octavo_parse_target(const char* name, octavo_target* out) {
  return guarded([&]() -> Status {
    Reader reader;
    reader.not_null("name", name);
    reader.not_null("out", out);
    if (!reader.ok()) return reader.error();
    const auto target = octavo::parse_target(name);
    if (!target)
      return octavo::detail::unsupported("name",
                                         fmt::format("expected a target, scalar, avx2 or another, "
                                                     "got '{}'",
                                                     name));
    *out = static_cast<octavo_target>(*target);
    return {};
  });
}

octavo_status octavo_available_targets(octavo_target* targets, size_t capacity, size_t* count) {
  return guarded([&]() -> Status {
    Reader reader;
    reader.not_null("count", count);
    if (capacity > 0) reader.not_null("targets", targets);
    if (!reader.ok()) return reader.error();
    const auto available = octavo::available_targets();
    *count = available.size();
    for (std::size_t i = 0; i < std::min(capacity, available.size()); ++i)
      targets[i] = static_cast<octavo_target>(available[i]);
    return {};
  });
}

octavo_status octavo_stream_create(const octavo_stream_options* options, octavo_stream** out) {
  return guarded([&]() -> Status {
    Reader reader;
    const octavo_stream_options o = reader.maybe("options", options);
    octavo::CpuOptions cpu;
    cpu.threads = o.threads;
    cpu.cap = reader.target("cap", o.cap);
    reader.not_null("out", out);
    if (o.threads < 0)
      reader.refuse(octavo::detail::invalid(
          "threads", fmt::format("expected 0 (all) or more, got {}", o.threads)));
    if (!reader.ok()) return reader.error();
    return octavo::c::give(octavo_stream{octavo::Stream::cpu(cpu)}, out);
  });
}
octavo_status octavo_stream_create_cuda(const octavo_cuda_options* options, octavo_stream** out) {
  return guarded([&]() -> Status {
    Reader reader;
    const octavo_cuda_options o = reader.maybe("options", options);
    reader.not_null("out", out);
    if (!reader.ok()) return reader.error();
    octavo::CudaOptions cuda{.device = o.device};
    if (o.use_stream != 0) cuda.stream = o.stream;
    const auto stream = octavo::Stream::cuda(cuda);
    if (!stream) return stream.error();
    return octavo::c::give(octavo_stream{*stream}, out);
  });
}
octavo_status octavo_cuda_device_count(int32_t* count) {
  return guarded([&]() -> Status {
    Reader reader;
    if (!reader.not_null("count", count)) return reader.error();
    const auto devices = octavo::cuda_devices();
    if (!devices) return devices.error();
    *count = static_cast<int32_t>(devices->size());
    return {};
  });
}
octavo_backend octavo_stream_backend(const octavo_stream* stream) {
  return stream == nullptr ? OCTAVO_CPU : static_cast<octavo_backend>(stream->stream.backend());
}
octavo_status octavo_stream_synchronize(const octavo_stream* stream) {
  return guarded([&]() -> Status {
    Reader reader;
    const octavo::Stream* on = reader.stream(stream);
    if (!reader.ok()) return reader.error();
    return on->synchronize();
  });
}

int32_t octavo_stream_threads(const octavo_stream* stream) {
  return stream == nullptr ? 0 : stream->stream.threads();
}
void octavo_stream_destroy(octavo_stream* stream) { delete stream; }

octavo_status octavo_workspace_create(size_t bytes, void** out) {
  return guarded([&]() -> Status {
    Reader reader;
    if (!reader.not_null("out", out)) return reader.error();
    *out = octavo::detail::allocate_workspace(bytes);
    return {};
  });
}
void octavo_workspace_destroy(void* workspace) {
  ::operator delete (workspace, std::align_val_t{octavo::workspace_alignment});
}

octavo_status octavo_stream_workspace_create(const octavo_stream* stream, size_t bytes,
                                             void** out) {
  return guarded([&]() -> Status {
    Reader reader;
    const octavo::Stream* on = reader.stream(stream);
    reader.not_null("out", out);
    if (!reader.ok()) return reader.error();
    const auto memory = on->impl().allocate(bytes);
    if (!memory) return memory.error();
    *out = *memory;
    return {};
  });
}
void octavo_stream_workspace_destroy(const octavo_stream* stream, void* workspace) {
  if (stream != nullptr) stream->stream.impl().free(workspace);
}

const char* octavo_plan_sku(const octavo_plan* plan) {
  return plan == nullptr ? "" : plan->sku.c_str();
}
size_t octavo_plan_workspace_size(const octavo_plan* plan) {
  if (plan == nullptr) return 0;
  return std::visit([](const auto& p) { return p.workspace_size(); }, plan->plan);
}
int64_t octavo_plan_slices(const octavo_plan* plan) {
  if (plan == nullptr) return 0;
  if (const auto* p = std::get_if<octavo::detail::AnyElementwisePlan>(&plan->plan))
    return p->slices();
  if (const auto* p = std::get_if<octavo::DynamicRangeQuantizePlan>(&plan->plan))
    return p->slices();
  return 0;
}
octavo_status octavo_plan_guarantee(const octavo_plan* plan, octavo_guarantee* out) {
  return guarded([&]() -> Status {
    Reader reader;
    reader.not_null("plan", plan);
    reader.not_null("out", out);
    if (!reader.ok()) return reader.error();
    const auto& g = std::visit(
        [](const auto& p) -> const octavo::PrecisionGuarantee& { return p.sku().guarantee; },
        plan->plan);
    octavo_guarantee known{};
    known.math = static_cast<octavo_dtype>(g.math);
    if (g.accumulator) known.accumulator = octavo_some(static_cast<int32_t>(*g.accumulator));
    known.deterministic = g.deterministic ? 1 : 0;
    known.bit_stable_same_hardware = g.bit_stable_same_hardware ? 1 : 0;
    known.bit_stable_everywhere = g.bit_stable_everywhere ? 1 : 0;
    return octavo::c::write_struct("out", &known, sizeof known, out);
  });
}
void octavo_plan_destroy(octavo_plan* plan) { delete plan; }
