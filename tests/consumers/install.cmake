# Installs the package and moves it: whatever still names the first place will not work.
include(${CMAKE_CURRENT_LIST_DIR}/step.cmake)

file(REMOVE_RECURSE ${WORK})
step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/first)
file(RENAME ${WORK}/first ${WORK}/moved)

# Libraries aside (debug information names sources), nothing knows where it was installed or built.
file(GLOB_RECURSE files ${WORK}/moved/*)
foreach(file IN LISTS files)
  if(file MATCHES "\\.(cmake|pc|h|hpp)$")
    file(READ ${file} text)
    foreach(place IN ITEMS ${WORK}/first ${BUILD} ${PROJECT})
      string(FIND "${text}" "${place}" at)
      if(NOT at EQUAL -1)
        message(FATAL_ERROR "${file} names ${place}")
      endif()
    endforeach()
  endif()
endforeach()
