// One file of the result while it is being written.
#pragma once

#include <memory>
#include <vector>

#include "offline/measure.hpp"
#include "offline/output.hpp"
#include "offline/slab.hpp"

namespace octavo::offline {

/// Memory that a thread uses again from piece to piece.
struct Scratch {
  std::vector<std::byte> rows, strip, measured;
  QuantizedSlab slab;
};

/// Its pieces are of about equal size; each may be run by any thread, in any order, once.
class Shard {
 public:
  /// Null if an earlier run has finished this very file.
  static Result<std::unique_ptr<Shard>> open(ShardJob job);

  [[nodiscard]] std::size_t pieces() const { return pieces_.size(); }
  /// `one` is a stream of one thread.
  Status run(const Stream& one, std::size_t piece, Scratch& scratch);
  /// Once all pieces have run.
  Status finish();

 private:
  struct Piece {
    const OutputTensor* tensor = nullptr;
    std::int64_t first = 0;  // rows of a layer, bytes of a copy
    std::int64_t count = 0;
  };
  Shard(ShardJob job, std::vector<OutputTensor> tensors, SafetensorsWriter writer);
  void add_pieces(const OutputTensor& t);
  [[nodiscard]] TensorRef view_of(const OutputTensor& t) const;
  void finished(std::span<const std::byte> source) const;
  void finished_rows(const Piece& piece, const TensorRef& w) const;

  /// The rows of a piece, smoothed.
  void gather_smoothed(const Stream& one, const Piece& piece, const TensorRef& w, std::size_t pair,
                       std::vector<std::byte>& to) const;
  Status copy(const Piece& piece);
  Status norm(const Piece& piece);
  Status scaled(const Stream& one, const Piece& piece, Scratch& scratch);
  Status quantized(const Stream& one, const Piece& piece, Scratch& scratch);
  Status write_matrix(const Piece& piece, const TensorRef& w, std::span<const std::byte> rows,
                      std::int64_t element, Scratch& scratch);
  Status write_packed(const Piece& piece, Scratch& scratch);
  Status write_scales(const Piece& piece, Scratch& scratch);
  Status write_companions(const PlannedLayer& planned);
  Status measure(const Stream& one, const Piece& piece, const TensorRef& w, Scratch& scratch);

  ShardJob job_;
  std::vector<OutputTensor> tensors_;
  SafetensorsWriter writer_;
  std::vector<Piece> pieces_;
  std::vector<ErrorSums> sums_;  // of each piece that was measured
};

}  // namespace octavo::offline
