# octavo_test(<name> SOURCES <file>... [LABELS <label>...] [LIBRARIES <target>...] [CUDA])
#
# One GoogleTest executable; each of its cases is a ctest case, and a case that calls GTEST_SKIP is
# shown as skipped. With CUDA, cases that run on a device find the stand-in driver (tests/cuda/driver) where no
# LD_LIBRARY_PATH names another, and the program has the label cuda. Headers are found from the top directory and from src/. Does nothing without
# OCTAVO_TESTS, so that a test may be declared beside the code it tests.

include_guard(GLOBAL)

if(OCTAVO_TESTS)
  enable_testing()
  enable_language(C)
  find_package(GTest 1.12 REQUIRED)
  include(GoogleTest)
endif()

# octavo_finds_standin(<program>): as a RUNPATH, which is searched after LD_LIBRARY_PATH.
function(octavo_finds_standin name)
  add_dependencies(${name} octavo_standin_driver)
  target_link_options(${name} PRIVATE LINKER:--enable-new-dtags
    LINKER:-rpath,${PROJECT_BINARY_DIR}/tests/cuda/driver/lib)
endfunction()

function(octavo_test name)
  if(NOT OCTAVO_TESTS)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "CUDA" "" "SOURCES;LABELS;LIBRARIES")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCES)
    message(FATAL_ERROR "octavo_test(${name} SOURCES ... [LABELS ...] [LIBRARIES ...] [CUDA])")
  endif()

  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${name} PRIVATE
    octavo::octavo_static octavo_flags GTest::gtest_main GTest::gmock ${arg_LIBRARIES})

  if(arg_CUDA AND OCTAVO_HAS_DEVICE_CODE AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
    octavo_finds_standin(${name})
    list(APPEND arg_LABELS cuda)
  endif()

  # Cases are listed when ctest starts, not while building: what an emulated CPU offers is known
  # only then. The list is run through the emulator as the cases are.
  gtest_discover_tests(${name}
    NO_PRETTY_VALUES
    DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 300
    PROPERTIES TIMEOUT 3600)

  # gtest_discover_tests would keep only the first of several labels.
  if(arg_LABELS)
    set(labels_file ${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake)
    file(WRITE ${labels_file}
      "set_tests_properties(\${${name}_TESTS} PROPERTIES LABELS \"${arg_LABELS}\")\n")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${labels_file})
  endif()
endfunction()
