#include "ops/runs/cpu/driver.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/parallel.hpp"
#include "core/parts.hpp"

namespace octavo::detail {
namespace {

// Below this many elements per thread, waking another one costs more than it saves.
constexpr std::int64_t elements_per_thread = (max_small + 1) / 2;
// How long rows of few channels become, about.
constexpr std::int64_t joined_length = 1024;
// Threads part at multiples of this within a row: whole cache lines of every type, whole bytes of
// packed ones.
constexpr std::int64_t row_grain = 128;

// A place between two elements: before column `column` of row `row`.
struct Cut {
  std::int64_t row = 0;
  std::int64_t column = 0;
};

Cut cut_at(const Iteration& it, int part, int parts, bool whole_rows) {
  const std::int64_t length = it.length();
  const std::int64_t total = it.rows * length;
  if (part == parts) return {it.rows, 0};
  const std::int64_t element = total / parts * part + std::min<std::int64_t>(part, total % parts);
  if (it.rows_per_cut > 1 || whole_rows)
    return {element / length / it.rows_per_cut * it.rows_per_cut, 0};
  return {element / length, element % length / row_grain * row_grain};
}

// An input whose elements are not consecutive is gathered, piece by piece, on the stack.
constexpr std::int64_t piece = 1024;
struct alignas(64) Piece {
  unsigned char bytes[static_cast<std::size_t>(piece) * 8];
};

template <class T>
void gather_as(const void* from, std::int64_t at, std::int64_t stride, std::int64_t n, void* to) {
  const auto* source = static_cast<const unsigned char*>(from);
  for (std::int64_t i = 0; i < n; ++i)
    std::memcpy(static_cast<T*>(to) + i,
                source + (at + i * stride) * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
}

void gather(DType type, const void* from, std::int64_t at, std::int64_t stride, std::int64_t n,
            void* to) {
  switch (bits(type)) {
    case 64:
      return gather_as<std::uint64_t>(from, at, stride, n, to);
    case 32:
      return gather_as<std::uint32_t>(from, at, stride, n, to);
    case 16:
      return gather_as<std::uint16_t>(from, at, stride, n, to);
    default:
      return gather_as<std::uint8_t>(from, at, stride, n, to);
  }
}

}  // namespace

Target run_gathered(const Work& work, const KernelCall& call) {
  const auto& inner = work.iteration->inner().stride;
  Piece input;
  Piece grad;
  Target ran = Target::scalar;
  for (std::int64_t run = 0; run < call.count; ++run)
    for (std::int64_t i = 0; i < call.length; i += piece) {
      KernelCall part = call;
      part.count = 1;
      part.length = std::min(piece, call.length - i);
      const auto source = [&](const void* data, DType type, std::int64_t at, std::int64_t stride,
                              Piece& buffer, const void*& to, std::int64_t& to_at) {
        to = data;
        to_at = at + i * stride;
        if (data == nullptr || stride == 1) return;
        gather(type, data, to_at, stride, part.length, buffer.bytes);
        to = buffer.bytes;
        to_at = 0;
      };
      source(call.input, work.input_type, call.input_at + run * call.input_step, inner[op_input],
             input, part.input, part.input_at);
      source(call.grad, work.grad_type, call.grad_at + run * call.grad_step, inner[op_grad], grad,
             part.grad, part.grad_at);
      part.output_at = call.output_at + run * call.output_step + i;
      part.skip_parameters(run * call.param_step + (work.iteration->per_lane ? i : 0),
                           work.scale_bytes());
      ran = work.kernel(part);
    }
  return ran;
}

// Short rows that follow each other and share their parameters per lane (a few channels on the last
// axis) become longer ones, whose parameters repeat.
bool joins_rows(const Iteration& it) {
  return it.per_lane && it.rank >= 2 && it.length() <= joined_length / 2 &&
         it.dims[static_cast<std::size_t>(it.rank - 2)].stride[op_params] == 0;
}

namespace {

void set_steps(KernelCall& call, const Iteration& it) {
  if (it.rank < 2) return;
  const auto& step = it.dims[static_cast<std::size_t>(it.rank - 2)].stride;
  call.input_step = step[op_input];
  call.grad_step = step[op_grad];
  call.output_step = step[op_output];
  call.param_step = step[op_params];
}

class Part {
 public:
  Part(const Work& work, bool stream_stores) : work_(work), it_(*work.iteration) {
    stream_ = stream_stores;
    const auto& inner = it_.inner().stride;
    const auto consecutive = [&](const void* data, Operand o) {
      return data == nullptr || it_.length() == 1 || inner[o] == 1;
    };
    gathered_ = !consecutive(work.call.input, op_input) || !consecutive(work.call.grad, op_grad);
    scale_bytes_ = work.scale_bytes();
    joins_ = !gathered_ && joins_rows(it_) && follow_each_other();
  }

