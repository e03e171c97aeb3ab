# A program in C through pkg-config, with either library.
include(${CMAKE_CURRENT_LIST_DIR}/step.cmake)
include(${HOW})

find_program(pkg_config pkg-config)
if(NOT pkg_config)
  message(FATAL_ERROR "there is no pkg-config")
endif()
set(flags_of_build ${CMAKE_C_FLAGS})
if(CMAKE_BUILD_TYPE STREQUAL Debug)
  string(APPEND flags_of_build " ${CMAKE_C_FLAGS_DEBUG}")
endif()

# build_and_run(<prefix> [<pkg-config options>])
function(build_and_run prefix)
  file(GLOB_RECURSE file ${prefix}/octavo.pc)
  cmake_path(GET file PARENT_PATH directory)
  set(ENV{PKG_CONFIG_LIBDIR} ${directory})
  execute_process(COMMAND ${pkg_config} --variable=libdir octavo
    OUTPUT_VARIABLE libdir OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${pkg_config} ${ARGN} --cflags --libs octavo
    OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(flags UNIX_COMMAND "${flags} ${flags_of_build}")
  step(${CMAKE_C_COMPILER} -std=c99 -O2 -Wall -Wextra -Werror ${PROJECT}/examples/first.c ${flags}
    -Wl,-rpath,${libdir} -o ${prefix}/first)
  step(${CMAKE_CROSSCOMPILING_EMULATOR} ${prefix}/first)
  if(NOT output MATCHES "0.314 ->   31 ->  0.31")
    message(FATAL_ERROR "${prefix}/first printed\n${output}")
  endif()
endfunction()

build_and_run(${WORK}/moved)
# With nothing but the archive in sight.
file(REMOVE_RECURSE ${WORK}/archive)
file(COPY ${WORK}/moved/ DESTINATION ${WORK}/archive PATTERN "*.so*" EXCLUDE)
build_and_run(${WORK}/archive --static)
