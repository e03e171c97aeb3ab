// The insides of observers' states, for their own room.
#pragma once

#include "octavo/observer.hpp"

namespace octavo {

struct ObserverAccess {
  static MinMaxState& extremes(MinMaxState& s) { return s; }
  static MinMaxState& extremes(HistogramState& s) { return s.extremes_; }
  static ObserverDescriptor& descriptor(MinMaxState& s) { return s.descriptor_; }
  static std::vector<double>& low(MinMaxState& s) { return s.low_; }
  static std::vector<double>& high(MinMaxState& s) { return s.high_; }
  static std::vector<std::int64_t>& counts(HistogramState& s) { return s.counts_; }
};

}  // namespace octavo