  // Runs from `from` to `to`; returns the bits of the targets that ran.
  std::uint32_t run(Cut from, const Cut& to) {
    while (from.row < to.row || (from.row == to.row && from.column < to.column)) {
      const std::int64_t end = from.row == to.row ? to.column : it_.length();
      std::int64_t count = 1;
      if (from.column == 0 && end == it_.length() && it_.rank > 1) {
        const std::int64_t size = it_.dims[static_cast<std::size_t>(it_.rank - 2)].size;
        count = std::min(size - from.row % size, to.row - from.row);
      }
      call(from, end, count);
      from = {from.row + count, 0};
      if (end != it_.length()) break;
    }
    return ran_;
  }

 private:
  void call(const Cut& from, std::int64_t end, std::int64_t count) {
    std::array<std::int64_t, operand_count> at = it_.start_of(from.row);
    for (std::size_t o = 0; o < operand_count; ++o) at[o] += from.column * it_.inner().stride[o];
    KernelCall c = work_.call;
    c.input_at = at[op_input];
    c.grad_at = at[op_grad];
    c.output_at = at[op_output];
    c.count = count;
    c.length = end - from.column;
    c.skip_parameters(at[op_params], scale_bytes_);
    c.stream_stores = stream_;
    set_steps(c, it_);
    if (joins_) {
      run_joined(c);
    } else if (gathered_ && work_.gathered_row != nullptr) {
      c.count = 1;
      for (std::int64_t run = 0; run < count; ++run) {
        note(work_.gathered_row(work_, c));
        c.input_at += c.input_step;
        c.output_at += c.output_step;
        c.skip_parameters(c.param_step, scale_bytes_);
      }
    } else {
      note(gathered_ ? run_gathered(work_, c) : work_.kernel(c));
    }
  }

  // Whether the rows of each tensor have no gaps between them.
  [[nodiscard]] bool follow_each_other() const {
    const auto& step = it_.dims[static_cast<std::size_t>(it_.rank - 2)].stride;
    const auto follows = [&](const void* data, Operand o) {
      return data == nullptr || step[o] == it_.length();
    };
    return follows(work_.call.input, op_input) && follows(work_.call.grad, op_grad) &&
           follows(work_.call.output, op_output);
  }

