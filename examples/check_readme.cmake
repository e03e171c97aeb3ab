# Compares the README with the example it shows.
#
#   cmake -D README=<file> -D SOURCE=<file> [-D PROGRAM=<command>] -P check_readme.cmake
#
# Without PROGRAM: the README's first C++ block is the text of SOURCE. With PROGRAM: the text block
# after it is what the program prints.

file(READ ${README} readme)
file(READ ${SOURCE} source)

# block_after(<out> <text> <mark>): what follows the first `mark` line, up to the next fence; `rest`
# is what comes after it.
function(block_after out text mark)
  string(FIND "${text}" "${mark}\n" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "${README} has no block that starts with ${mark}")
  endif()
  string(LENGTH "${mark}\n" length)
  math(EXPR at "${at} + ${length}")
  string(SUBSTRING "${text}" ${at} -1 rest)
  string(FIND "${rest}" "```" end)
  string(SUBSTRING "${rest}" 0 ${end} block)
  string(SUBSTRING "${rest}" ${end} -1 rest)
  set(${out} "${block}" PARENT_SCOPE)
  set(rest "${rest}" PARENT_SCOPE)
endfunction()

block_after(shown "${readme}" "```cpp")
if(NOT PROGRAM)
  if(NOT shown STREQUAL source)
    message(FATAL_ERROR "the first C++ block of ${README} is not ${SOURCE}: copy the file there")
  endif()
  return()
endif()

block_after(promised "${rest}" "```text")
execute_process(COMMAND ${PROGRAM} OUTPUT_VARIABLE printed COMMAND_ERROR_IS_FATAL ANY)
if(NOT printed STREQUAL promised)
  message(FATAL_ERROR "${README} promises\n${promised}but ${SOURCE} prints\n${printed}")
endif()
