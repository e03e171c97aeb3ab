# cmake -DPTX=<file> -DF64_ENTRIES=<list> -P check_ptx.cmake
#
# Refuses PTX whose bits might not be the CPU's:
#   1. .ftz             subnormals would become zero
#   2. .approx          not correctly rounded
#   3. f32 or f64 additions and multiplications without a rounding mode, which the driver's compiler
#      may fuse
#   4. f64 instructions in a function without "f64" in its name: few GPUs have many f64 units, and f32
#      data needs none. What does need them stands in the list, with its reason.

file(READ ${PTX} text)
set(wrong "")

# Comments go first, and what CMake would take for lists.
string(REGEX REPLACE "//[^\n]*" "" text "${text}")
string(REPLACE ";" " " text "${text}")
string(REPLACE "[" "(" text "${text}")
string(REPLACE "]" ")" text "${text}")

foreach(modifier IN ITEMS ftz approx full)
  if(text MATCHES "[^\n]*[a-z0-9]\\.${modifier}[ .\t][^\n]*")
    string(APPEND wrong "\n  .${modifier}: ${CMAKE_MATCH_0}")
  endif()
endforeach()
if(text MATCHES "[^\n]*[ \t](add|sub|mul|mad|fma)(\\.sat)?\\.f(16|32|64)x?2?[ \t][^\n]*")
  string(APPEND wrong "\n  may be contracted (no rounding mode): ${CMAKE_MATCH_0}")
endif()
if(text MATCHES "[^\n]*[ \t](sin|cos|ex2|lg2|tanh)\\.[^\n]*")
  string(APPEND wrong "\n  not correctly rounded: ${CMAKE_MATCH_0}")
endif()

file(STRINGS ${F64_ENTRIES} allowed REGEX "^[^#]")
list(TRANSFORM allowed REPLACE "[ \t].*" "")
# Function by function: each begins with .entry or .func. (Declarations of registers are none of it.)
string(REGEX REPLACE "\n[^\n]*\\.(reg|param)[ \t][^\n]*" "" text "${text}")
string(REGEX REPLACE "\\.(entry|func)[ \t]+" ";" functions "${text}")
list(POP_FRONT functions)
foreach(function IN LISTS functions)
  if(NOT function MATCHES "[A-Za-z_$][A-Za-z0-9_$]*")
    continue()
  endif()
  set(name "${CMAKE_MATCH_0}")
  set(listed FALSE)
  if(name MATCHES "f64")
    set(listed TRUE)
  endif()
  foreach(entry IN LISTS allowed)
    if(name MATCHES "^${entry}$")
      set(listed TRUE)
    endif()
  endforeach()
  if(NOT listed AND function MATCHES "[^\n]*\\.f64[ \t.][^\n]*")
    string(APPEND wrong "\n  f64 in ${name}: ${CMAKE_MATCH_0}")
  endif()
endforeach()

if(wrong)
  file(REMOVE ${PTX})
  message(FATAL_ERROR "${PTX} is refused:${wrong}")
endif()