  void run_joined(const KernelCall& rows) {
    alignas(64) unsigned char first[joined_length * sizeof(double)];
    alignas(64) unsigned char second[joined_length * sizeof(double)];
    const std::int64_t together = std::min(joined_length / rows.length, rows.count);
    KernelCall c = rows;
    c.length = together * rows.length;
    const auto repeat = [&](const void* from, std::int64_t bytes, unsigned char* to) {
      for (std::int64_t i = 0; i < c.length; i += rows.length)
        std::memcpy(to + i * bytes, from, static_cast<std::size_t>(rows.length * bytes));
      return to;
    };
    if (rows.scale != nullptr) c.scale = repeat(rows.scale, scale_bytes_, first);
    if (rows.zero_point != nullptr)
      c.zero_point = reinterpret_cast<const std::int32_t*>(repeat(rows.zero_point, 4, second));
    if (rows.high != nullptr) c.high = repeat(rows.high, scale_bytes_, first);
    if (rows.low != nullptr) c.low = repeat(rows.low, scale_bytes_, second);

    c.count = rows.count / together;
    c.input_step = c.grad_step = c.output_step = c.length;
    note(work_.kernel(c));
    const std::int64_t joined = c.length;
    const std::int64_t done = c.count * c.length;
    c.length = rows.count * rows.length - done;
    if (c.length > 0) {
      c.input_at += done;
      c.grad_at += done;
      c.output_at += done;
      c.count = 1;
      note(work_.kernel(c));
    }
    if (rows.high == nullptr) return;
    scale_bytes_ == 8 ? fold<double>(c, joined, rows) : fold<float>(c, joined, rows);
  }

  // The ranges of joined rows, back to one.
  template <class C>
  static void fold(const KernelCall& from, std::int64_t joined, const KernelCall& to) {
    for (std::int64_t i = 0; i < joined; ++i) {
      C& high = static_cast<C*>(to.high)[i % to.length];
      high = std::max(high, static_cast<const C*>(from.high)[i]);
      if (to.low == nullptr) continue;
      C& low = static_cast<C*>(to.low)[i % to.length];
      low = std::min(low, static_cast<const C*>(from.low)[i]);
    }
  }

  void note(Target ran) { ran_ |= 1U << static_cast<unsigned>(ran); }

  const Work& work_;
  const Iteration& it_;
  std::int64_t scale_bytes_ = 4;
  bool gathered_ = false;
  bool stream_ = false;
  bool joins_ = false;
  std::uint32_t ran_ = 0;
};

int parts_for(const Stream& stream, const Work& work) {
  const std::int64_t total = work.iteration->rows * work.iteration->length();
  const int threads =
      work.max_parts == 0 ? stream.threads() : std::min(work.max_parts, stream.threads());
  return parts_of(total, elements_per_thread, threads);
}

void execute_part(const Stream& stream, const Work& work, int part, int parts) {
  const Iteration& it = *work.iteration;
  const std::int64_t total = it.rows * it.length();
  const std::int64_t grad_bytes = work.call.grad == nullptr ? 0 : bytes_for(work.grad_type, total);
  const std::int64_t input_bytes =
      work.call.input == nullptr ? 0 : bytes_for(work.input_type, total);
  const bool stream_stores =
      go_past_caches(work.call, input_bytes + grad_bytes + bytes_for(work.output_type, total));
  const std::uint32_t ran = Part(work, stream_stores)
                                .run(cut_at(it, part, parts, work.whole_rows),
                                     cut_at(it, part + 1, parts, work.whole_rows));
  if (stream.options().trace != nullptr)
    stream.options().trace->fetch_or(ran, std::memory_order_relaxed);
}

}  // namespace

KernelCall whole_call(const Iteration& iteration) {
  KernelCall call;
  call.count = iteration.rows;
  call.length = iteration.length();
  set_steps(call, iteration);
  return call;
}

std::int64_t set_stream_bytes(std::int64_t bytes) { return stream_from.exchange(bytes); }

void execute(const Stream& stream, const Work& work) {
  const int parts = parts_for(stream, work);
  if (parts == 1) return execute_part(stream, work, 0, 1);
  parallel(stream, parts, [&](int part) {
    if (work.ranges_per_part == 0) return execute_part(stream, work, part, parts);
    Work own = work;
    own.call.skip_parameters(part * work.ranges_per_part, work.scale_bytes());
    execute_part(stream, own, part, parts);
  });
}

void execute_here(const Stream& stream, const Work& work) { execute_part(stream, work, 0, 1); }

}  // namespace octavo::detail
