# Compares a document with an example that it shows.
#
#   cmake -D DOCUMENT=<file> -D SOURCE=<file> -D LANGUAGE=<cpp|c> [-D PROGRAM=<command>]
#         -P check_document.cmake
#
# Without PROGRAM: the document's first block of that language is the text of SOURCE. With PROGRAM:
# the text block after it is what the program prints.

file(READ ${DOCUMENT} document)
file(READ ${SOURCE} source)

# block_after(<out> <text> <mark>): what follows the first `mark` line, up to the next fence; `rest`
# is what comes after it.
function(block_after out text mark)
  string(FIND "${text}" "${mark}\n" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "${DOCUMENT} has no block that starts with ${mark}")
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

block_after(shown "${document}" "```${LANGUAGE}")
if(NOT PROGRAM)
  if(NOT shown STREQUAL source)
    message(FATAL_ERROR
      "the first ${LANGUAGE} block of ${DOCUMENT} is not ${SOURCE}: copy the file there")
  endif()
  return()
endif()

block_after(promised "${rest}" "```text")
execute_process(COMMAND ${PROGRAM} OUTPUT_VARIABLE printed COMMAND_ERROR_IS_FATAL ANY)
if(NOT printed STREQUAL promised)
  message(FATAL_ERROR "${DOCUMENT} promises\n${promised}but ${SOURCE} prints\n${printed}")
endif()
