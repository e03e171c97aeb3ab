# Device code for the CUDA backend: .cu -> PTX -> checked -> embedded as data.
#
# clang compiles it with a header of our own (src/cuda/device), so neither building nor running needs a
# CUDA toolkit. Where there is no clang that makes PTX the texts are empty: the library is built all the
# same, and says so when a CUDA stream is asked for.
#
#   octavo_cuda_kernels(<target> <file.cu>...)    adds to the target, for each file, what defines
#                                                 `extern const Ptx <stem>_ptx` (src/cuda/ptx.hpp)

include_guard(GLOBAL)

option(OCTAVO_CUDA "Compile device code for CUDA, where there is a clang that makes PTX" ON)

# Compute capability 8.0 runs on every later GPU, whose driver compiles it once. Nothing is contracted,
# and no exceptions, no run-time types. _GLIBCXX_ASSERTIONS would call the host's functions.
set(octavo_device_flags
  -x cuda --cuda-device-only -nocudainc -nocudalib --cuda-path=/nonexistent --cuda-gpu-arch=sm_80
  -Xclang -target-feature -Xclang +ptx70 -std=c++20 -O3 -ffp-contract=off -fno-exceptions -fno-rtti
  -U_GLIBCXX_ASSERTIONS -U_FORTIFY_SOURCE -Wall -Wextra -Wno-unused-command-line-argument
  -Wno-unknown-cuda-version)
if(OCTAVO_WERROR)
  list(APPEND octavo_device_flags -Werror)
endif()

set(OCTAVO_HAS_DEVICE_CODE OFF)
if(OCTAVO_CUDA)
  find_program(OCTAVO_DEVICE_CLANG
    NAMES clang-14 clang clang-19 clang-18 clang-17 clang-16 clang-15
    DOC "The clang that makes PTX")
  mark_as_advanced(OCTAVO_DEVICE_CLANG)
  if(OCTAVO_DEVICE_CLANG)
    # One small kernel, with what device code needs of the standard library.
    set(probe ${PROJECT_BINARY_DIR}/octavo_device_probe)
    file(WRITE ${probe}.cu
      "#include \"cuda/device/device.hpp\"\n"
      "extern \"C\" __global__ void probe(float* x) { *x = std::nearbyint(*x); }\n")
    execute_process(
      COMMAND ${OCTAVO_DEVICE_CLANG} ${octavo_device_flags} -I${PROJECT_SOURCE_DIR}/src
        -I${PROJECT_SOURCE_DIR}/include -S ${probe}.cu -o ${probe}.ptx
      RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
    if(failed EQUAL 0)
      set(OCTAVO_HAS_DEVICE_CODE ON)
      message(STATUS "CUDA: device code by ${OCTAVO_DEVICE_CLANG}")
    else()
      message(STATUS "CUDA: off, since ${OCTAVO_DEVICE_CLANG} makes no PTX: ${said}")
    endif()
  else()
    message(STATUS "CUDA: off, since there is no clang to compile device code")
  endif()
else()
  message(STATUS "CUDA: off (OCTAVO_CUDA)")
endif()
find_program(OCTAVO_PTXAS ptxas DOC "A check of the PTX where it is found, never a need")
mark_as_advanced(OCTAVO_PTXAS)

set(octavo_cuda_scripts ${CMAKE_CURRENT_LIST_DIR}/cuda)

function(octavo_cuda_kernels target)
  foreach(source IN LISTS ARGN)
    get_filename_component(stem ${source} NAME_WE)
    get_filename_component(source ${source} ABSOLUTE)
    set(ptx ${CMAKE_CURRENT_BINARY_DIR}/ptx/${stem}.ptx)
    set(embedded ${CMAKE_CURRENT_BINARY_DIR}/ptx/${stem}_ptx.cpp)
    set(checks ${octavo_cuda_scripts}/check_ptx.cmake)
    set(f64_entries ${PROJECT_SOURCE_DIR}/src/cuda/f64_entries.txt)
    set(embed ${octavo_cuda_scripts}/embed_ptx.cmake)
    if(OCTAVO_HAS_DEVICE_CODE)
      # (The depfile is clang's, so a changed header compiles what includes it.)
      add_custom_command(OUTPUT ${ptx}
        COMMAND ${OCTAVO_CCACHE} ${OCTAVO_DEVICE_CLANG} ${octavo_device_flags}
          -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR}/include
          -MD -MF ${ptx}.d -MT ${ptx} -S ${source} -o ${ptx}
        COMMAND ${CMAKE_COMMAND} -DPTX=${ptx} -DF64_ENTRIES=${f64_entries} -P ${checks}
        DEPENDS ${source} ${checks} ${f64_entries}
        DEPFILE ${ptx}.d
        COMMENT "Compiling ${stem}.cu to PTX"
        VERBATIM)
      add_custom_command(OUTPUT ${embedded}
        COMMAND ${CMAKE_COMMAND} -DPTX=${ptx} -DNAME=${stem} -DOUT=${embedded} -P ${embed}
        DEPENDS ${ptx} ${embed}
        VERBATIM)
      set_property(GLOBAL APPEND PROPERTY OCTAVO_PTX_FILES ${ptx})
    else()
      add_custom_command(OUTPUT ${embedded}
        COMMAND ${CMAKE_COMMAND} -DNAME=${stem} -DOUT=${embedded} -P ${embed}
        DEPENDS ${embed}
        VERBATIM)
    endif()
    target_sources(${target} PRIVATE ${embedded})
  endforeach()
endfunction()
