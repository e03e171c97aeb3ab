# re2::re2. Newer releases of RE2 bring a package for CMake; Debian 12 has the library and its headers.
find_package(re2 CONFIG QUIET)
if(NOT TARGET re2::re2)
  find_library(OCTAVO_RE2_LIBRARY re2 REQUIRED)
  find_path(OCTAVO_RE2_INCLUDE re2/re2.h REQUIRED)
  mark_as_advanced(OCTAVO_RE2_LIBRARY OCTAVO_RE2_INCLUDE)
  add_library(re2::re2 UNKNOWN IMPORTED)
  set_target_properties(re2::re2 PROPERTIES
    IMPORTED_LOCATION ${OCTAVO_RE2_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${OCTAVO_RE2_INCLUDE})
endif()
