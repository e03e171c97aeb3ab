// Memory to measure on.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>

#include "core/large_pages.hpp"

namespace octavo::measuring {

// Starts on a large page, as packed weights do, whatever its size: with small ones memory is read
// at two thirds of its rate.
template <class T>
class LargePages {
 public:
  LargePages() = default;
  explicit LargePages(std::size_t count)
      : size_(count),
        data_(static_cast<T*>(
            detail::allocate_in_large_pages(std::max(count * sizeof(T), detail::large_page)))) {
    if (data_ == nullptr) throw std::bad_alloc();
  }
  [[nodiscard]] T* begin() const { return data_.get(); }
  [[nodiscard]] T* end() const { return data_.get() + size_; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  std::size_t size_ = 0;
  std::unique_ptr<T, detail::FreeLargePages> data_;
};

}  // namespace octavo::measuring
