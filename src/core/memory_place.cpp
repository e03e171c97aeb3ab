#include "core/memory_place.hpp"

#include "core/check.hpp"

namespace octavo::detail {

Status check_places(FindMemoryPlace find, Backend backend, int device,
                    std::initializer_list<NamedPointer> pointers) {
  for (const auto& [argument, pointer] : pointers) {
    if (pointer == nullptr) continue;
    const MemoryPlace place = find(pointer);
    if (backend == Backend::cpu) {
      if (place.of_host) continue;
      return invalid(argument,
                     fmt::format("expected memory of the host, as the stream's backend is "
                                 "cpu, got memory of CUDA device {}; copy it first",
                                 place.device));
    }
    if (!place.of_device)
      return invalid(argument,
                     "expected memory of a CUDA device, as the stream's backend is cuda, "
                     "got memory of the host; copy it first");
    if (!place.of_host && device >= 0 && place.device != device)
      return invalid(argument, fmt::format("expected memory of CUDA device {}, the stream's, got "
                                           "memory of device {}; copy it first",
                                           device, place.device));
  }
  return {};
}

}  // namespace octavo::detail
