# octavo_flags: how every file of the project is compiled. It is not part of what users link: use
# target_link_libraries(<target> PRIVATE $<BUILD_INTERFACE:octavo_flags>) for installed targets.

include_guard(GLOBAL)
include(CheckCXXCompilerFlag)

# octavo_hardening: what optimised builds are armed with, so that a mistake in them, or in what they are
# given, ends the program instead of being of use to an attacker. tests/hardening looks at the results.
# Not for sanitizers, which find the same and more and do not go with _FORTIFY_SOURCE.
add_library(octavo_hardening INTERFACE)
string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
set(OCTAVO_HARDENED OFF)
if(build_type MATCHES "^(RELEASE|RELWITHDEBINFO|MINSIZEREL)$" AND
   NOT "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type}}" MATCHES "-fsanitize")
  set(OCTAVO_HARDENED ON)
endif()
if(OCTAVO_HARDENED)
  # Each compiler and architecture has some of these: jumps and returns are checked by the CPU on x86
  # by the third, on Arm by the fourth.
  set(CMAKE_REQUIRED_FLAGS -Werror)
  foreach(option IN ITEMS -fstack-protector-strong -fstack-clash-protection -fcf-protection
      -mbranch-protection=standard)
    string(MAKE_C_IDENTIFIER "OCTAVO_HAS${option}" has)
    check_cxx_compiler_flag(${option} ${has})
    if(${has})
      target_compile_options(octavo_hardening INTERFACE ${option})
    endif()
  endforeach()
  unset(CMAKE_REQUIRED_FLAGS)
  # A distribution that asks for a level of its own gets it.
  if(NOT "${CMAKE_CXX_FLAGS}" MATCHES "_FORTIFY_SOURCE")
    target_compile_options(octavo_hardening INTERFACE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
  endif()
  target_link_options(octavo_hardening INTERFACE
    LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)
endif()

add_library(octavo_flags INTERFACE)
target_link_libraries(octavo_flags INTERFACE octavo_hardening)

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
