# octavo_flags: how every file of the project is compiled. It is not part of what users link: use
# target_link_libraries(<target> PRIVATE $<BUILD_INTERFACE:octavo_flags>) for installed targets.

include_guard(GLOBAL)

add_library(octavo_flags INTERFACE)

# -ffp-contract=off is part of the contract, not tuning: a fused a*b+c changes the bits.
# -Wno-sign-conversion: clang counts it as -Wconversion and g++ does not. Sizes are int64 and index
# standard containers everywhere; both compilers are held to the same rule.
# -Wno-psabi: how SIMD vectors are passed is private to one translation unit.
# -Wno-restrict: g++ 12 warns falsely of "text" + std::string (GCC bug 105651).
target_compile_options(octavo_flags INTERFACE
  -ffp-contract=off
  -fvisibility=hidden
  $<$<COMPILE_LANGUAGE:CXX>:-fvisibility-inlines-hidden>
  -Wall -Wextra -Wconversion -Wno-sign-conversion -Wno-psabi
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  $<$<BOOL:${OCTAVO_WERROR}>:-Werror>)

if(OCTAVO_STD_THREADS)
  target_compile_definitions(octavo_flags INTERFACE OCTAVO_STD_THREADS=1)
endif()

if(OCTAVO_TIDY)
  find_program(OCTAVO_CLANG_TIDY NAMES clang-tidy-14 REQUIRED)
  # The hash of the settings stands in the command line, so that ninja, which remembers the files
  # that passed, checks them again when the settings change.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/.clang-tidy)
  file(SHA256 ${PROJECT_SOURCE_DIR}/.clang-tidy tidy_settings)
  set(CMAKE_CXX_CLANG_TIDY
    ${OCTAVO_CLANG_TIDY} --quiet --warnings-as-errors=*
    --extra-arg=-DOCTAVO_TIDY_SETTINGS=0x${tidy_settings})
endif()
